# Everything that people and CI do here.  `make help` lists it.

# The first interpreter that Octavo runs on; PYTHON=… chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
MODEL ?= smollm2-135m
ARGS ?=
BENCH_ARGS ?=
TEST_ARGS ?=

# A bare torch brings a CUDA build of several GB; machines without a GPU get the CPU build from PyTorch's own index.
TORCH ?= torch==2.13.0
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
HAS_GPU := $(shell [ -e /dev/nvidiactl ] || [ -e /dev/kfd ] && echo 1)

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
OTHER_TESTS := $(filter-out tests/unit/ tests/install/ tests/__pycache__/,$(sort $(wildcard tests/*/)))

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev serve check format lint types imports stubs sizes docs-check test test-unit \
  install-test bench proto wheel clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "Octavo needs Python 3.11, 3.12 or 3.13: apt install python3, or make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "the venv module is missing: apt install python3-venv"; exit 1; }
	@echo "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: | $(VENV)/bin/python
ifeq ($(HAS_GPU),)
	@if $(BIN)/python -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=3)' $(TORCH_CPU_INDEX)/torch/ 2>/dev/null; then \
	  echo "no GPU found: installing the CPU build of $(TORCH)"; \
	  $(PIP) --no-deps --extra-index-url $(TORCH_CPU_INDEX) $(TORCH)+cpu; \
	else \
	  echo "no GPU found, and $(TORCH_CPU_INDEX) cannot be reached: installing $(TORCH) from the default index"; \
	  $(PIP) --no-deps $(TORCH); \
	fi
else
	@echo "GPU found: torch comes from the default index"
endif
	@touch $@

$(VENV)/.worker: pyproject.toml $(VENV)/.torch
	@echo "installing Octavo"
	@$(PIP) -e '.[worker]'
	@touch $@

$(VENV)/.dev: $(VENV)/.worker
	@echo "installing what development needs"
	@$(PIP) -e '.[dev]'
	@touch $@

setup: $(VENV)/.dev ## Create .venv with everything that development needs
setup-dev: setup

# On a terminal the cluster becomes a job of its own, so that Ctrl-C reaches it alone and make sees its exit code.
serve: $(VENV)/.worker ## Serve the demo model (MODEL=… another, ARGS='--port 9000 …' flags of octavo up)
	@if [ -t 0 ]; then set -m; fi; $(BIN)/octavo up $(MODEL) $(ARGS)

check: setup ## Format, lint, types, import contracts, stub drift, sizes, docs
	@$(MAKE) --no-print-directory format lint types imports stubs sizes docs-check

format: setup
	$(BIN)/ruff format --check .

lint: setup
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

stubs: setup
	$(BIN)/python protos/generate.py --check

sizes: setup
	$(BIN)/python tests/checks/sizes.py

docs-check: setup
	$(BIN)/python tests/checks/docs.py

test: setup ## Run all tests that need no GPU, unit tests first (TEST_ARGS='-k name')
	$(PYTEST) tests/unit $(OTHER_TESTS) -m 'not gpu' $(TEST_ARGS)

test-unit: setup ## Run the unit tests
	$(PYTEST) tests/unit $(TEST_ARGS)

install-test: setup ## Test the wheel in clean environments, and in a minimal Debian where this user may make one
	$(PYTEST) tests/install --timeout 1800

bench: setup ## Measure speed against transformers (BENCH_ARGS=--quick for a short run)
	$(BIN)/python benchmarks/serving.py $(BENCH_ARGS)

proto: setup ## Regenerate the gRPC stubs
	$(BIN)/python protos/generate.py

wheel: setup ## Build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation

clean: ## Remove .venv and caches
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
