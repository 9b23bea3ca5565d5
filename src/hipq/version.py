"""The version of this hipq: `hipq.__version__`."""

__version__ = "0.1.0"
