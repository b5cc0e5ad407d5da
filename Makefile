# Each target makes .venv and what it needs on a fresh machine with Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
READY := $(VENV)/.ready
DOCS := $(VENV)/.docs
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
FETCH = @$(BIN)/uv pip install --quiet --python $(BIN)/python --editable $(1) 2>/dev/null || $(INSTALL) --editable $(1)
# Modules stay compiled, whatever the environment says: each process that starts would compile all it imports.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test test-all test-engines tests check bench peers docs floors build reproduce clean

demo: $(CORE)
	$(BIN)/dunnage demo --out demo-out --force

test: $(READY) # the checks run beside the tests
	$(MAKE) --no-print-directory --jobs=2 check tests

tests: $(READY) # a third process uses the time in which two wait for disks and processes
	$(BIN)/python -m pytest -n 3

test-all: $(READY) # the long forms as well
	DUNNAGE_LONG=1 $(BIN)/python -m pytest -n 3

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(if $(CI),--cache-dir=/dev/null) # nobody reads what one run of CI remembers
	$(BIN)/lint-imports
	$(BIN)/python docs/check_docs.py

test-engines: | $(BIN)/python # the tests of engines with DuckDB and Spark (Java 17), in an environment of their own
	$(PYTHON) -m venv $(VENV)/engines
	$(VENV)/engines/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test,duckdb,spark]"
	DUNNAGE_LONG=1 $(VENV)/engines/bin/python -m pytest -n 0 tests/test_engines.py

floors: # the lowest versions that pyproject.toml allows, in an environment of their own
	$(PYTHON) tests/floors.py

constraints.txt: pyproject.toml # the tested set, with the digests of its files
	$(PYTHON) -m venv $(VENV)/tools
	$(VENV)/tools/bin/python -m pip install --quiet pip-tools
	$(VENV)/tools/bin/pip-compile --quiet --upgrade --generate-hashes --no-annotate --no-header --strip-extras \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
	  --extra solve --extra excel --extra serve --extra postgres --extra duckdb --output-file $@ pyproject.toml

build: # source and wheels in dist, with the proof notes and a bill of materials; one wheel is for devices. SIGN=key.pem signs
	rm -rf dist
	$(PYTHON) -m venv $(VENV)/tools
	$(VENV)/tools/bin/python -m pip install --quiet build $(if $(SIGN),cryptography)
	$(VENV)/tools/bin/python -m build --outdir dist
	$(VENV)/tools/bin/python device/build_wheel.py --outdir dist
	$(VENV)/tools/bin/python checksums.py dist $(SIGN)

bench: $(READY)
	$(BIN)/python -m benchmarks

peers: | $(BIN)/python # the same on public data, with the peers in an environment of their own; see docs/peers.md
	$(PYTHON) -m venv $(VENV)/peers
	$(VENV)/peers/bin/python -m pip install --quiet --editable . opendp ortools highspy anonypy pycanon mbi multi-freq-ldpy pure-ldp scikit-learn statsmodels 'xxhash<4'
	-$(VENV)/peers/bin/python -m pip install --quiet ridepy # needs a C++ compiler and Boost's headers
	$(VENV)/peers/bin/python -m benchmarks.peers --write

docs: $(DOCS)
	$(BIN)/python docs/check_docs.py --write
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

reproduce: $(READY)
	$(BIN)/python -m papers $(PAPER) $(if $(QUICK),--quick) --out reproduced

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Dunnage needs Python 3.11 or newer; for example, set PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	-@$(INSTALL) uv >/dev/null 2>&1 # it installs the rest in half the time; where there is none, pip does

$(CORE): pyproject.toml | $(BIN)/python
	$(call FETCH,.)
	touch $@

$(READY): pyproject.toml | $(BIN)/python # the core too, in one go; and a browser, where that is one command
	$(call FETCH,".[test]")
	-@test -x /usr/bin/chromium || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || \
	  { apt-get update && apt-get install --yes --no-install-recommends chromium; } >/dev/null 2>&1
	touch $(CORE) $@

$(DOCS): $(READY)
	$(INSTALL) --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) demo-out reproduced site dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
