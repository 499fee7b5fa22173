# `make` lists the targets. Every target that needs the project's environment goes through
# scripts/env.sh, so that a machine without uv, or without anything, is served too.
SHELL := bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BENCH_ARGS ?=
AGENT ?= dreamerv2
ARGS ?=
EXPERIMENT ?= catch
LEARN_ARGS ?=
TEST_ARGS ?=

# In the environment as the `sync` target left it.
RUN := bash scripts/env.sh --no-sync --
# (A source archive is no git checkout.)
SHELL_FILES := { git ls-files -z --cached --others --exclude-standard -- '*.sh' .ci/run 2>/dev/null || find scripts .ci -name '*.sh' -print0 -o -name run -print0; }
# The environment-independent requirements: hashes, and no addresses of package indexes.
EXPORT := uv export --quiet --all-extras --no-dev --no-emit-project --no-header --format requirements-txt

.PHONY: help bench bench-all atari100k collect learn-check sync test lint format lock lock-check check docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  BENCH_ARGS="--preset small" goes to the sweep, TEST_ARGS="-k rssm" to pytest.'

bench: ## Compute sweep over the core models (bash scripts/benchmark_models.sh)
	@bash scripts/benchmark_models.sh $(BENCH_ARGS)

bench-all: ## The same with the heavy models
	@bash scripts/benchmark_models.sh --all $(BENCH_ARGS)

atari100k: sync ## Train and benchmark agents on Atari 100k (ARGS="--games Pong --num-seeds 2"); continues after a stop
	@$(RUN) synora atari-100k --benchmark $(ARGS)

collect: sync ## Put results together into tables, plots and a page (ARGS="results/atari_100k --strict")
	@$(RUN) synora collect $(ARGS)

learn-check: sync ## Prove that AGENT learns EXPERIMENT (hours; bar and figures: docs/learning)
	@$(RUN) python benchmarks/learn_check.py --agent $(AGENT) --experiment $(EXPERIMENT) $(LEARN_ARGS)

sync: ## Install everything a developer needs into .venv (finds or installs uv)
	@bash scripts/env.sh --all-extras

test: sync ## Run the tests, in parallel
	@$(RUN) pytest -n auto $(TEST_ARGS)

lint: sync ## Check style, types, spelling and shell scripts
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy synora scripts
	@$(RUN) codespell
	@command -v shellcheck >/dev/null || { echo 'shellcheck is missing: apt-get install shellcheck' >&2; exit 1; }
	@$(SHELL_FILES) | xargs -0 shellcheck -x

format: sync ## Rewrite the code in the common style
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .

lock: sync ## Write requirements.lock anew
	@$(RUN) $(EXPORT) -o requirements.lock

lock-check: sync ## Check that requirements.lock matches pyproject.toml
	@set -euo pipefail; fresh=$$(mktemp); trap 'rm -f "$$fresh"' EXIT; \
	$(RUN) $(EXPORT) > "$$fresh"; \
	diff -u requirements.lock "$$fresh" || { echo 'requirements.lock is out of date: make lock' >&2; exit 1; }

check: lint lock-check docs test ## Everything CI checks

docs: sync ## Build the documentation into site/
	@$(RUN) mkdocs build --strict

clean: ## Remove caches and built files (never .venv, results or checkpoints)
	@rm -rf build dist site .mypy_cache .pytest_cache .ruff_cache .coverage
	@find . -name .venv -prune -o -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
