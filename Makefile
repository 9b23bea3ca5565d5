# Everything a fresh machine needs is made here, in .venv: python3 (3.11 or later), make and pip are enough.
PYTHON ?= python3
BIN := .venv/bin
# Tests mostly wait, for processes and servers: more of them at once than there are cores.
WORKERS ?= 6
# They start thousands of processes, each of which would compile all of hipq again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist=worksteal
# What needs no server and starts few processes.
FAST = tests/job tests/contract/test_sqlite.py tests/engine tests/journal tests/requests

.PHONY: help demo test test-fast test-long test-pythons coverage suite style types acceptance lint format docs dist proof-bugs bench bench-quick bench-growth bench-transports bench-daemon bench-arena clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help:
	@echo "make demo        see what hipq does, in half a minute"
	@echo "make test        lint, types and tests: what CI runs"
	@echo "make test-fast   jobs, engine, journal and the contract on SQLite, in about a minute"
	@echo "make coverage    which lines of src the tests run (TESTS=tests/engine: only those tests)"
	@echo "make test-long   the same on every store, and minutes of simulation and crashes"
	@echo "make test-pythons  the suite on every Python found here"
	@echo "make acceptance  ten thousand requests and answers on every transport"
	@echo "make bench       hipq beside plain SQL and other queues: docs/benchmarks.md (bench-quick: a minute)"
	@echo "make bench-growth  what becomes of it as things grow: docs/growth.md"
	@echo "make bench-transports  answers from each kind of stream: docs/transports-bench.md"
	@echo "make bench-daemon  jobs over HTTP and in contexts: docs/daemon-bench.md"
	@echo "make docs        the documentation site, in .site/html"
	@echo "make bench-arena  hipq beside other queues while things go wrong: a section of docs/benchmarks.md"
	@echo "make dist        the sdist and the wheel of HEAD, built twice with the same bytes"
	@echo "make lint format proof-bugs clean"

demo: .venv/installed
	@$(BIN)/hipq demo

# mypy runs while the tests wait for servers.
test: style
	$(MAKE) --no-print-directory -j2 types suite

suite: .venv/installed-dev
	$(PYTEST) -m "not long"

test-fast: .venv/installed-dev
	$(PYTEST) -m "not long" -k "not postgres and not mariadb and not crash and not locked and not blocked" $(FAST)

# Also of processes that tests start, unless they are killed.
coverage: .venv/installed-dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist=worksteal -m "not long" $(TESTS); status=$$?; \
	$(BIN)/coverage combine -q && $(BIN)/coverage report --skip-covered --sort=cover; exit $$status

# Every test that has a database runs on each store here. What `make test` repeats some hundred times is repeated a
# thousand times. Each fault of tests/crash/test_campaign.py
# lasts half a minute; HIPQ_CAMPAIGN_SECONDS=540: nine.
test-long: export HIPQ_TEST_STORES := all
test-long: test
	$(BIN)/python -m pytest -m long --timeout 3600
	HIPQ_RACES=1000 HIPQ_ACCEPTANCE_JOBS=1000 $(BIN)/python -m pytest --timeout 3600 tests/answers_races tests/acceptance

# On every Python from 3.11 on that is here: a quarter of an hour each. TESTS=tests/engine: only those.
test-pythons:
	$(PYTHON) -m tests.pythons $(if $(TESTS),-n $(WORKERS) $(TESTS))

# Ten thousand requests and answers on each transport, about eight minutes.
acceptance: .venv/installed-dev
	HIPQ_ACCEPTANCE_JOBS=10000 $(BIN)/python -m pytest --timeout 3600 tests/acceptance --durations=0

lint: style types

style: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-dev
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The TypeScript client's routes, from those of the daemon.
.PHONY: client
client: .venv/installed-dev
	$(BIN)/python -m clients.typescript.generate

# The documentation site, in .site/html: it loads nothing from other hosts, and needs no server but for its search.
docs: .venv/installed-dev
	$(BIN)/python -c "from hipq.job.states import document; print(document(), end='')" > docs/states.md
	$(BIN)/python -m website .site/pages
	$(BIN)/zensical build --clean --strict
	$(BIN)/python -m website.check .site/html
	@echo "read it: $(BIN)/python -m http.server -d .site/html"

dist: .venv/installed-dev
	.ci/dist

proof-bugs: .venv/installed-dev
	$(BIN)/python -m tests.planted

# About ten minutes on an idle machine, and what the peers' environments take to install, in .bench, the first time.
bench: .venv/installed-dev
	$(BIN)/python -m bench --json docs/benchmarks.json
	$(BIN)/python -m bench.report docs/benchmarks.json

bench-quick: .venv/installed-dev
	$(BIN)/python -m bench --quick --json .bench/quick.json

# About twelve minutes: curves, and a neighbour.
bench-growth: .venv/installed-dev
	$(BIN)/python -m bench.growth --json docs/growth.json
	$(BIN)/python -m bench.neighbour --seconds 360 --json docs/growth.json

# About a quarter of an hour. Brokers that neither run here nor can be started are left out.
bench-transports: .venv/installed-dev
	$(BIN)/python -m bench.transports --json docs/transports.json

# About three minutes.
bench-daemon: .venv/installed-dev
	$(BIN)/python -m bench.daemon --json docs/daemon-bench.json

# About five hours: nine cells of four to ten minutes for each of six queues. ARENA="--quick --cells killed" for less.
bench-arena: .venv/installed-dev
	$(BIN)/python -m bench.arena --json docs/arena.json $(ARENA)
	$(BIN)/python -m bench.report docs/benchmarks.json

clean:
	rm -rf .venv .site .cache .pythons .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Some systems ship Python without the pip that `venv` wants to copy; theirs can still install one.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("hipq needs Python 3.11 or later: make PYTHON=python3.x ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv || { $(PYTHON) -m venv --clear --without-pip .venv && $(PYTHON) -m pip --python $@ install pip; }

.venv/installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dashboard]'
	@touch $@

.venv/installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch .venv/installed $@
