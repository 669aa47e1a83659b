# Everything there is to type. `make` alone lists it.
PYTHON ?= python3
VENV ?= .venv
VENV_SAM ?= .venv-sam
VENV_API_TEST ?= .venv-api-test

# The first Python 3.13 to be found: Lambda ignores byte code that any other version made.
PYTHON313 ?= $(shell for python in python3.13 "$$(pyenv prefix "$$(pyenv versions --bare 2>/dev/null | grep '^3\.13\.[0-9]*$$' | tail -n 1)" 2>/dev/null)/bin/python3.13" python3 python; do \
	"$$python" -c 'import sys; sys.exit(sys.implementation.cache_tag != "cpython-313")' 2>/dev/null && "$$python" -c 'import sys; print(sys.executable)' && break; done)

# What the functions run on: x86_64, or arm64 (a fifth cheaper), as samconfig.toml has it unless said here; and pip's name for that.
HASH := \#
ARCH ?= $(or $(shell sed -n 's/^[^$(HASH)]*Architecture=[\\"]*\(arm64\).*/\1/p' samconfig.toml),x86_64)
PLATFORM_x86_64 = manylinux2014_x86_64
PLATFORM_arm64 = manylinux2014_aarch64

SAM_ON_PATH = $(shell sam --version >/dev/null 2>&1 && echo sam)
SAM = SAM_CLI_TELEMETRY=0 $(or $(SAM_ON_PATH),$(VENV_SAM)/bin/sam)
# `sam local` puts the function into a container, where the local stack is host.docker.internal; SAM_LOCAL=… adds options.
SAM_LOCAL ?=
LOCALLY = $(VENV)/bin/python -m local.servers.relay 9001 9003 9004 -- \
	env $(SAM) local invoke --env-vars local/sam-env.json --add-host host.docker.internal:host-gateway $(SAM_LOCAL)

.PHONY: help demo dev test test-all soak api-test fuzz bench bench-peers lint lint-lua docs validate build invoke-enqueue invoke-process invoke-status preflight deploy deploy-cache clean sam architecture python313 always
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- environments: made when missing, made again when their pinned list changes

# The lists are complete: nothing is left to resolve.
INSTALL = install --quiet --disable-pip-version-check --require-hashes --no-deps

$(VENV): $(VENV)/ready
$(VENV)/ready: requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Meanwhile needs Python 3.11 or newer; say where it is: make PYTHON=…" >&2; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip $(INSTALL) -r requirements-dev.txt
	@touch $@

$(VENV_SAM)/ready: requirements-sam.txt
	rm -rf $(VENV_SAM)
	$(PYTHON) -m venv $(VENV_SAM)
	$(VENV_SAM)/bin/python -m pip $(INSTALL) -r requirements-sam.txt
	@touch $@

$(VENV_API_TEST)/ready: requirements-api-test.txt
	rm -rf $(VENV_API_TEST)
	$(PYTHON) -m venv $(VENV_API_TEST)
	$(VENV_API_TEST)/bin/python -m pip $(INSTALL) -r requirements-api-test.txt
	@touch $@

# SAM in an environment of its own, unless there is one on PATH.
sam:
	@test -n "$(SAM_ON_PATH)" || $(MAKE) --no-print-directory $(VENV_SAM)/ready

# --- on this machine, without AWS or Docker

demo: $(VENV)/ready ## start everything, send requests, watch their data arrive by itself
	$(VENV)/bin/python -m local.demo

dev: $(VENV)/ready ## keep the same stack up and say how to try it
	$(VENV)/bin/python -m local.dev

# What to run instead of all tests: files, or any other words for pytest.
TESTS ?=

test: $(VENV)/ready ## the tests that take no more than a moment each
	$(VENV)/bin/python -m pytest -q -n auto -m "not slow" $(TESTS)

test-all: $(VENV)/ready ## every test, with coverage
	$(VENV)/bin/python -m pytest -q -n auto --cov --cov-report=term-missing $(TESTS)

SECONDS ?= 600
SEED ?=
soak: $(VENV)/ready ## everything at once, broken at random; takes SECONDS=600 and SEED=…
	SECONDS=$(SECONDS) SEED=$(SEED) $(VENV)/bin/python -m tests.soak

