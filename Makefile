# Remuda's commands. `make` alone prints help. Every target does its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Trust whom the machine trusts: many companies' networks have a certificate authority of their own.
export UV_SYSTEM_CERTS := true

# Python keeps what it compiled, also where the machine says that it shall not (many containers do): the tests start
# some thousand processes of ours, and each would compile all that it imports anew, for a second of CPU.
unexport PYTHONDONTWRITEBYTECODE

UV = $(shell tools/uv.sh)
RUN = $(UV) run --no-sync
PYTEST = $(RUN) pytest
# So many files of tests at once. Where tests mostly wait for processes, more of them than there are cores.
AT_ONCE = -n 2 --dist loadfile
CONTRACT_AT_ONCE = -n 3 --dist loadfile
E2E_AT_ONCE = -n 3 --dist loadfile --no-loadscope-reorder # tests/e2e/conftest.py has the longest first
# Where the tests of a file share nothing, whoever is done takes from the others: the simulator has four files, not alike.
EVENLY = -n 2 --dist worksteal
DEMO ?=
SCENARIO ?= keep-n
SEED ?= 1
N ?= 500
AGENT ?= build/remuda-agent
PLATFORM ?= this
PYTHON ?=

##@ The two commands

demo: .venv/ready ## A fleet on this machine: jobs, a roll and three kills in the middle of them; says what became of each job
	@$(RUN) remuda demo $(DEMO)

test: .venv/ready ## Run every test (what CI runs)
	@$(ASSETS) # before two of them ask for it at once
	@$(MAKE) -j2 $(TOGETHER) e2e others # end-to-end tests mostly wait: they and all others take as long as they alone
	@tools/control-plane/assets.sh --describe
	@echo "make test: all passed: check (lint, types, unit, tidy, generated files), contract, sim, e2e"

##@ While you work

check: lint types unit ## Lint, types, unit and tidy tests, generated files fresh: three minutes

fmt: .venv/ready ## Format the code and mend what can be mended by itself
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

lint: .venv/ready ## ruff, import contracts, unused dependencies, migrations, spelling
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) lint-imports
	$(RUN) deptry src
	$(RUN) python tools/lint_migrations.py
	$(RUN) codespell
	$(UV) lock --check

types: .venv/ready ## mypy, strict
	$(RUN) mypy

unit: .venv/ready ## Decisions, tables, properties, and the tidy test
	$(PYTEST) $(AT_ONCE) tests/unit tests/tidy

contract: .venv/ready ## One suite per port, on the fake and on the real thing
	@$(ASSETS); $(PYTEST) $(CONTRACT_AT_ONCE) tests/contract

sim: .venv/ready ## The simulator: scenarios, golden traces, seeds
	$(PYTEST) $(EVENLY) tests/sim

e2e: .venv/ready ## As a user runs it: the real command line, kubectl, kill -9
	@$(ASSETS); $(PYTEST) $(E2E_AT_ONCE) tests/e2e

others: # all but e2e, one after the other: what fails soonest comes first
	@$(MAKE) check
	@$(MAKE) contract
	@$(MAKE) sim

sim-demo: .venv/ready ## Run SCENARIO of the simulator with SEED and say what happened
	$(RUN) remuda sim --scenario $(SCENARIO) --seed $(SEED)

sweep: .venv/ready ## Run N seeds of SCENARIO and print the first bad one
	$(RUN) remuda sim --scenario $(SCENARIO) --seed $(SEED) --seeds $(N)

mutations: .venv/ready ## Take each of the operator's guards out and see its test fail (MUTANTS="roll_cap …" for some)
	@$(ASSETS); $(RUN) python tools/mutations.py $(MUTANTS)

kills: .venv/ready ## Kill a whole fleet at twenty moments and run a hundred jobs on one: ten minutes (SEED=n for other moments)
	REMUDA_KILLS=20 REMUDA_KILLS_SEED=$(SEED) REMUDA_RUNS=100 $(PYTEST) -s tests/e2e/test_up_kills.py tests/e2e/test_up_runs.py

bench: .venv/ready ## Measure, as ratios against a floor or a peer in the same run
	@$(ASSETS); $(RUN) python -m tests.bench

##@ Made things

generate: .venv/ready ## Write CRDs, reference pages and other generated files anew
	$(RUN) python tools/generate.py

agent-pex: .venv/ready ## Build the agent as one file, AGENT, for PLATFORM (this, macos-arm64); PYTHON=1 puts a Python into it
	$(RUN) python tools/build_agent.py --into $(AGENT) --platform $(PLATFORM) $(if $(PYTHON),--with-python)

control-plane: ## Build the pinned real control plane for tests (ten minutes once) and say where it is
	@echo "export KUBEBUILDER_ASSETS=$$(tools/control-plane/build.sh)"

# What runs at once is printed one after the other, where make can do that (macOS has an old one).
TOGETHER = $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

# KUBEBUILDER_ASSETS as the caller set it, else what is built here. Under CI=true a failed build fails the target.
ASSETS = KUBEBUILDER_ASSETS="$$(tools/control-plane/assets.sh)"; export KUBEBUILDER_ASSETS

.venv/ready: pyproject.toml uv.lock
	@$(UV) sync --locked --all-extras --quiet
	@touch $@

help: ## Print this help
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo

.PHONY: demo sim-demo test check fmt lint types unit contract sim e2e others sweep mutations kills bench generate agent-pex control-plane help
