# Two commands for a fresh machine with Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/python examples/compare_digits.py

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto
