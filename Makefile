# Two commands on a machine that has only Python 3.11 and make: `make demo` and `make test`.
# The first run builds .venv with the versions of constraints.txt; the next one installs nothing.

VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

# The first Python of at least 3.11 that runs; `make test PYTHON=/path/to/python` overrides it.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt
EDITABLE := $(INSTALL) --no-build-isolation --editable

TYPES = $(BIN)/mypy --num-workers $(WORKERS)

# Workers and the processes that tests start import the same files: compiled ones are kept. What
# passed leaves no temporary files, which may be in memory. A worker has one core.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TMPDIR=$$(sh tools/scratch.sh) \
	$(BIN)/python -m pytest -o tmp_path_retention_policy=failed

# What pip install is tried with; those that are not on this machine are named and left out.
PYTHONS ?= python3.11 python3.12 python3.13

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: demo test test-slow lint style format bench bench-engine docs dist constraints install-locked clean help

demo: $(VENV)/.installed  ## the main job, end to end and offline: a private model and its report
	@rm -rf runs/demo  # a run is never written over by the command itself
	$(BIN)/tacit train digits --epsilon 3 --out runs/demo

# Types are checked beside the tests, when a core has nothing else to do; what was found is shown last.
# Where no core ever has, mypy's workers are given up as dead: one process then takes its time.
test: style  ## style, types, rooms, doctests and tests
	@mkdir -p build
	@(nice -n 19 $(TYPES) || $(BIN)/mypy) >build/types.txt 2>&1 & types=$$!; \
	echo '$(PYTEST) -n $(WORKERS)'; $(PYTEST) -n $(WORKERS); tests=$$?; \
	wait $$types; types=$$?; cat build/types.txt; exit $$((tests + types))

test-slow: $(VENV)/.installed-dev  ## the long proofs
	$(PYTEST) -n $(WORKERS) -m slow

lint: style  ## style, format, types and the order of the rooms
	$(TYPES)

style: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev  ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev  ## the accountant beside its peers
	$(BIN)/python benchmarks/accounting.py

bench-engine: $(VENV)/.installed-dev  ## a private training step on the CPU beside its peers
	$(BIN)/python benchmarks/engine_cpu.py

docs: $(VENV)/.installed-docs  ## the guide and the reference, into build/docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs build/docs
	@echo "The documentation is at build/docs/index.html"

dist: $(VENV)/.installed  ## sdist and wheel into dist, checked and installed into empty environments
	rm -rf dist
	$(BIN)/python -m hatchling build
	$(BIN)/python tools/distribution.py dist --try $(PYTHONS)

constraints:  ## resolve the newest versions that pyproject.toml allows, and pin them
	PYTHON="$(PYTHON)" sh tools/pin.sh

# Nothing but what the file lists is installed; torch is then its CPU build, from wherever pip looks.
install-locked: $(VENV)/.created  ## install everything, each file checked against constraints.lock
	$(PIP) install --quiet --require-hashes --no-deps --requirement constraints.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .

clean:  ## remove what the other targets built, but not runs/
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*##' '/^[a-z-]+:.*##/ {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.created:
	@test -n "$(PYTHON)" || { \
		echo "tacit needs Python 3.11 or newer; name one with PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/.created
	$(INSTALL) hatchling editables
	$(EDITABLE) '.[plots,sklearn]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(EDITABLE) '.[dev]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(EDITABLE) '.[docs]'
	@touch $@