api-test: $(VENV)/ready $(VENV_API_TEST)/ready ## schemathesis asks the local stack, by docs/openapi.json; API_TEST="--examples 500 --seed 2"
	$(VENV)/bin/python -m local.api_test --schemathesis $(VENV_API_TEST)/bin/schemathesis $(API_TEST)

COUNT ?= 50000
fuzz: $(VENV)/ready ## COUNT=50000 requests and events of every kind against the handlers, each timed
	$(VENV)/bin/python -m tests.handlers.fuzz $(COUNT)

# Each in processes of its own; what is to be kept goes into benchmarks/results.md.
bench: $(VENV)/ready ## what it costs, each figure beside its target: some minutes, on a machine with nothing else to do
	$(VENV)/bin/python -m benchmarks.process --keep
	$(VENV)/bin/python -m benchmarks.queue --keep
	$(VENV)/bin/python -m benchmarks.enqueue --keep
	$(VENV)/bin/python -m benchmarks.cold_start --keep
	$(VENV)/bin/python -m benchmarks.memory --keep
	$(VENV)/bin/python -m benchmarks.lateness --keep

# Peers that a benchmark measures beside Meanwhile, each in an environment of its own; one that cannot be installed is skipped.
PEERS = .venv-peers
bench-peers: $(VENV)/ready ## what others take for the same work: taskiq, arq, dramatiq, BullMQ
	@for peer in taskiq arq dramatiq bullmq; do $(MAKE) -s --no-print-directory $(PEERS)/$$peer/ready || echo "$$peer was not installed"; done
	$(VENV)/bin/python -m benchmarks.peers --environments $(PEERS) $(BENCH)

# Options of a benchmark, such as BENCH="--rounds 5 --keep".
BENCH ?=

$(PEERS)/bullmq/ready: benchmarks/peers/bullmq/package-lock.json
	rm -rf $(@D) && mkdir -p $(@D)
	cp $(<D)/*.json $(@D)
	cd $(@D) && npm ci --silent --no-audit --no-fund
	@touch $@

$(PEERS)/%/ready: benchmarks/peers/%.txt
	rm -rf $(@D)
	$(VENV)/bin/python -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

lint: $(VENV)/ready lint-lua ## ruff, mypy, import-linter, luacheck
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

# No package index has luacheck; Debian and Homebrew do. What the parts define is there in the scripts.
SCRIPTS = shared/queue/scripts
PARTS = prelude lines gate wake place ends heard catch_up ring
LUACHECK = luacheck --quiet --std lua51 --max-line-length 130 --read-globals redis KEYS ARGV
DEFINED = $(shell sed -n 's/^local function \([a-z_]*\).*/\1/p; s/^local \([A-Za-z_, ]*\) =.*/\1/p' $(PARTS:%=$(SCRIPTS)/%.lua) | tr -d ,)

