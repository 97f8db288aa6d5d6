# Two commands for a newcomer: `make demo` and `make test`. Everything they install stays in .venv and .venv-0.18.

PYTHON ?= python3
VENV := .venv
OLD := .venv-0.18
BIN := $(VENV)/bin
DEMO := demo
MYPY_ROOT := .mypy_root
FAST := $(BIN)/python -m pytest -m "not slow" -n auto --dist worksteal

unexport PYTHON
# Tests start xpc some hundred times: without bytecode each start compiles it anew.
unexport PYTHONDONTWRITEBYTECODE
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false
export XPC_PYTHON_TRL_0_18 = $(CURDIR)/$(OLD)/bin/python

.PHONY: help demo test test-fast check bench golden docs tables format fuzz differential soak mutants clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/ready ## compile specs/quickstart.xp, train it here with ZeRO-2 on two CPU processes, show what it learned
	@specs/quickstart/demo.sh "$(CURDIR)/$(BIN)" "$(CURDIR)/$(DEMO)"

test: $(VENV)/ready $(OLD)/ready ## every test, both targets, real training on the CPU (about 25 minutes)
	$(FAST)
	$(BIN)/python -m pytest -m slow -n 3 --dist loadfile

test-fast: $(VENV)/ready ## the tests for daily work (one to two minutes)
	$(FAST)

check: $(VENV)/ready ## linter, formatters and strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/xpc fmt --check specs
	@mkdir -p $(MYPY_ROOT)/xpc
	@for package in grammar compiler runtime; do ln -sfn ../../$$package $(MYPY_ROOT)/xpc/$$package; done
	MYPYPATH=$(MYPY_ROOT) $(BIN)/mypy -p xpc.grammar -p xpc.compiler -p xpc.runtime

bench: $(VENV)/ready ## start-up and throughput, as medians of whole processes
	$(BIN)/python tests/bench.py

docs: $(VENV)/ready ## write docs/reference.md, docs/rules.md, the type of the paths of settings and the index of the rules anew
	$(BIN)/python -m xpc.compiler.language.build
	$(BIN)/python -m xpc.compiler.rules.build
	$(BIN)/python -m xpc.compiler.explain.reference docs/reference.md
	$(BIN)/python tests/evidence/evidence.py
	$(BIN)/python tests/evidence/rules_page.py docs/rules.md

golden: $(VENV)/ready ## write the golden files anew; read the difference before committing it
	$(BIN)/python tests/golden_bundles.py
	$(BIN)/python tests/golden_diagnostics.py

tables: $(VENV)/ready ## write the generated tables anew: parser, registry, targets of the default stack, names of tasks
	$(BIN)/python -m xpc.grammar.build
	$(BIN)/python -m xpc.compiler.registry.build
	$(BIN)/python compiler/stacks/generate.py trl-1.16
	$(BIN)/python compiler/stacks/harness_names.py

format: $(VENV)/ready ## format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fuzz: $(VENV)/ready ## 100,000 hostile inputs through the whole compiler
	$(BIN)/python tests/fuzz/fuzz.py --inputs 100000 --jobs 2

differential: $(VENV)/ready $(OLD)/ready ## 20,000 random specs against the libraries, 600 of them for a step; writes differential/
	$(BIN)/python tests/proof/differential.py --accepted 20000 --steps 600 --out differential

soak: $(VENV)/ready $(OLD)/ready ## fresh random draws for MINUTES=60: faults, damage, properties, fuzz, differential; writes soak/
	$(BIN)/python tests/soak.py --minutes $(or $(MINUTES),60) --out soak

mutants: $(VENV)/ready ## breaks the source in PLACES=400 random places and runs the tests that cover each; goes on where it was stopped
	$(BIN)/python tests/mutation/mutants.py --places $(or $(PLACES),400) --seed $(or $(SEED),1) --out mutants

clean: ## remove what the targets above made
	rm -rf $(VENV) $(OLD) $(DEMO) $(MYPY_ROOT) build *.egg-info specs/quickstart/model

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[train,demo,dev]'
	@touch $@

# The older stack is installed from the requirements.txt of a bundle that is compiled for it.
$(OLD)/ready: tests/support/stack-trl-0.18.xp compiler/stacks/trl-0.18/policy.toml | $(VENV)/ready
	$(PYTHON) -m venv $(OLD)
	$(BIN)/xpc compile tests/support/stack-trl-0.18.xp -o $(OLD)/stack.bundle --format concise
	$(OLD)/bin/python -m pip install --quiet --disable-pip-version-check -r $(OLD)/stack.bundle/requirements.txt
	@touch $@
