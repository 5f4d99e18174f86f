# Everything a person or a machine runs. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help explore test laws test-torch check format golden bench samples lock clean fuzz mutate docs wheel native

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Two environments in one folder: what the explorer needs, and what the tests need on top.
$(VENV)/.base: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	$(BIN)/python -m app.cli.warm
	@touch $@

$(VENV)/.dev: $(VENV)/.base requirements-dev.lock
	$(BIN)/python -m pip install --quiet -r requirements-dev.lock
	@touch $@

explore: $(VENV)/.base ## open the explorer on a sample (needs nothing but Python ≥ 3.11)
	$(BIN)/tmmu explore $(FILES)

test: check ## the linter, the type checker and every test
	$(BIN)/python -m pytest -n 3 --dist worksteal

laws: $(VENV)/.dev ## every property test on examples drawn anew, RUNS times (make test draws the same each time)
	for run in $$(seq $(or $(RUNS),3)); do $(BIN)/python -m pytest -n 3 -m hypothesis --hypothesis-profile drawn || exit 1; done

# PyTorch is an optional extra of 200 MB and more, in an environment of its own; where it cannot be had, that is said.
.venv-torch/.made: requirements-dev.lock
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet -r requirements-dev.lock
	-.venv-torch/bin/python -m pip install --quiet torch==2.13.0
	@.venv-torch/bin/python -c "import torch" 2>/dev/null && touch $@ || true

test-torch: .venv-torch/.made ## the tests that need PyTorch, in an environment that has it
	@if test -f $<; then .venv-torch/bin/python -m pytest -m torch; \
	else echo "test-torch: SKIPPED, for PyTorch cannot be installed here"; fi

check: $(VENV)/.dev ## format, lint and types, of Python and of the canvas
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/oxlint --deny-warnings app

format: $(VENV)/.dev ## let the formatter and the linter mend what they can
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

fuzz: $(VENV)/.dev ## hostile files for every reader, SECONDS each (.fuzz/ keeps what was found)
	$(BIN)/python -m tests.fuzz.run --seconds $(or $(SECONDS),600) --seed $(or $(SEED),0)

mutate: $(VENV)/.dev ## break the core in MUTANTS random places, and see that a test notices (.mutation/ keeps what was found)
	$(BIN)/python -m tests.mutation.sample --mutants $(or $(MUTANTS),300) --seed $(or $(SEED),0)

golden: $(VENV)/.dev ## write the golden traces, searches, fits, refusals, verdicts, answers, what is made and what is declared anew (review the difference like code)
	$(BIN)/python -m tests.golden
	$(BIN)/python -m tests.searches
	$(BIN)/python -m tests.fits
	$(BIN)/python -m tests.planners_asked
	$(BIN)/python -m tests.refusals
	$(BIN)/python -m tests.verdicts
	$(BIN)/python -m tests.answers
	$(BIN)/python -m tests.others
	$(BIN)/python -m tests.requests
	$(BIN)/python -m tests.made
	$(BIN)/python -m tests.declared

# The peers pin other versions of what we pin, so they live apart; without them their columns stay empty.
.venv-peers/.made:
	$(PYTHON) -m venv .venv-peers
	-.venv-peers/bin/python -m pip install --quiet "ortools>=9.12" "ethos-u-vela>=4.2"
	-.venv-peers/bin/python -m pip install --quiet torch==2.13.0 transformers -r requirements.lock
	@touch $@

bench: $(VENV)/.dev .venv-peers/.made ## measure beside the peers (MINIMALLOC=FOLDER: its sources), and write docs/benchmarks.md, docs/models.md and docs/fit.md
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.models
	$(BIN)/python -m benchmarks.fit

docs: $(VENV)/.dev ## build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

wheel: $(VENV)/.dev ## build the wheel into dist/
	$(BIN)/python -m hatchling build -t wheel

native: $(VENV)/.dev ## compile the planners' loops anew (needs gcc; gcc-aarch64-linux-gnu for aarch64)
	$(BIN)/python -m tmmu_core.loops.build

samples: $(VENV)/.dev ## make the sample graphs anew
	$(BIN)/python -m sample_graphs.make

lock: ## pin the dependencies anew (needs uv)
	uv pip compile --universal --python-version 3.11 --extra dev pyproject.toml -o requirements-dev.lock --no-header --no-annotate --upgrade
	uv pip compile --universal --python-version 3.11 --extra app -c requirements-dev.lock pyproject.toml -o requirements.lock --no-header --no-annotate

clean: ## remove the environment and every cache
	rm -rf $(VENV) .venv-torch .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site *.egg-info
