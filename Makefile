# Two commands for a fresh machine with Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo challenge claims test docs docs-serve pictures changelog lock sbom release release-check

setup: .venv/ready

.venv/ready: pyproject.toml evidence/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,flower,docs]' -e ./evidence
	touch $@

demo: setup
	$(BIN)/tunefree compare polarfl fedavg:eta=0.01 fedavg:eta=0.1 fedavg:eta=1 \
	    scaffold:eta=0.1 scaffold:eta=1 --rounds 150 --eval-every 5 --seeds 0 --out demo
	$(BIN)/tunefree report demo -o demo/report.html

# The claims of the README, checked on this machine: they fetch data sets and take hours.
challenge: setup
	$(BIN)/tunefree-evidence challenge

claims: setup
	$(BIN)/tunefree-evidence claims all

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto

# The site in site/, which opens without a server; warnings are errors.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-serve: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

# The drawings in docs/pictures/, after docs/making/pictures.py was changed.
pictures: setup
	$(BIN)/python -m docs.making.pictures

# CHANGELOG.md with the fragments of changelog.d, which are gone then.
changelog: setup
	$(BIN)/python -m docs.making.changelog

# What a deployment installs, by version and hash; with another index, for example one with the CPU build of torch:
# `make lock LOCK=deploy/cpu.txt UV_INDEX=...`
LOCK := deploy/requirements.txt
lock: setup
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-annotate --no-header --upgrade --extra flower --extra ops -c constraints.txt pyproject.toml -o $(LOCK)

# The same as a software bill of materials, in CycloneDX's format.
sbom: setup
	mkdir -p dist
	$(BIN)/uv tool run --from cyclonedx-bom cyclonedx-py requirements $(LOCK) -o dist/sbom.json

# A wheel and an sdist in dist/.
release: setup
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

# The wheel in an empty environment, where it must train.
release-check: setup
	$(BIN)/pytest -m slow -n 0 -q tests/site/test_release.py
