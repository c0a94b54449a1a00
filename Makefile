# Two commands are enough: `make demo` and `make test`. Everything is installed into .venv.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
UV_VERSION := 0.13.9
FAULTS_ARGUMENTS = $(if $(ONLY),--only '$(ONLY)') $(if $(JOBS),--jobs $(JOBS)) $(if $(PUBLISH),--publish)

.PHONY: demo test check setup peers bench faults mutants lock clean help

help: ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

demo: setup ## boot the stack, place orders through faults, show what happened
	$(BIN)/tallystick demo

test: setup ## the whole test suite on real Postgres and Temporal
	$(BIN)/pytest -n 3 --dist loadfile

peers: tests/peers/node_modules/.package-lock.json ## npm servers that some tests talk to

tests/peers/node_modules/.package-lock.json: tests/peers/package-lock.json
	npm ci --prefix tests/peers --no-audit --no-fund --ignore-scripts

check: setup ## lint, format, types, import contracts, compose file: no servers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

bench: $(BENCH)/.ready ## benchmarks side by side with peers, targets beside figures (FULL=1: longer)
	$(BENCH)/bin/python benchmarks/run.py $(if $(FULL),--full) $(BENCH_ARGUMENTS)

setup: $(VENV)/.ready ## make .venv with everything in it

$(VENV)/.ready: pyproject.toml requirements.lock Makefile
	@command -v python3 >/dev/null || { echo "Python 3.11 or newer is needed: install python3 and run make again." >&2; exit 1; }
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; python3 is $$(python3 --version)." >&2; exit 1; }
	@if command -v uv >/dev/null; then UV=uv; else \
	    python3 -m venv $(VENV)/bootstrap && $(VENV)/bootstrap/bin/pip install -q uv==$(UV_VERSION) && UV=$(VENV)/bootstrap/bin/uv; fi; \
	test -x $(BIN)/python || $$UV venv -q --allow-existing --python "$$(command -v python3)" $(VENV); \
	$$UV pip sync -q --compile-bytecode --require-hashes --python $(BIN)/python requirements.lock; \
	$$UV pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

# Peers bring dependencies that the service must not get: an environment of their own, with the
# service's own versions in it.
$(BENCH)/.ready: pyproject.toml benchmarks/requirements.lock Makefile | setup
	@UV=$$(command -v uv || echo $(VENV)/bootstrap/bin/uv); \
	test -x $(BENCH)/bin/python || $$UV venv -q --allow-existing --python $(BIN)/python $(BENCH); \
	$$UV pip sync -q --compile-bytecode --require-hashes --python $(BENCH)/bin/python benchmarks/requirements.lock; \
	$$UV pip install -q --python $(BENCH)/bin/python --no-deps --no-build-isolation -e .
	@touch $@

faults: setup ## break everything once, count the effects (SEED=, ONLY='send.*', TIMES=, JOBS=, PUBLISH=1)
	PYTHONPATH=tests $(BIN)/python -m support.faults $(if $(SEED),--seed $(SEED)) $(if $(TIMES),--times $(TIMES)) \
	    $(FAULTS_ARGUMENTS)

mutants: setup ## take one guard out at a time: the fault suite has to notice each
	PYTHONPATH=tests $(BIN)/python -m support.faults --mutants $(FAULTS_ARGUMENTS)

lock: ## resolve the dependencies anew, with hashes and without addresses
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	    --no-header --no-annotate --group dev pyproject.toml -o requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	    --no-header --no-annotate -c requirements.lock pyproject.toml benchmarks/requirements.in -o benchmarks/requirements.lock

clean: ## remove .venv and local state
	rm -rf $(VENV) $(BENCH) .tallystick