lint-lua:
	@if [ -z "$$CI" ] && ! command -v luacheck >/dev/null; then echo "luacheck is not installed: the scripts are not linted"; else \
		$(LUACHECK) $(DEFINED) -- $(filter-out $(PARTS:%=\%/%.lua),$(wildcard $(SCRIPTS)/*.lua)) \
		&& $(LUACHECK) $(DEFINED) --ignore 211 431 -- $(PARTS:%=$(SCRIPTS)/%.lua); fi

docs: $(VENV)/ready ## write what the pages say from code
	$(VENV)/bin/python -m local.docs

clean: ## remove what was built and every environment
	rm -rf .aws-sam .venv .venv-* .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- with SAM

validate: sam
	AWS_DEFAULT_REGION=$${AWS_DEFAULT_REGION:-us-east-1} $(SAM) validate --lint
	AWS_DEFAULT_REGION=$${AWS_DEFAULT_REGION:-us-east-1} $(SAM) validate --lint --template cache.yaml

SAM_BUILD = $(SAM) build --parameter-overrides Architecture=$(ARCH)

build: validate ## build what is deployed, and list it; ARCH=arm64 for that
	$(SAM_BUILD)
	@cd .aws-sam/build/EnqueueFunction && du -sk * | sort -rn \
		&& echo "$$(find . -type f | wc -l) files, $$(du -sk . | cut -f 1) KiB, $$(tar -czf - . | wc -c | awk '{print int($$1 / 1024)}') KiB compressed, byte code for $$(find . -name '*.pyc' | wc -l) of $$(find . -name '*.py' | wc -l) modules"

invoke-enqueue: $(VENV)/ready .aws-sam/build/template.yaml ## sam local invoke of enqueue against the local stack (make dev)
	$(LOCALLY) EnqueueFunction --event events/enqueue-rest-get-task-name.json

invoke-process: $(VENV)/ready .aws-sam/build/template.yaml ## the same for process: one tick
	$(LOCALLY) ProcessFunction --event events/process-scheduled-event.json

invoke-status: $(VENV)/ready .aws-sam/build/template.yaml ## the same for status: waits for the end of what invoke-enqueue asked for
	$(LOCALLY) StatusFunction --event events/status-rest-wait.json

.aws-sam/build/template.yaml: template.yaml requirements.txt $(shell find handlers shared -type f -not -name '*.pyc' 2>/dev/null)
	@$(MAKE) --no-print-directory sam
	$(SAM_BUILD)

preflight: $(VENV)/ready ## check what is to be deployed: parameters, provider files, secrets, Redis, the artifact
	$(VENV)/bin/python -m local.deploy.preflight

# What samconfig.toml says; nobody is asked to confirm where there is no terminal.
SAM_DEPLOY = $(SAM) deploy $$(test -t 0 || echo --no-confirm-changeset)

deploy: sam $(VENV)/ready ## ask for what samconfig.toml does not give, build, check and deploy; ARCH=arm64 for that
	$(VENV)/bin/python -m local.deploy.ask --architecture $(ARCH)
	$(SAM_BUILD)
	$(VENV)/bin/python -m local.deploy.preflight
	$(SAM_DEPLOY)

deploy-cache: sam $(VENV)/ready ## deploy a Redis of its own (cache.yaml), and have `make deploy` use it
	$(SAM_DEPLOY) --config-env cache
	$(VENV)/bin/python -m local.deploy.adopt

# --- the artifact: called by `sam build` for each function, with ARTIFACTS_DIR set
#
# handlers/, shared/ and the runtime dependencies, with byte code: /var/task is read-only, so without it every cold start would
# compile everything. SAM runs the rule once per function; the dependencies are installed and compiled by the first.

COMPILE = $(PYTHON313) -m compileall -q -f --invalidation-mode unchecked-hash -p /var/task
DEPENDENCIES = .aws-sam/dependencies-$(ARCH)-$(shell cat requirements.txt Makefile | cksum | cut -d ' ' -f 1)

build-%Function: $(DEPENDENCIES) always
	@cp -R $(DEPENDENCIES)/. handlers shared "$(ARTIFACTS_DIR)"
	@find "$(ARTIFACTS_DIR)/handlers" "$(ARTIFACTS_DIR)/shared" -name __pycache__ -type d -prune -exec rm -rf {} +
	@$(COMPILE) -s "$(ARTIFACTS_DIR)" "$(ARTIFACTS_DIR)/handlers" "$(ARTIFACTS_DIR)/shared"

# Made aside and renamed, so that builds at the same time neither see half of it nor take it from each other.
$(DEPENDENCIES):
	@test -n "$(PYTHON313)" || { echo "The artifact needs byte code of Python 3.13, which was not found: install it, or say where it is: make PYTHON313=…" >&2; exit 1; }
	@test -n "$(PLATFORM_$(ARCH))" || { echo "ARCH is x86_64 or arm64, not $(ARCH)" >&2; exit 1; }
	@mkdir -p .aws-sam
	@echo "Installing and compiling the runtime dependencies for $(ARCH)"
	@new=$$(mktemp -d $@.XXXXXX) && chmod 755 "$$new" \
		&& $(PYTHON313) -m pip $(INSTALL) --root-user-action ignore --no-compile --only-binary :all: \
			--platform $(PLATFORM_$(ARCH)) --implementation cp --python-version 3.13 --target "$$new" -r requirements.txt \
		&& rm -rf "$$new"/bin "$$new"/certifi/tests "$$new"/*.dist-info/RECORD "$$new"/*.dist-info/licenses \
		&& find "$$new" \( -name '*.pyi' -o -name py.typed \) -exec rm {} + \
		&& $(COMPILE) -s "$$new" "$$new" \
		&& { $(PYTHON313) -c 'import os, sys; os.rename(*sys.argv[1:])' "$$new" $@ 2>/dev/null || rm -rf "$$new"; } \
		&& test -d $@

always:

architecture: # prints what the artifact is for
	@echo $(ARCH)

python313: # prints the Python that makes the byte code; nothing where there is none
	@echo $(PYTHON313)
