# `make help` lists the targets. Everything runs in .venv, which the first of them makes from envs/cpu.lock.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Programs of the environment come first on the path: Snakemake starts `python` by name.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export MLFLOW_DISABLE_TELEMETRY := true

.DEFAULT_GOAL := help
.PHONY: help env study test check format docs cases lock clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

env: $(VENV)/.ready  ## make the environment in .venv

# A marker, touched last: an installation that was interrupted is done again.
$(VENV)/.ready: envs/cpu.lock.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "strop needs Python 3.11 or later")'
	@echo "making $(VENV) from envs/cpu.lock.txt: 2.6 GB, some minutes, once"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r envs/cpu.lock.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

study: env  ## run the quickstart study and print its decision
	snakemake --cores all --config study=quickstart

# Two processes share the tests' files: most wait for processes that they start.
test: env  ## run the whole test suite
	python -m pytest -n 2

check: env  ## formatter, linters, types, workflow lint
	ruff format --check .
	ruff check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint --config study=smoke

format: env  ## format code and rules
	ruff format .
	ruff check --fix .
	snakefmt Snakefile workflow

docs: env  ## generate docs/reference from the settings
	python -m strop.report.reference docs/reference

cases: env  ## run the reported cases and write docs/cases.md
	python -m pytest tests/cases --write-cases docs/cases.md

lock: env  ## resolve pyproject.toml anew into envs/
	python envs/make_lock.py

clean:  ## remove the environment and caches, not the results
	rm -rf $(VENV) .snakemake .pytest_cache .ruff_cache .mypy_cache
