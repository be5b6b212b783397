# Two commands: `make run` trains on the built-in data, `make test` checks everything.
# Each sets up its own .venv from requirements.lock; only python3 (3.11+) and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test lint types imports unit clean

run: $(STAMP)
	$(BIN)/consilia run examples/plans/heart.toml

test: lint types imports unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/python -m pytest

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Consilia needs Python 3.11 or newer; got $$($(PYTHON) --version). Name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "Installing into $(VENV): one to three minutes, once."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
