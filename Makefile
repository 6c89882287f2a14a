# Two commands: `make serve` to talk with the agent, `make test` to check it. Both set up all they need, once.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
BASE   := $(VENV)/.base
DEV    := $(VENV)/.dev
MODELS ?= en
SHELL  := bash
.SHELLFLAGS := -o pipefail -c

.DEFAULT_GOAL := help
.PHONY: help serve test test-asterisk lint types unit e2e chaos bench soak models setup peers clean check-python

help:  ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "error: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1). Install one and run: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }

# One line that counts packages as pip collects them; the whole story is in the log.
define install
@$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt $(1) 2>&1 \
  | tee $(VENV)/pip.log \
  | awk '/^Collecting|^Building|^Installing/ { n++; printf "\r    %d: %-60.60s", n, $$2; fflush() } END { printf "\r%-70s\r", "" }' || { \
  grep -E '^ *(ERROR|error)' $(VENV)/pip.log | tail -n 3 >&2; \
  echo "error: installing packages failed (whole log: $(VENV)/pip.log). Check the network or pip's index settings and run the same command again." >&2; exit 2; }
endef

$(BASE): pyproject.toml constraints.txt | check-python
	@echo "==> setting up $(VENV) (once, about half a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  echo "error: cannot make a virtual environment. On Debian or Ubuntu: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 2; }
	$(call install,--upgrade pip)
	$(call install,--editable .)
	@touch $(BASE)

$(DEV): $(BASE)
	@echo "==> adding what the tests and benches need"
	$(call install,--editable '.[dev]')
	@touch $(DEV)

setup: $(DEV)  ## create the environment

models: $(BASE)  ## fetch the speech models (MODELS="en zh" for Mandarin too)
	@$(BIN)/rejoinder models fetch $(MODELS)

serve: models  ## start the agent on http://127.0.0.1:8080
	@exec $(BIN)/rejoinder serve $(ARGS)

peers:
	@bash tests/install_peers.sh

lint: $(DEV)
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(DEV)
	@echo "==> mypy --strict"
	@$(BIN)/mypy

unit: $(DEV) models
	@echo "==> tests"
	@$(BIN)/python -m pytest -n auto -m "not e2e" $(PYTEST)

e2e: $(DEV) models peers
	@echo "==> tests with real peers"
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "e2e and not alone and not chaos" $(PYTEST)
	@$(BIN)/python -m pytest -m "e2e and alone and not chaos" $(PYTEST)

test: lint types models peers unit e2e  ## lint, types and all tests; installs the test peers with apt when missing

chaos: $(DEV) models peers  ## processes that hang, stop and starve: minutes that `make test` does not have
	@$(BIN)/python -m pytest -m chaos $(PYTEST)

bench: $(DEV) models  ## run every benchmark and write docs/benchmarks.md
	$(call install,--editable '.[bench]')
	@$(BIN)/python -m bench all --write docs/benchmarks.md

soak: $(DEV) models peers  ## half an hour of short calls, and two minutes over a bad network
	@REJOINDER_NETWORK_CALL_S=120 $(BIN)/python -m pytest -m e2e --timeout 400 -s tests/e2e/test_network.py
	@$(BIN)/python -m bench soak --json $(ARGS)

test-asterisk: $(DEV) models peers  ## both bridges with a real Asterisk 22 (as root; makes a Debian sid tree, 600 MB, once)
	@bash tests/asterisk/install.sh $${REJOINDER_ASTERISK:-/var/tmp/rejoinder-asterisk}
	@$(BIN)/python -m pytest -s tests/e2e/asterisk_bridges.py

clean:  ## remove the environment and caches of this folder
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
