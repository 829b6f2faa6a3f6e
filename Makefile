# The verbs of this repository. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
REPOSITORY := model_repository
TRITON := .venvs/triton
HF := .venvs/hf
KSERVE := .venvs/kserve
TEXT_CLIENTS := .venvs/text_clients
DIFY := .venvs/dify
LITELLM := .venvs/litellm
MILVUS := .venvs/milvus

.DEFAULT_GOAL := help
.PHONY: help venv dev up down check test test-stack stack bench lock triton hf kserve text-clients litellm milvus dify

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(VENV)/zoo.stamp ## Install, build the sample models, start both servers, ask each model one question
	@$(BIN)/bident zoo build --all --into $(REPOSITORY)
	@$(BIN)/bident up --repo $(REPOSITORY) > /dev/null
	@$(BIN)/bident zoo check --into $(REPOSITORY)
	@$(BIN)/bident status

down: ## Stop the servers that `make up` started
	@test ! -x $(BIN)/bident || $(BIN)/bident down

check: dev ## Everything before a commit: format, lint, types, import rules, unit and meta tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest tests/unit tests/meta

test: dev ## The whole test suite
	$(BIN)/pytest

test-stack: dev stack ## Tests with what pip does not install: curl, h2load, node, docker-registry; as root on Debian
	$(BIN)/pytest tests/stack

# Debian's packages of the commands that are missing, and of those alone: others may come from elsewhere.
stack:
	@for pair in $(STACK); do command -v $${pair%:*} > /dev/null || missing="$$missing $${pair#*:}"; done; \
	test -z "$$missing" && exit 0; \
	apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing > /dev/null \
		|| { echo "make test-stack needs$$missing: install them as root" >&2; exit 1; }

STACK := curl:curl h2load:nghttp2-client node:nodejs npm:npm docker-registry:docker-registry promtool:prometheus squid:squid ip:iproute2

bench: dev ## Measure against the peers, in the same run
	$(BIN)/python -m benchmarks.run

venv: $(VENV)/zoo.stamp ## Make .venv with what the sample models need

dev: $(VENV)/dev.stamp ## Make .venv with the tools for development too

lock: dev ## Resolve the dependencies anew into requirements/*.lock
	$(BIN)/uv pip compile pyproject.toml --extra dev $(LOCKING) --upgrade --output-file requirements/dev.lock
	$(BIN)/uv pip compile pyproject.toml --extra zoo --constraint requirements/dev.lock $(LOCKING) \
		--output-file requirements/zoo.lock
	$(BIN)/uv pip compile requirements/hf.in $(LOCKING) --upgrade | grep -Ev '$(CUDA)' > requirements/hf.lock
	$(BIN)/uv pip compile requirements/kserve.in $(LOCKING) --upgrade --output-file requirements/kserve.lock
	$(BIN)/uv pip compile requirements/text_clients.in $(LOCKING) --upgrade --output-file requirements/text_clients.lock
	$(BIN)/uv pip compile requirements/litellm.in $(LOCKING) --only-binary :all: --upgrade --output-file requirements/litellm.lock
	$(BIN)/uv pip compile requirements/milvus.in $(LOCKING) --upgrade --output-file requirements/milvus.lock
	$(BIN)/uv pip compile requirements/dify.in $(subst 3.10,3.12,$(LOCKING)) --override requirements/dify.without --upgrade \
		--output-file requirements/dify.lock

LOCKING := --universal --python-version 3.10 --no-emit-index-url --no-emit-find-links \
	--custom-compile-command 'make lock' --no-annotate --quiet

# Only torch's CUDA build needs these, and pins them itself; a CPU build must not bring them along.
CUDA := ^(nvidia-|cuda-|triton=)

triton: $(TRITON)/triton.stamp ## Make .venvs/triton: a real Triton, the judge of fidelity and a peer in benchmarks

hf: $(HF)/hf.stamp ## Make .venvs/hf: torch and transformers, which the tests serve a Hugging Face model with

kserve: $(KSERVE)/kserve.stamp ## Make .venvs/kserve: KServe's own Python clients, which the tests ask the server with

text-clients: $(TEXT_CLIENTS)/text_clients.stamp ## Make .venvs/text_clients: clients of Ollama, OpenAI and Anthropic, for the tests

milvus: $(MILVUS)/milvus.stamp ## Make .venvs/milvus: Milvus Lite and its client, which examples/rag needs

litellm: $(LITELLM)/litellm.stamp ## Make .venvs/litellm: LiteLLM's proxy, which the tests put in front of both servers

dify: $(DIFY)/dify.stamp ## Make .venvs/dify: Dify's own graph engine, which the tests run exported workflows with

# Stamps: what was installed is as old as the stamp, what should be installed as old as the lock file.

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "Bident needs Python 3.10 or newer; name one with: make up PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/%.stamp: requirements/%.lock pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $<
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(TRITON)/triton.stamp: benchmarks/peers/make_triton.py
	$(PYTHON) -m benchmarks.peers.make_triton
	@touch $@

# Where pip's own settings know a CPU build of torch, it is the higher version and is taken.
$(HF)/hf.stamp: requirements/hf.lock
	$(PYTHON) -m venv $(HF)
	$(HF)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --requirement $<
	@touch $@

$(KSERVE)/kserve.stamp: requirements/kserve.lock
	$(PYTHON) -m venv $(KSERVE)
	$(KSERVE)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --requirement $<
	@touch $@

$(TEXT_CLIENTS)/text_clients.stamp: requirements/text_clients.lock
	$(PYTHON) -m venv $(TEXT_CLIENTS)
	$(TEXT_CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --requirement $<
	@touch $@

$(MILVUS)/milvus.stamp: requirements/milvus.lock
	$(PYTHON) -m venv $(MILVUS)
	$(MILVUS)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --requirement $<
	@touch $@

$(LITELLM)/litellm.stamp: requirements/litellm.lock
	$(PYTHON) -m venv $(LITELLM)
	$(LITELLM)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --requirement $<
	@touch $@

# Dify's engine runs on Python 3.12 and 3.13 alone. It comes without the document readers that it asks for.
$(DIFY)/dify.stamp: requirements/dify.lock
	@for python in $(DIFY_PYTHON) python3.13 python3.12 $(PYTHON) $(HOME)/.pyenv/versions/3.1[23]*/bin/python; do \
		"$$python" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 12), (3, 13)))' 2> /dev/null \
			&& exec "$$python" -m venv $(DIFY); \
	done; \
	echo "make dify needs Python 3.12 or 3.13; name one with: make dify DIFY_PYTHON=/path/to/python3.13" >&2; exit 1
	$(DIFY)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps --requirement $<
	@touch $@
