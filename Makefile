# `make demo` and `make test` need nothing but Python 3.11 and a package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check lint types bench acceptance docs clean

demo: $(STAMP)  ## generate a small fleet, ingest it, print reports, write demo/report.html
	$(BIN)/firstfault demo

test: $(STAMP)  ## all tests
	$(BIN)/python -m pytest -n auto -q

check: lint types test  ## what CI runs

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/firstfault failures check

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)  ## benchmarks on a tenth of the text, checked for their counts
	$(BIN)/python -m benchmarks run --scale 0.1

acceptance: $(STAMP)  ## measure what must hold and how speed scales, keep records: hours, 10 GB
	$(BIN)/python -m benchmarks acceptance --record
	$(BIN)/python -m benchmarks scale --record

docs: $(STAMP)  ## rewrite the generated parts of README.md and docs/
	$(BIN)/python -m tests.docs --write

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	touch $(STAMP)

clean:
	rm -rf $(VENV) demo dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
