# make demo and make test are all that a newcomer needs; both install what they use first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OLDEST ?= python3.10
NEWEST ?= python3.13

.PHONY: install install-dev demo test lint types docs package versions bench clean

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed: make PYTHON=python3.12"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: install
	$(BIN)/pdadmm-g demo --out runs/demo

test: lint types
	$(BIN)/python -m pytest

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install-dev
	$(BIN)/mypy

docs: install-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Wheel and source archive, each installed in a fresh environment and tried in an empty folder. Minutes, because of torch.
package: install-dev
	bash .ci/package $(BIN)/python

# The core of the suite on the oldest and the newest versions that pyproject.toml allows. Gigabytes, because of torch. The
# oldest were built for no Python after 3.11.
versions:
	bash .ci/versions oldest $(OLDEST)
	bash .ci/versions newest $(NEWEST)

bench: install
	$(BIN)/python -m benchmarks.bench

clean:
	rm -rf $(VENV) runs build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
