# Two commands for a newcomer: `make demo` and `make test`. Everything they install stays in .venv and in .venv-*, one
# environment a stack: .venv has the default's, .venv-0.18 that of the stack trl-0.18; .venv-trackers has
# one more for each, .venv-vision has torchvision, and .venv-torchao has torchao.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEFAULT := $(shell sed -n 's/^DEFAULT = "\(.*\)"/\1/p' compiler/stacks/__init__.py)
STACKS := $(notdir $(patsubst %/policy.toml,%,$(wildcard compiler/stacks/*/policy.toml)))
OTHERS := $(patsubst trl-%,$(VENV)-%,$(filter-out $(DEFAULT),$(STACKS)))
DEMO := demo
MYPY_ROOT := .mypy_root
# What the plugin of the language server imports is for its slow tests alone.
FAST := $(BIN)/python -m pytest -m "not slow" -p no:pytest-lsp -n auto --dist worksteal
# Each policy.toml in its stack's table, where there is one by now.
FOLD = @for table in compiler/stacks/*/stack.json; do \
  $(BIN)/python compiler/stacks/generate.py "$$(basename "$$(dirname "$$table")")" --fold || exit 1; done

unexport PYTHON
# Tests start xpc some hundred times: without bytecode each start compiles it anew.
unexport PYTHONDONTWRITEBYTECODE
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help demo test rehearse slow test-fast check bench bench-run golden docs site tables format gpu fuzz differential soak mutants clean resolve

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/demo ## compile specs/quickstart.xp, train it here with ZeRO-2 on two CPU processes, show what it learned
	@specs/quickstart/demo.sh "$(CURDIR)/$(BIN)" "$(CURDIR)/$(DEMO)"

test: $(VENV)/ready $(OTHERS:=/ready) $(VENV)-vision/ready $(VENV)-torchao/ready ## every test but those of make slow, every stack, real training on the CPU (under half an hour)
	$(FAST)
	$(BIN)/python -m pytest -m slow -n 3 --dist loadfile

rehearse: $(VENV)/ready $(OTHERS:=/ready) ## rehearse each recipe of specs/ on its own stack and on the default (an hour); docs/recipes.md shows the results
	$(BIN)/python tests/recipes/rehearse.py tests/recipes/rehearsals.json

slow: $(VENV)/ready $(OTHERS:=/ready) $(VENV)-trackers/ready ## the tests that take minutes each, which make test leaves out
	$(BIN)/python -m pytest -m nightly -n 2 --dist loadfile

test-fast: $(VENV)/ready ## the tests for daily work (about a minute)
	$(FAST)

check: $(VENV)/ready ## linter, formatters and strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/xpc fmt --check specs
	@mkdir -p $(MYPY_ROOT)/xpc
	@for package in grammar compiler runtime; do ln -sfn ../../$$package $(MYPY_ROOT)/xpc/$$package; done
	MYPYPATH=$(MYPY_ROOT) $(BIN)/mypy -p xpc.grammar -p xpc.compiler -p xpc.runtime

TRL_PARSERS = 0.12 0.14 0.22

.PHONY: oracles oracles-trl
oracles: $(VENV)-axolotl/ready $(VENV)-llamafactory/ready $(VENV)-torchtune/ready oracles-trl ## ask axolotl, LLaMA-Factory, torchtune and older parsers of TRL anew what they do with ../shared/published, their own files and rows of every format
	$(VENV)-axolotl/bin/python tests/importing/oracles/ask_names.py compiler/importing/axolotl/names.txt
	$(VENV)-axolotl/bin/python tests/importing/oracles/ask_axolotl.py ../shared/published tests/importing/oracles/axolotl.jsonl
	$(VENV)-llamafactory/bin/python tests/importing/oracles/ask_llamafactory.py ../shared/published \
		tests/importing/oracles/llamafactory.jsonl
	$(VENV)-llamafactory/bin/python tests/importing/oracles/ask_templates.py \
		compiler/importing/llamafactory/templates.jsonl tests/importing/oracles/llamafactory_templates.jsonl
	$(VENV)-axolotl/bin/python tests/importing/oracles/ask_rows.py axolotl tests/importing/oracles/axolotl_rows.jsonl
	$(VENV)-llamafactory/bin/python tests/importing/oracles/ask_rows.py llamafactory \
		tests/importing/oracles/llamafactory_rows.jsonl
	$(VENV)-axolotl/bin/python tests/importing/oracles/ask_irrelevant.py axolotl tests/importing/oracles/axolotl_irrelevant.jsonl
	$(VENV)-llamafactory/bin/python tests/importing/oracles/ask_irrelevant.py llamafactory \
		tests/importing/oracles/llamafactory_irrelevant.jsonl
	$(VENV)-torchtune/bin/python tests/importing/oracles/ask_torchtune.py tests/importing/oracles/torchtune.jsonl

oracles-trl: $(VENV)-0.18/ready $(TRL_PARSERS:%=$(VENV)-trl-%/ready)
	for version in $(TRL_PARSERS); do \
		PYTHONPATH=$(VENV)-trl-$$version $(VENV)-0.18/bin/python tests/importing/oracles/ask_trl_versions.py $$version || exit 1; \
	done > tests/importing/oracles/trl_versions.jsonl

# The configuration classes of a release with the transformers of its time, over the torch of the oldest stack.
$(VENV)-trl-%/ready: tests/importing/oracles/trl-%.txt
	$(PYTHON) -m pip install --quiet --no-deps --target $(@D) -r $<
	touch $@

$(VENV)-torchtune/ready: tests/importing/oracles/torchtune.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet -r $<
	touch $@

$(VENV)-axolotl/ready: tests/importing/oracles/axolotl.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet -r $<
	$(@D)/bin/pip install --quiet --no-deps axolotl==0.18.0
	touch $@

# torchaudio and torchvision of PyPI do not fit a torch for the CPU: transformers stops importing beside them.
$(VENV)-llamafactory/ready: tests/importing/oracles/llamafactory.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet -r $<
	$(@D)/bin/pip uninstall --quiet --yes torchaudio torchvision
	echo '__version__ = "0"' > $$(echo $(@D)/lib/python*/site-packages)/torchaudio.py
	touch $@

bench-run: $(VENV)/ready ## a bundle beside the plain TRL script: time to the first step, to the end, losses
	$(BIN)/python tests/bench_run.py

bench: $(VENV)/ready ## start-up and throughput as medians of whole processes, and the preparation of rows next to trl's
	$(BIN)/python tests/bench.py
	$(BIN)/python tests/bench_prepare.py

docs: $(VENV)/ready ## write the generated pages and pictures of docs/, the type of the paths of settings and the index of the rules anew
	$(FOLD)
	$(BIN)/python -m xpc.compiler.language.build
	$(BIN)/python -m xpc.compiler.rules.core.build
	$(BIN)/python -m xpc.compiler.explain.reference docs
	$(BIN)/python tests/evidence/evidence.py
	$(BIN)/python tests/evidence/rules_page.py docs
	$(BIN)/python tests/evidence/reports.py docs/reports.md
	$(BIN)/python -m xpc.compiler.explain.stack_pages docs
	$(BIN)/python tests/recipes/recipes_page.py docs/recipes.md
	$(BIN)/python tests/importing/keys_page.py docs/import-keys.md
	$(BIN)/python editors/textmate.py
	$(BIN)/python docs/pictures.py

site: $(VENV)/ready ## the pages of docs/ as a site, in site/; a broken link fails it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[site]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

golden: $(VENV)/ready ## write the golden files anew; read the difference before committing it
	$(FOLD)
	$(BIN)/python -m xpc.compiler.language.build
	$(BIN)/python -m xpc.compiler.rules.core.build
	$(BIN)/python tests/golden_bundles.py
	$(BIN)/python tests/golden_diagnostics.py

tables: $(VENV)/ready ## write the generated tables anew: parser, registry, the default stack, names of tasks
	$(BIN)/python -m xpc.grammar.build
	$(BIN)/python -m xpc.compiler.registry.build
	$(BIN)/python compiler/stacks/generate.py $(DEFAULT)
	$(BIN)/python compiler/stacks/harness_names.py

.PHONY: coefficients
coefficients: $(VENV)/ready $(OTHERS:=/ready) ## measure what autograd keeps in a layer of each model family on each stack, for xpc plan (FAMILIES=qwen3, STACKS=trl-0.24 for some)
	@mkdir -p $(MYPY_ROOT)/xpc
	@for package in grammar compiler runtime; do ln -sfn ../../$$package $(MYPY_ROOT)/xpc/$$package; done
	for stack in $(STACKS); do \
		env=$(VENV)$${stack#trl}; [ $$stack = $(DEFAULT) ] && env=$(VENV); \
		PYTHONPATH=tests/plan:$(MYPY_ROOT) $$env/bin/python tests/plan/write_coefficients.py $$stack $(FAMILIES) || exit 1; \
	done

.PHONY: modules
modules: $(VENV)/ready $(OTHERS:=/ready) ## write the modules of each family and what adapters they can have, with the libraries of each stack (STACKS=trl-0.24 for some)
	for stack in $(STACKS); do \
		env=$(VENV)$${stack#trl}; [ $$stack = $(DEFAULT) ] && env=$(VENV); \
		$$env/bin/python tests/stacks/write_modules.py $$stack || exit 1; \
	done

format: $(VENV)/ready ## format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

gpu: $(VENV)/ready ## what only a GPU can show, in pieces of at most 8 minutes; goes on where it was stopped; writes gpu-readings/
	$(BIN)/python tests/gpu/campaign.py --out gpu-readings

fuzz: $(VENV)/ready ## 100,000 hostile inputs through the whole compiler
	$(BIN)/python tests/fuzz/fuzz.py --inputs 100000 --jobs 2

differential: $(VENV)/ready $(OTHERS:=/ready) ## 20,000 random specs against the libraries, 600 of them for a step; writes differential/
	$(BIN)/python tests/proof/differential/differential.py --accepted 20000 --steps 600 --out differential

soak: $(VENV)/ready $(OTHERS:=/ready) ## fresh random draws for MINUTES=60: faults, damage, properties, fuzz, differential; writes soak/
	$(BIN)/python tests/soak.py --minutes $(or $(MINUTES),60) --out soak

resolve: $(VENV)/ready ## does every emitted set of requirements have a solution? writes docs/requirements.md; asks PyPI
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python tests/resolve.py

mutants: $(VENV)/ready ## breaks PLACES=400 random lines, with SINCE=10.days of files changed since then, and runs the tests that cover each; goes on where it was stopped
	$(BIN)/python tests/mutation/mutants.py --places $(or $(PLACES),400) --seed $(or $(SEED),1) $(if $(SINCE),--since $(SINCE)) --out mutants

clean: ## remove what the targets above made
	rm -rf $(VENV) $(OTHERS) $(VENV)-trackers $(VENV)-vision $(VENV)-torchao $(DEMO) $(MYPY_ROOT) build site *.egg-info specs/quickstart/model

# What the demo needs, without the packages of the tests.
$(VENV)/demo: pyproject.toml
	@test -e $(VENV)/ready || { $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[train]'; }
	@touch $@

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[train,dev]'
	@touch $@

# Another stack is installed from the requirements.txt of a bundle that is compiled for it. One that is only a policy yet
# gets its table first.
$(VENV)-%/ready: tests/support/stack.xp compiler/stacks/trl-%/policy.toml | $(VENV)/ready
	$(PYTHON) -m venv $(@D)
	test -e compiler/stacks/trl-$*/stack.json || { \
	  $(BIN)/python compiler/stacks/generate.py trl-$* --pins > $(@D)/pins.txt && \
	  $(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $(@D)/pins.txt && \
	  $(@D)/bin/python compiler/stacks/generate.py trl-$*; }
	sed 's/^target .*/target trl-$*/' tests/support/stack.xp > $(@D)/stack.xp
	$(BIN)/xpc compile $(@D)/stack.xp -o $(@D)/stack.bundle --format concise
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $(@D)/stack.bundle/requirements.txt
	@touch $@

# Folders, not environments: tests of images put one on PYTHONPATH (tests/support/tiny_vision.py), tests of fp8 the other
# (tests/support/float8.py).
$(VENV)-vision/ready: compiler/stacks/$(DEFAULT)/policy.toml | $(VENV)/ready
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D) "$$(sed -n 's/^\(torchvision\) = "\(.*\)"/\1==\2/p' $<)"
	@touch $@

$(VENV)-torchao/ready: compiler/stacks/$(DEFAULT)/policy.toml | $(VENV)/ready
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D) "$$(sed -n 's/^\(torchao\) = "\(.*\)"/\1==\2/p' $<)"
	@touch $@

# MLflow, SwanLab and ClearML need other versions of protobuf and pyarrow than a stack's environment has. So each stack
# has another environment for them, which contains only what they need and takes the rest from the stack's.
$(VENV)-trackers/ready: $(wildcard compiler/stacks/*/policy.toml) | $(VENV)/ready $(OTHERS:=/ready)
	set -e; for stack in $(STACKS); do \
	  place=$(@D)/$$stack; base=$(VENV)$${stack#trl}; [ $$stack != $(DEFAULT) ] || base=$(VENV); \
	  $(PYTHON) -m venv $$place; \
	  packages=$$($$place/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	  from=$$($$base/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	  echo "import site; site.addsitedir('$$from')" > "$$packages/stack.pth"; \
	  $(BIN)/python compiler/stacks/generate.py $$stack --pins > $$place/pins.txt; \
	  $$place/bin/python -m pip install --quiet --disable-pip-version-check -c $$place/pins.txt mlflow swanlab clearml; \
	done
	@touch $@
