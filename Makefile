# Two commands: `make demo` runs the main job, `make test` passes every check. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types imports unit docs dist bench kernels campaigns clean

help:
	@echo "make demo   set up and compare six encodings on two tasks (report.html)"
	@echo "make test   set up and pass every check"
	@echo "make docs   set up and build the documentation site (build/site/html)"
	@echo "make dist   build, check and try the distributions (dist)"
	@echo "make bench  print and store every benchmark"
	@echo "make kernels  compile the optional attention kernels for CPUs (GCC, Linux, x86-64)"
	@echo "make campaigns  crash, fuzz and starve the program for hours, and store the figures"
	@echo "make clean  remove the virtual environment and caches"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "SpectroPE needs Python 3.11 or newer; set PYTHON=/path/to/python3.11."; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) -e '.[dev]'
	@touch $@

setup: $(VENV)/.dev

# Rates and epochs were chosen on validation examples, so that each encoding but ALiBi on Task 1 comes within a
# point of its best; docs/how-to/demo.md has the grid.
ENCODINGS := nope sinusoidal random t5 alibi rope
demo: $(VENV)/.core
	$(BIN)/spectrope compare --encodings $(ENCODINGS) --tasks distance --set learning_rate=0.009 --epochs 3
	$(BIN)/spectrope compare --encodings $(ENCODINGS) --tasks counting --set learning_rate=0.03 --epochs 8
	$(BIN)/spectrope report

# Types are checked beside the tests, which leave some processor time.
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs=2 lint types imports unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/pyright --pythonpath $(BIN)/python

imports: $(VENV)/.dev
	$(BIN)/lint-imports --no-cache

unit: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

docs: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.site

dist: $(VENV)/.dev
	$(BIN)/python -m tools.dist

bench: $(VENV)/.dev
	for bench in $(filter-out harness versions,$(basename $(notdir $(wildcard benchmarks/*.py)))); do $(BIN)/python -m benchmarks.$$bench || exit 1; done

# Compiled for the torch that is here, so that pip builds in this environment.
kernels: $(VENV)/.core
	$(PIP) 'setuptools>=77'
	$(PIP) --no-build-isolation ./kernels

# Each goes on to its end, whatever it finds; its results lie in campaigns/results.
CAMPAIGNS := flips crashes fuzz writers parity llama_cpp long_runs isolation ray_cluster cost
campaigns: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --whole -m sampled || failed=1; \
	for campaign in $(CAMPAIGNS); do OMP_NUM_THREADS=1 $(BIN)/python -m campaigns.$$campaign || failed=1; done; exit $${failed:-0}

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
