# Two commands do everything on a bare machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One worker a core: the tests are many and small, so a thread each beats many threads on one.
WORKERS ?= auto

.PHONY: demo test lint types tests chaos tables docs release clean

demo: $(VENV)/installed
	$(BIN)/python -m tolerant demo

test: lint tests  # types are one of the tests

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed
	$(BIN)/mypy

tests: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -q

# Minutes of kills, full disks and two trainings in one folder, beside runs that were left alone.
SEED ?= 0
TRIALS ?= 300
JOBS ?= 2
chaos: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python tests/chaos.py --seed $(SEED) --trials $(TRIALS) --jobs $(JOBS)

# The tables in the README and the docs, from the rows in results/.
PAGES = $(shell grep -rl --include=*.md -e "<!-- report:" README.md docs)
tables: $(VENV)/installed
	for page in $(PAGES); do $(BIN)/python -m tolerant report --docs $$page || exit 1; done
	$(BIN)/python benchmarks/tables.py $(PAGES)

# Into site/, without the network; site/index.html opens from the disk.
docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# What would be published, in dist/: built, checked, and used where the checkout is not.
release: $(VENV)/installed
	rm -rf dist build/release
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet -c constraints.txt "$$(ls dist/*.whl)[app]"
	build/release/bin/python -I tests/smoke_release.py "$(CURDIR)"

# pip compiles the 21,000 modules on one core, which takes it longer than to install them: on all cores instead.
# (One of torch's is for a later Python.)
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e ".[app,dev,docs]"
	-$(BIN)/python -m compileall -q -j 0 $(VENV)/lib > $(VENV)/compiled.log
	touch $@

clean:
	rm -rf $(VENV) build dist demo site
