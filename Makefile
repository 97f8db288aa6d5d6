# Start with `make demo` and `make test`. They install packages only into .venv and .venv-*. Each stack (pinned versions of
# the training libraries) has an environment: the default stack .venv, the stack trl-0.18 .venv-0.18, and so on.
# .venv-trackers has another environment for each stack, .venv-vision has torchvision, and .venv-torchao has torchao.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEFAULT := $(shell sed -n 's/^DEFAULT = "\(.*\)"/\1/p' compiler/stacks/__init__.py)
STACKS := $(notdir $(patsubst %/policy.toml,%,$(wildcard compiler/stacks/*/policy.toml)))
OTHERS := $(patsubst trl-%,$(VENV)-%,$(filter-out $(DEFAULT),$(STACKS)))
DEMO := demo
MYPY_ROOT := .mypy_root
# Only slow tests need the pytest plugin for the language server, so the fast tests do not import it.
FAST := $(BIN)/python -m pytest -m "not slow" -p no:pytest-lsp -n auto --dist worksteal
# Copy each policy.toml into its stack's table (stack.json). A new stack has no table yet, and is skipped.
FOLD = @for table in compiler/stacks/*/stack.json; do \
  $(BIN)/python compiler/stacks/generate.py "$$(basename "$$(dirname "$$table")")" --fold || exit 1; done

unexport PYTHON
# Tests start xpc several hundred times. Without stored bytecode, Python would compile xpc at every start.
unexport PYTHONDONTWRITEBYTECODE
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help demo test rehearse slow test-fast check bench bench-run golden docs site tables format gpu fuzz differential soak mutants clean resolve

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/demo ## compile specs/quickstart.xp, train it on this machine with ZeRO-2 in two CPU processes, and show what it learned
	@specs/quickstart/demo.sh "$(CURDIR)/$(BIN)" "$(CURDIR)/$(DEMO)"

test: $(VENV)/ready $(OTHERS:=/ready) $(VENV)-vision/ready $(VENV)-torchao/ready ## run all tests except the tests of `make slow`: every stack, with real training on the CPU (less than half an hour)
	$(FAST)
	$(BIN)/python -m pytest -m slow -n 3 --dist loadfile

rehearse: $(VENV)/ready $(OTHERS:=/ready) ## rehearse each recipe of specs/ on its own stack and on the default stack (an hour); docs/recipes.md shows the results
	$(BIN)/python tests/recipes/rehearse.py tests/recipes/rehearsals.json

slow: $(VENV)/ready $(OTHERS:=/ready) $(VENV)-trackers/ready ## run the tests that take minutes each; `make test` leaves them out
	$(BIN)/python -m pytest -m nightly -n 2 --dist loadfile

test-fast: $(VENV)/ready ## run the tests for daily work (about a minute)
	$(FAST)

check: $(VENV)/ready ## run the linter, the formatters and the strict type check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/xpc fmt --check specs
	@mkdir -p $(MYPY_ROOT)/xpc
	@for package in grammar compiler runtime; do ln -sfn ../../$$package $(MYPY_ROOT)/xpc/$$package; done
	MYPYPATH=$(MYPY_ROOT) $(BIN)/mypy -p xpc.grammar -p xpc.compiler -p xpc.runtime

TRL_PARSERS = 0.12 0.14 0.22
# axolotl 0.19 over the torch of the default stack; .venv-axolotl has axolotl 0.18.
AXOLOTL = PYTHONPATH=$(CURDIR)/$(VENV)-axolotl-0.19 $(BIN)/python

PUBLISHED = $(or $(XPC_PUBLISHED),../shared/published)

.PHONY: oracles oracles-trl
oracles: $(VENV)-axolotl/ready $(VENV)-axolotl-0.19/ready $(VENV)-llamafactory/ready $(VENV)-torchtune/ready oracles-trl ## run axolotl, LLaMA-Factory, torchtune and older TRL parsers on published configurations (XPC_PUBLISHED, or ../shared/published), their own files and rows of every format; record their results for the tests of `xpc import`
	$(AXOLOTL) tests/importing/oracles/ask_names.py compiler/importing/axolotl/names.txt
	$(VENV)-axolotl/bin/python tests/importing/oracles/ask_axolotl.py $(PUBLISHED) tests/importing/oracles/axolotl.jsonl
	$(AXOLOTL) tests/importing/oracles/ask_axolotl.py $(PUBLISHED) tests/importing/oracles/axolotl-0.19.jsonl
	$(VENV)-llamafactory/bin/python tests/importing/oracles/ask_llamafactory.py $(PUBLISHED) \
		tests/importing/oracles/llamafactory.jsonl
	$(VENV)-llamafactory/bin/python tests/importing/oracles/ask_templates.py \
		compiler/importing/llamafactory/templates.jsonl tests/importing/oracles/llamafactory_templates.jsonl
	$(VENV)-axolotl/bin/python tests/importing/oracles/ask_rows.py axolotl tests/importing/oracles/axolotl_rows.jsonl
	$(AXOLOTL) tests/importing/oracles/ask_rows.py axolotl tests/importing/oracles/axolotl-0.19_rows.jsonl
	$(VENV)-llamafactory/bin/python tests/importing/oracles/ask_rows.py llamafactory \
		tests/importing/oracles/llamafactory_rows.jsonl
	$(VENV)-axolotl/bin/python tests/importing/oracles/ask_irrelevant.py axolotl tests/importing/oracles/axolotl_irrelevant.jsonl
	$(AXOLOTL) tests/importing/oracles/ask_irrelevant.py axolotl tests/importing/oracles/axolotl-0.19_irrelevant.jsonl
	$(VENV)-llamafactory/bin/python tests/importing/oracles/ask_irrelevant.py llamafactory \
		tests/importing/oracles/llamafactory_irrelevant.jsonl
	$(VENV)-torchtune/bin/python tests/importing/oracles/ask_torchtune.py tests/importing/oracles/torchtune.jsonl

oracles-trl: $(VENV)/ready $(OTHERS:=/ready) $(TRL_PARSERS:%=$(VENV)-trl-%/ready)
	{ for version in $(TRL_PARSERS); do \
		PYTHONPATH=$(VENV)-trl-$$version $(VENV)-0.18/bin/python tests/importing/oracles/ask_trl_versions.py $$version || exit 1; \
	done; for stack in $(STACKS); do \
		env=$(VENV)$${stack#trl}; [ $$stack = $(DEFAULT) ] && env=$(VENV); \
		$$env/bin/python tests/importing/oracles/ask_trl_versions.py $${stack#trl-} || exit 1; \
	done; } > tests/importing/oracles/trl_versions.jsonl

$(VENV)-axolotl-0.19/ready: tests/importing/oracles/axolotl-0.19.txt | $(VENV)/ready
	$(PYTHON) -m pip install --quiet --no-deps --target $(@D) -r $<
	touch $@

# A folder with the configuration classes of a TRL release and a transformers of the same time. It is used together with
# the torch of the oldest stack.
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

# PyPI's torchaudio and torchvision do not work with a torch for the CPU: with them, the import of transformers fails.
$(VENV)-llamafactory/ready: tests/importing/oracles/llamafactory.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet -r $<
	$(@D)/bin/pip uninstall --quiet --yes torchaudio torchvision
	echo '__version__ = "0"' > $$(echo $(@D)/lib/python*/site-packages)/torchaudio.py
	touch $@

bench-run: $(VENV)/ready ## compare a bundle with a plain TRL script: time to the first step, time to the end, and losses
	$(BIN)/python tests/bench_run.py

bench: $(VENV)/ready ## measure start-up time and throughput (medians over processes), and the preparation of rows compared with TRL
	$(BIN)/python tests/bench.py
	$(BIN)/python tests/bench_prepare.py

docs: $(VENV)/ready ## regenerate the generated pages and pictures of docs/, the types of setting paths, and the index of the rules
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

site: $(VENV)/ready ## build the pages of docs/ as a website in site/; a broken link is an error
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[site]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

golden: $(VENV)/ready ## regenerate the golden files; read the difference before you commit it
	$(FOLD)
	$(BIN)/python -m xpc.compiler.language.build
	$(BIN)/python -m xpc.compiler.rules.core.build
	$(BIN)/python tests/golden_bundles.py
	$(BIN)/python tests/golden_diagnostics.py

tables: $(VENV)/ready ## regenerate the tables: parser, registry, the default stack, names of evaluation tasks
	$(BIN)/python -m xpc.grammar.build
	$(BIN)/python -m xpc.compiler.registry.build
	$(BIN)/python compiler/stacks/generate.py $(DEFAULT)
	$(BIN)/python compiler/stacks/harness_names.py

.PHONY: coefficients
coefficients: $(VENV)/ready $(OTHERS:=/ready) ## measure the bytes that autograd saves in a layer of each model family on each stack, for `xpc plan` (to measure only some: FAMILIES=qwen3, STACKS=trl-0.24)
	@mkdir -p $(MYPY_ROOT)/xpc
	@for package in grammar compiler runtime; do ln -sfn ../../$$package $(MYPY_ROOT)/xpc/$$package; done
	for stack in $(STACKS); do \
		env=$(VENV)$${stack#trl}; [ $$stack = $(DEFAULT) ] && env=$(VENV); \
		PYTHONPATH=tests/plan:$(MYPY_ROOT) $$env/bin/python tests/plan/write_coefficients.py $$stack $(FAMILIES) || exit 1; \
	done

.PHONY: modules
modules: $(VENV)/ready $(OTHERS:=/ready) ## list the modules of each model family, and the adapters that each module can have, with each stack's libraries (for only some: STACKS=trl-0.24)
	for stack in $(STACKS); do \
		env=$(VENV)$${stack#trl}; [ $$stack = $(DEFAULT) ] && env=$(VENV); \
		$$env/bin/python tests/stacks/write_modules.py $$stack || exit 1; \
	done

format: $(VENV)/ready ## format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

gpu: $(VENV)/ready ## make the measurements that need a GPU, in pieces of at most 8 minutes; a later call continues an interrupted one; writes gpu-readings/
	$(BIN)/python tests/gpu/campaign.py --out gpu-readings

fuzz: $(VENV)/ready ## pass 100,000 hostile inputs through the complete compiler
	$(BIN)/python tests/fuzz/fuzz.py --inputs 100000 --jobs 2

differential: $(VENV)/ready $(OTHERS:=/ready) ## try 20,000 random specs in the libraries, and train a step of 600 of them; writes differential/
	$(BIN)/python tests/proof/differential/differential.py --accepted 20000 --steps 600 --out differential

soak: $(VENV)/ready $(OTHERS:=/ready) ## run the randomized tests with new seeds for MINUTES=60: faults, properties, growth rates, fuzzer, imports, differential test; writes soak/
	$(BIN)/python tests/soak.py --minutes $(or $(MINUTES),60) --out soak

resolve: $(VENV)/ready ## check with PyPI that every requirements file of a bundle can be installed; writes docs/requirements.md
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python tests/resolve.py

mutants: $(VENV)/ready ## break PLACES=400 random lines one by one, and run the fast tests that cover each line, then the slow tests of the package with the line; SINCE=10.days breaks only lines in files changed since then; a later call continues an interrupted one
	$(BIN)/python tests/mutation/mutants.py --places $(or $(PLACES),400) --seed $(or $(SEED),1) $(if $(SINCE),--since $(SINCE)) --out mutants

clean: ## remove the environments, the demo's output, the built website and other build output
	rm -rf $(VENV) $(OTHERS) $(VENV)-trackers $(VENV)-vision $(VENV)-torchao $(DEMO) $(MYPY_ROOT) build site *.egg-info specs/quickstart/model

# The packages that the demo needs, without the packages that only tests need.
$(VENV)/demo: pyproject.toml
	@test -e $(VENV)/ready || { $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[train]'; }
	@touch $@

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[train,dev]'
	@touch $@

# A stack other than the default is installed from the requirements.txt of a bundle that is compiled for the stack. For a
# new stack, which has only its policy.toml, this target first generates stack.json. At the end, files that are equal in
# several environments become hard links, where `hardlink` exists: each environment has 1.8 GB of torch and Triton.
$(VENV)-%/ready: tests/support/stack.xp compiler/stacks/trl-%/policy.toml | $(VENV)/ready
	$(PYTHON) -m venv $(@D)
	test -e compiler/stacks/trl-$*/stack.json || { \
	  $(BIN)/python compiler/stacks/generate.py trl-$* --pins > $(@D)/pins.txt && \
	  $(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $(@D)/pins.txt && \
	  $(@D)/bin/python compiler/stacks/generate.py trl-$*; }
	sed 's/^target .*/target trl-$*/' tests/support/stack.xp > $(@D)/stack.xp
	$(BIN)/xpc compile $(@D)/stack.xp -o $(@D)/stack.bundle --format concise
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $(@D)/stack.bundle/requirements.txt
	@! command -v hardlink >/dev/null || hardlink --quiet --content --minimum-size 64K $(VENV) $(@D) || true
	@touch $@

# These two are folders, not environments. Tests of images put .venv-vision on PYTHONPATH (tests/support/tiny_vision.py),
# and tests of fp8 put .venv-torchao there (tests/support/float8.py).
$(VENV)-vision/ready: compiler/stacks/$(DEFAULT)/policy.toml | $(VENV)/ready
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D) "$$(sed -n 's/^\(torchvision\) = "\(.*\)"/\1==\2/p' $<)"
	@touch $@

$(VENV)-torchao/ready: compiler/stacks/$(DEFAULT)/policy.toml | $(VENV)/ready
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D) "$$(sed -n 's/^\(torchao\) = "\(.*\)"/\1==\2/p' $<)"
	@touch $@

# MLflow, SwanLab and ClearML need other versions of protobuf and pyarrow than a stack's environment has. So each stack
# has another environment for them, which contains only the packages that they need, and takes all other packages from the
# stack's environment.
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
