# Commands of developers and CI. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help explore test test-all laws test-torch coverage check format golden bench samples lock clean fuzz mutate docs wheel native release-check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# .base: packages of the explorer; .dev: also the packages of the tests.
$(VENV)/.base: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.base requirements-dev.lock
	$(BIN)/python -m pip install --quiet -r requirements-dev.lock
	@touch $@

explore: $(VENV)/.base ## open the explorer on a sample (needs only Python ≥ 3.11)
	$(BIN)/tmmu explore $(FILES)

test: check ## the gate: linters, type checker and every test that is not slow
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: check ## the gate and the slow tests: properties, browser flows, processes, exhaustion, wheels
	$(BIN)/python -m pytest -n 2 --dist worksteal
	TMMU_NATIVE=0 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" tests/planners

laws: $(VENV)/.dev ## every property test on new examples, RUNS times (make test repeats the same examples)
	for run in $$(seq $(or $(RUNS),3)); do $(BIN)/python -m pytest -n 3 -m hypothesis --hypothesis-profile drawn || exit 1; done

# PyTorch is an optional extra of 200 MB and more, in an environment of its own.
.venv-torch/.made: requirements-dev.lock
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet -r requirements-dev.lock
	.venv-torch/bin/python -m pip install --quiet torch==2.13.0
	.venv-torch/bin/python -c "import torch"
	@touch $@

test-torch: .venv-torch/.made ## the tests that need PyTorch; fails if PyTorch cannot be installed
	.venv-torch/bin/python -m pytest -n 2 --dist worksteal -m "torch and not slow"

# Processes that the tests start are measured too ([tool.coverage.run] in pyproject.toml).
coverage: $(VENV)/.dev .venv-torch/.made ## branch coverage of make test and make test-torch, for docs/house.md
	$(BIN)/python -m pip install --quiet coverage==7.17.4
	.venv-torch/bin/python -m pip install --quiet coverage==7.17.4
	$(BIN)/python -m coverage run -m pytest -n 2 --dist worksteal -m "not slow"
	.venv-torch/bin/python -m coverage run -m pytest -n 2 --dist worksteal -m "torch and not slow"
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage json --quiet -o .coverage.json
	$(BIN)/python -m benchmarks.house

check: $(VENV)/.dev ## format, lint and types, of Python and of the canvas
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/oxlint --deny-warnings app

format: $(VENV)/.dev ## run the formatter and the fixes of the linter
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

fuzz: $(VENV)/.dev ## damaged files for every reader, SECONDS each (failures: .fuzz/)
	$(BIN)/python -m tests.tools.fuzz.run --seconds $(or $(SECONDS),600) --seed $(or $(SEED),0)

mutate: $(VENV)/.dev ## count how many of MUTANTS random changes of the core the tests detect (results: .mutation/)
	$(BIN)/python -m tests.tools.mutate --mutants $(or $(MUTANTS),300) --seed $(or $(SEED),0)

golden: $(VENV)/.dev ## write the golden traces, searches, planner results and refusals (review the difference like code)
	$(BIN)/python -m tests.support.golden
	$(BIN)/python -m tests.support.searches
	$(BIN)/python -m tests.support.planner_table
	$(BIN)/python -m tests.support.refusal_table

# Other packers need other versions of some packages. Without them, their columns are empty.
.venv-peers/.made:
	$(PYTHON) -m venv .venv-peers
	-.venv-peers/bin/python -m pip install --quiet "ortools>=9.12" "ethos-u-vela>=4.2"
	@touch $@

bench: $(VENV)/.dev .venv-peers/.made .venv-torch/.made ## measure, also other packers, and write docs/measured/benchmarks.md, docs/measured/models.md and docs/measured/fit.md
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.models
	.venv-torch/bin/python -m benchmarks.joint .venv-torch/joint
	$(BIN)/python -m benchmarks.fit .venv-torch/joint

docs: $(VENV)/.dev ## build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

wheel: $(VENV)/.dev ## build the wheel into dist/
	$(BIN)/python -m hatchling build -t wheel

release-check: ## build and check the distributions, the SBOM and the changelog; nothing is uploaded
	PYTHON="$(PYTHON)" .ci/release-check

native: $(VENV)/.dev ## compile the native libraries (needs gcc; gcc-aarch64-linux-gnu for aarch64)
	$(BIN)/python -m tests.tools.native_library

samples: $(VENV)/.dev ## rebuild the sample graphs
	$(BIN)/python -m sample_graphs.make

lock: ## update the pinned dependencies (needs uv)
	uv pip compile --universal --python-version 3.11 --extra dev pyproject.toml -o requirements-dev.lock --no-header --no-annotate --upgrade
	uv pip compile --universal --python-version 3.11 --extra app -c requirements-dev.lock pyproject.toml -o requirements.lock --no-header --no-annotate

clean: ## remove the environment and every cache
	rm -rf $(VENV) .venv-torch .venv-release .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site *.egg-info
