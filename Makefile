# Two commands for a fresh machine with Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,flower]'
	touch $@

demo: setup
	$(BIN)/tunefree compare padamfed parfrefl fedavg:eta=0.003 fedavg:eta=0.1 fedavg:eta=3 \
	    scaffold:eta=0.1 --rounds 300 --seeds 0 --out demo
	$(BIN)/tunefree report demo -o demo/report.html

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto
