# Everything a newcomer needs: `make run` and `make test` install what they use into .venv.

PYTHON ?= python3
JOBS ?= 2
ARGS ?=
MINUTES ?=
LOCK_FLAGS ?=

VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
INSTALL := $(BIN)/python -m pip install -qq --require-hashes

.DEFAULT_GOAL := help
.PHONY: help run test lint format docs twins screenshots bench bench-peers bench-tasks acceptance elsewhere proof lock clean

help: ## show this list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)$$/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

run: $(VENV)/.runtime ## run the demo: agents, a crash, a reclaimed lease, a workflow, a dead letter
	@$(BIN)/relaymesh demo

test: lint $(VENV)/.browser ## lint, then every test (ARGS='-k lane' picks some, JOBS=4 runs more at once)
	$(BIN)/python -m pytest -n $(JOBS) -m 'not alone' $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m pytest -m alone)

lint: $(VENV)/.dev ## ruff, mypy --strict and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev ## write the generated reference pages again
	$(BIN)/python -m tests.project.reference
	$(BIN)/python -m relaymesh.cli.reference > docs/reference/cli.md

twins: $(VENV)/.dev ## write the SDK for threads again, from the one for an event loop
	$(BIN)/python -m tests.project.twins

screenshots: $(VENV)/.dev $(VENV)/.browser ## take the pictures of a report in docs/images again (starts Spark)
	$(BIN)/python -m tests.pipeline.report.screenshots

bench: $(VENV)/.bench ## our figures, other queues beside them (ARGS='--quick' takes a minute)
	@$(BIN)/python -m bench $(ARGS)

bench-peers: $(VENV)/.bench ## the same work on Redis, NATS and RabbitMQ (bench/peers/install.sh installs them)
	@$(BIN)/python -m bench.peers $(ARGS)

bench-tasks: $(VENV)/.bench ## tasks: steps a second, a neighbour's latency, memory; DBOS and huey beside them
	@$(BIN)/python -m bench.tasks $(ARGS)

acceptance: $(VENV)/.dev ## four runs on the real clock: load, outage, duplicates, failure (MINUTES=0.5 shortens)
	@$(BIN)/python -m acceptance $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

elsewhere: ## make test on a clean clone, in a directory with a space in its path, as a user who is not root
	@tests/elsewhere.sh

proof: $(VENV)/.dev ## the long runs: seeds, crashes, bit flips, planted bugs, hostile calls, attackers, harmed warehouses, torture, workflows under kills (3 hours)
	$(BIN)/python -m relaymesh.testing.simulate --seeds 100000 --jobs $(JOBS) --json
	$(BIN)/python -m relaymesh.testing.crashes --states 500000 --jobs $(JOBS) --json
	$(BIN)/python -m relaymesh.testing.crashes --bit-flips --jobs $(JOBS) --json
	$(BIN)/python -m relaymesh.testing.planted --seeds 2000
	$(BIN)/python -m tests.kernel.tasks.scene --scenarios 10000
	$(BIN)/python -m tests.hostile --calls 100000 --over embedded --json
	for over in http websocket-json websocket-msgpack filebus; do \
		$(BIN)/python -m tests.hostile --calls 20000 --over $$over --json || exit 1; done
	$(BIN)/python -m tests.attacks --json
	for adapter in script worker function; do \
		$(BIN)/python -m relaymesh.testing.adapters relaymesh.testing.adapters.ours:$$adapter || exit 1; done
	$(BIN)/python -m tests.pipeline.runs.any_file
	$(BIN)/relaymesh torture --minutes $(if $(MINUTES),$(MINUTES),10) --json
	$(BIN)/python -m tests.soak.killed_tasks --tasks 200 --steps 20 --kills 20
	$(BIN)/python -m tests.soak.killed_tasks --tasks 200 --steps 20 --kills 20 --remote
	$(BIN)/python -m tests.soak.killed_agents --kills 200
	$(BIN)/python -m tests.soak.killed_agents --kills 0 --tasks 1000 --steps 1

lock: $(VENV)/.lock ## pin and hash requirements/*.txt again (LOCK_FLAGS=--upgrade takes newer versions)
	$(COMPILE) requirements/build.in -o requirements/build.txt
	$(COMPILE) pyproject.toml -c requirements/build.txt -o requirements/runtime.txt
	$(COMPILE) pyproject.toml --extra fast --extra pipeline requirements/dev.in -o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra fast --extra pipeline requirements/bench.in -o requirements/bench.txt
	$(COMPILE) requirements/lock.in -o requirements/lock.txt

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench acceptance -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# One resolution for every platform and for every Python from 3.11 on.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock" $(LOCK_FLAGS)

# Each stamp is newer than what it was made from, so a changed file installs again and nothing else does.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "RelayMesh needs Python 3.11 or newer, and '$(PYTHON)' is not: try make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
		exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.created requirements/build.txt requirements/runtime.txt pyproject.toml
	@echo "installing RelayMesh"
	@$(INSTALL) -r requirements/build.txt -r requirements/runtime.txt
	@$(BIN)/python -m pip install -qq --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements/dev.txt
	@echo "installing what the checks need"
	@$(INSTALL) -r requirements/dev.txt
	@touch $@

$(VENV)/.browser: $(VENV)/.created tests/install-browser.sh
	@tests/install-browser.sh
	@touch $@

$(VENV)/.bench: $(VENV)/.runtime requirements/bench.txt
	@echo "installing what the bench compares with"
	@$(INSTALL) -r requirements/bench.txt
	@touch $@

$(VENV)/.lock: $(VENV)/.created requirements/lock.txt
	@$(INSTALL) -r requirements/lock.txt
	@touch $@
