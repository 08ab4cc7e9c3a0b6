# A fresh clone needs one command: each target makes .venv on first use. `make help` lists the targets.
PYTHON ?= python3
VENV ?= .venv
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check --quiet --quiet
CONSTRAINTS = constraints.txt
# test files side by side; each takes a core and a gigabyte or two
JOBS ?= 2
# how long the fault campaign takes, and what it draws from (empty: another seed each time, printed)
SOAK_MINUTES ?= 30
SOAK_SEED ?=

# VENV=none: the python3 of this machine with the torch it has, for GPU machines that bring their own
ifeq ($(VENV),none)
RUN = PYTHONPATH=src $(PYTHON) -m
LINT_IMPORTS = PYTHONPATH=src lint-imports
RUNTIME =
DEVELOPMENT =
DOCS =
PACKAGE =
else
RUN = $(VENV)/bin/python -m
LINT_IMPORTS = $(VENV)/bin/lint-imports
RUNTIME = $(VENV)/.runtime
DEVELOPMENT = $(VENV)/.development
DOCS = $(VENV)/.docs
PACKAGE = $(VENV)/.package
endif
NEWEST_PYTHON = build/newest/bin/python
NEWEST = build/newest/.development

.DEFAULT_GOAL := help
.PHONY: help quickstart notebook test test-newest soak coverage browser check audit docs package test-gpu figures clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20
	@echo "Variables: PYTHON=python3.12 (who makes .venv), VENV=none (use PYTHON as it is, without .venv), JOBS=2, SOAK_MINUTES=30, SOAK_SEED=1"

quickstart: $(RUNTIME) ## the paper's comparison on a small model: CPU, minutes, downloads packages only
	@$(RUN) trimsft quickstart --out runs/quickstart
ifneq ($(VENV),none)
	@echo "The command trimsft is in $(VENV)/bin."
endif

notebook: $(RUNTIME) ## examples/tour.ipynb, cell by cell, on the lab's model: a minute of a CPU
	@$(RUN) tools.notebook examples/tour.ipynb

# tests go one by one to whoever is free: a few long files would else keep one core busy at the end
test: check ## everything that needs no GPU: static checks, then the tests
	@command -v chromedriver >/dev/null || echo "No chromedriver: the page is not tested in a browser. 'make browser' installs Chromium, as root on Debian."
	$(RUN) pytest -m "not gpu and not soak" --numprocesses $(JOBS) --dist worksteal

# transformers warns of names that TRL still uses
test-newest: $(NEWEST) ## the tests with the newest releases of everything but torch, in an environment of their own
	$(NEWEST_PYTHON) -m pytest -m "not gpu and not soak" -W ignore::FutureWarning --numprocesses $(JOBS) --dist worksteal

soak: $(DEVELOPMENT) ## the fault campaign: kills, full disks, damaged files, hostile input; half an hour, see docs/reliability.md
	$(RUN) pytest -m soak
	$(RUN) tools.soak --minutes $(SOAK_MINUTES) $(if $(SOAK_SEED),--seed $(SOAK_SEED))

coverage: $(DEVELOPMENT) ## which lines of src the tests run, those of child processes included
	$(RUN) coverage erase
	$(RUN) coverage run -m pytest -m "not gpu and not soak" --numprocesses $(JOBS) --dist worksteal
	$(RUN) coverage combine --quiet
	$(RUN) coverage report

browser: ## install Chromium for the tests of the page; needs root and apt-get
	command -v chromedriver || { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium chromium-driver; }

check: $(DEVELOPMENT) ## static checks: lint, format, types, direction of imports, size
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy
	$(LINT_IMPORTS) --no-logo
	$(RUN) tools.size

audit: $(DEVELOPMENT) ## whether a dependency has a known vulnerability; asks a service
	$(RUN) pip_audit --skip-editable

test-gpu: $(DEVELOPMENT) ## the tests that need CUDA; with VENV=none on machines that bring their own torch
	$(RUN) pytest -m gpu

docs: $(RUNTIME) $(DOCS) ## the documentation as a site, in build/site; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict --quiet --site-dir build/site
	@echo "The site is build/site/index.html"

package: $(PACKAGE) ## wheel and sdist in dist/, checked, and the quickstart from the wheel in an empty environment
	rm -rf dist build/empty
	$(RUN) build --outdir dist
	$(RUN) twine check --strict dist/*
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet -c $(CONSTRAINTS) "$$(echo dist/*.whl)[all]"
	cd build/empty && bin/trimsft quickstart --fast --out quickstart

figures: $(RUNTIME) ## draw the figures of the documentation again
	$(RUN) trimsft.report.figures docs/figures

clean: ## remove .venv, caches and builds; runs/ stays
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage* build dist
	find src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "trimsft needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	@echo "Making $(VENV) (once; torch is large)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	@$(PIP) install -c $(CONSTRAINTS) -e '.[all]'
	@touch $@

# the extra's packages without trimsft's own
$(VENV)/.docs: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	@$(VENV)/bin/python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	  print('\n'.join(project['optional-dependencies']['docs']))" > $@.txt
	@$(PIP) install -c $(CONSTRAINTS) -r $@.txt
	@touch $@

$(VENV)/.package: | $(VENV)/bin/python
	@$(PIP) install build twine
	@touch $@

$(VENV)/.development: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	@$(PIP) install -c $(CONSTRAINTS) -e '.[dev]'
	@touch $@ $(VENV)/.runtime

$(NEWEST): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -m venv build/newest
	@grep -E '^(torch|triton)[<=]' $(CONSTRAINTS) >build/newest/constraints.txt
	@$(NEWEST_PYTHON) -m pip install --quiet --upgrade -c build/newest/constraints.txt -e '.[dev]'
	@touch $@
