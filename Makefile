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
	$(BIN)/tunefree compare polarfl fedavg:eta=0.01 fedavg:eta=0.1 fedavg:eta=1 \
	    scaffold:eta=0.1 scaffold:eta=1 --rounds 150 --eval-every 5 --seeds 0 --out demo
	$(BIN)/tunefree report demo -o demo/report.html

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto
