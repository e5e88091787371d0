# The two commands of the README: `make run`, `make test`. Each sets up what it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INPUTS := pyproject.toml constraints.txt

.PHONY: run chat test test-full check bench chaos clean

run: $(VENV)/.installed
	@$(BIN)/bot run

chat: $(VENV)/.installed
	@$(BIN)/bot chat

test: $(VENV)/.installed-dev
	$(BIN)/pytest --numprocesses auto -m "not long"

test-full: $(VENV)/.installed-dev
	$(BIN)/pytest --numprocesses auto -m long

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

chaos: $(VENV)/.installed-dev
	$(BIN)/python -m tests.chaos

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Greenroom needs Python 3.11 or newer; say which with: make PYTHON=python3.12 run"; exit 78; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(INPUTS) | $(BIN)/python
	@echo "Setting up $(VENV) (once) ..."
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all]'
	@touch $@

$(VENV)/.installed-dev: $(INPUTS) | $(BIN)/python
	@echo "Setting up $(VENV) for development (once) ..."
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all,dev]'
	@touch $@ $(VENV)/.installed
