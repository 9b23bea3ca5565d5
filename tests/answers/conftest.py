"""The fixtures of the engine's tests: an app on each store, with a clock turned by hand."""

from tests.engine.conftest import app, clock, make_app, queue, run, url

__all__ = ["app", "clock", "make_app", "queue", "run", "url"]
