# Every target sets up what it needs; a second run finds the stamps of the first and starts at once.

VENV := .venv
BIN := $(VENV)/bin
NPM := tests/interop
INPUTS := pyproject.toml constraints.txt scripts/setup.sh
# The packages with their hot modules compiled; first on the path, they take the place of the source folder.
COMPILED := build/compiled
PACKAGES := broker_core durable features server testing protocols plugins pipeline perf ui
SOURCES := $(shell find $(PACKAGES) -type f -not -name '*.pyc')
# The folders as the one package that they are where they are installed, for those who read the source.
LINKED := build/linked
BASE := $(VENV)/.base
HELM := $(NPM)/.fetched/.helm
PROGRAMS := $(NPM)/.fetched/.programs
PEERS := $(PROGRAMS) $(NPM)/.fetched/.logins $(NPM)/node_modules/.ready $(HELM)
CHECKED := lint $(COMPILED)/.ready $(PEERS)
PYTEST := $(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist worksteal
PYTEST_COMPILED := LEVERET_TESTED=compiled PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/$(COMPILED):$(CURDIR) $(PYTEST) --import-mode=append

# Dozens of nodes are started, and each test is imported by every worker: Python keeps what it has translated, also where
# the environment tells it not to.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run test check rest checked nightly test-compiled test-plain test-source test-often test-quick test-slow test-seldom test-cheap lint lint-macos compile site wheel wheels release format bench scale attacks soak coverage crash ha points power durability simulate rounds image fuzz suites docs clean
# One thing after another, but for what is asked to be done at the same time.
ifndef TOGETHER
.NOTPARALLEL:
endif
.DEFAULT_GOAL := help

help: ## show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

# The data folder is data/, unless the arguments name another. What is not compiled yet serves plain, and is compiled meanwhile.
run: $(VENV)/.ready-to-run $(if $(filter always,$(LEVERET_COMPILE)),$(COMPILED)/.ready) ## start a node on port 5672 with its data in data/
	@if [ "$$LEVERET_COMPILE" = never ]; then :; \
	elif $(MAKE) --silent --question --assume-old=$(VENV)/.ready-to-run $(COMPILED)/.ready; then export PYTHONPATH=$(CURDIR)/$(COMPILED); \
	else scripts/setup.sh aside; fi; \
	exec $(BIN)/leveret serve $(if $(filter --config% --data% --memory,$(ARGS)),,--data data) $(ARGS)

# While packages and clients come over the network, and modules are compiled, a processor is free for what needs none of them.
test: ## check format, types and imports, and run each test once, but for the longest (`make rest`)
	@$(MAKE) --no-print-directory --jobs 7 TOGETHER=1 $(CHECKED) test-source
	@$(MAKE) --no-print-directory test-often

check: $(VENV)/.ready-to-test ## check what was changed, and run the tests near it, in about a minute
	@LEVERET_TESTED=plain $(BIN)/python scripts/check.py $(ARGS)

rest: ## what `make test` leaves out: tests that take long and find seldom, and the cheap ones plain
	@$(MAKE) --no-print-directory test-seldom
	@$(MAKE) --no-print-directory test-cheap

nightly: export HYPOTHESIS_PROFILE ?= long
nightly: checked lint-macos test-compiled test-plain fuzz ## the checks of `make test` and those for macOS, and every test compiled and plain, with more examples

test-compiled: $(VENV)/.ready-to-test $(COMPILED)/.ready $(PEERS) ## run every test against the compiled modules
	$(PYTEST_COMPILED) $(ARGS)

test-plain: $(VENV)/.ready-to-test $(PEERS) ## run every test against the source folder
	LEVERET_TESTED=plain $(PYTEST) $(ARGS)

test-source: $(VENV)/.ready-to-test $(HELM) ## run the tests of the source, and those of plain Python only
	LEVERET_TESTED=plain $(PYTEST) --part source $(ARGS)

# What takes long waits for processes much of the time. What is quick fills these gaps, and tells its outcome at the end.
test-often: $(VENV)/.ready-to-test $(COMPILED)/.ready $(PEERS) ## run every test but those and the longest against the compiled modules
	@$(MAKE) --no-print-directory --jobs 2 --keep-going TOGETHER=1 test-quick test-slow

test-quick: export HYPOTHESIS_PROFILE ?= quarter
test-quick: $(VENV)/.ready-to-test $(COMPILED)/.ready $(PEERS) ## run the tests of these that do not take long
	$(PYTEST_COMPILED) --part quick $(ARGS) $(if $(TOGETHER),>build/quick.log 2>&1; outcome=$$?; cat build/quick.log; exit $$outcome)

test-slow: $(VENV)/.ready-to-test $(COMPILED)/.ready $(PEERS) ## run the tests of these that take long
	$(PYTEST_COMPILED) --part slow $(ARGS)

test-seldom: override ARGS += --part seldom
test-seldom: test-compiled ## run the longest tests against the compiled modules

test-cheap: override ARGS += --part cheap
test-cheap: test-plain ## run the cheap tests against the source folder

# Checks and compiling are each mostly the work of one core, and clients come over the network.
checked: $(VENV)/.ready-to-test ## the checks, the compiled modules and the clients that the tests need
	@$(MAKE) --no-print-directory --jobs 6 TOGETHER=1 $(CHECKED)

lint: $(VENV)/.ready-to-test ## the checks of `make test` without the tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/python setup.py -q link
	$(BIN)/mypy
	PYTHONPATH=$(LINKED) $(BIN)/lint-imports

lint-macos: $(VENV)/.ready-to-test ## check the types with what Python has on macOS
	$(BIN)/python setup.py -q link
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin

compile: $(COMPILED)/.ready ## compile the hot modules into build/compiled, if there is a C compiler

site: $(VENV)/.ready-to-run ## make the handbook's pages for a browser, with a search, in build/site/html
	@$(BIN)/python -c 'import zensical' 2>/dev/null || scripts/setup.sh docs
	$(BIN)/python scripts/site.py

wheel: $(VENV)/.ready-to-run $(COMPILED)/.ready site ## pack what is compiled, and the handbook, as a wheel into dist/
	@$(BIN)/python -c 'import build.__main__' 2>/dev/null || scripts/setup.sh wheels
	$(BIN)/python scripts/wheel.py $(ARGS)

# Without a container engine: each is for machines like this one.
wheels: $(VENV)/.ready-to-run ## build and try a compiled wheel with each Python from 3.11 to 3.14 that is here, into dist/
	$(BIN)/python scripts/wheels.py $(ARGS)

# An index takes wheels for Linux from cibuildwheel only, which needs a container engine (docs/operations/releasing.md).
release: export LEVERET_HOME = $(URL)
release: $(VENV)/.ready-to-run site ## pack a source distribution and wheels into dist/, and check them for an index (URL=https://...)
	@if [ -z "$(URL)" ]; then echo "make release URL=...: the address of the repository, to which links lead" >&2; exit 2; fi
	@scripts/setup.sh release
	rm -rf dist
	$(BIN)/python -m build --sdist
	LEVERET_COMPILE=never $(BIN)/python -m build --wheel
	@if docker info >/dev/null 2>&1 || [ "$$(uname)" = Darwin ]; then $(BIN)/cibuildwheel --output-dir dist; \
	else echo "release: without compiled wheels, for which cibuildwheel needs Docker" >&2; fi
	$(BIN)/twine check --strict dist/*

format: $(VENV)/.ready-to-test ## format the code and sort the imports
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.ready-to-test $(COMPILED)/.ready ## measure speed, compiled, beside a RabbitMQ if the system has one
	PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/$(COMPILED):$(CURDIR) $(BIN)/python -m benchmarks $(ARGS)

scale: $(VENV)/.ready-to-test $(COMPILED)/.ready ## 100,000 queues, 65,535 links and channels, 10,000 connections, 100,000 connects, 3,000,000 messages
	PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/$(COMPILED):$(CURDIR) $(BIN)/python -m benchmarks.scale $(ARGS)

attacks: $(VENV)/.ready-to-test $(COMPILED)/.ready ## measure a client's confirms while others attack the node in each way that they have
	PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/$(COMPILED):$(CURDIR) $(BIN)/python -m benchmarks.attacks $(ARGS)

HOURS ?= 1
soak: $(VENV)/.ready-to-test $(COMPILED)/.ready ## use everything for HOURS=1, and draw memory, descriptors, tasks and latencies over the time
	PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/$(COMPILED):$(CURDIR) $(BIN)/python -m benchmarks.soak --hours $(HOURS) $(ARGS)

# What is killed cannot tell what it has done, and browsers and Spark use little of the core that others do not.
coverage: $(VENV)/.ready-to-test $(PEERS) ## run the tests plain, and tell which branches of the core and the protocols they take
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt coverage
	rm -f build/coverage/.coverage*
	-COVERAGE_PROCESS_START=$(CURDIR)/scripts/coverage.ini LEVERET_TESTED=plain $(BIN)/python -m coverage run --rcfile scripts/coverage.ini \
	    -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal $(addprefix --ignore=tests/,browser pipeline) $(ARGS)
	@echo "tests that look at what is imported, freed or logged may fail while they are measured"
	$(BIN)/python -m coverage combine --quiet --rcfile scripts/coverage.ini
	$(BIN)/python -m coverage report --rcfile scripts/coverage.ini --skip-covered --sort cover

crash: $(VENV)/.ready-to-test ## kill a durable node under load, 200 times, and 50 times with clients of MQTT (ARGS="--rounds N --seed N")
	$(BIN)/python -m tests.crash.rounds $(ARGS)
	$(BIN)/python -m tests.crash.mqtt_rounds $(ARGS)

ha: $(VENV)/.ready-to-test ## kill nodes and, under Patroni, databases of a cluster under load (ARGS="--kills N --pauses N --primaries N --cuts N --minutes N")
	$(BIN)/python -m tests.ha.rounds $(ARGS)

points: $(VENV)/.ready-to-test ## interrupt a fixed script at each system call that writes (ARGS="--every N")
	$(BIN)/python -m tests.crash.points cuts $(ARGS)
	$(BIN)/python -m tests.crash.points starts $(ARGS)
	$(BIN)/python -m tests.crash.points kills $(ARGS)

power: $(VENV)/.ready-to-test ## cut the power of a disk under a node; needs root and loop devices
	$(BIN)/python -m tests.crash.power $(ARGS)

durability: $(VENV)/.ready-to-test ## all of it: 200 kills, 500 points, 1000 power cuts, 200 failing disks, 1000 flipped bits (ARGS="--only NAME")
	$(BIN)/python -m tests.crash.durability $(ARGS)

simulate: $(VENV)/.ready-to-test ## lead a broker, its clients and its disk through 20000 random runs, and all features together through 2000 (ARGS="--seed N --seeds N")
	$(BIN)/python -m tests.simulation --seeds 20000 $(ARGS)
	$(BIN)/python -m tests.combined --seeds 2000 $(ARGS)

image: $(VENV)/.ready-to-test ## build the container image with buildah and run it, as root and not (ARGS="--plain"); needs root
	$(BIN)/python -m tests.image $(ARGS)

fuzz: $(VENV)/.ready-to-test ## feed codecs, connections and files with bytes that coverage chooses (ARGS="--seconds 600")
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt atheris || echo "atheris cannot be installed: bytes are chosen by chance"
	$(BIN)/python -m tests.fuzz $(ARGS)

suites: $(VENV)/.ready-to-test ## run the own tests of nine client libraries, here and on RabbitMQ (ARGS="amqp kombu ...")
	$(BIN)/python -m tests.suites $(ARGS)

rounds: $(VENV)/.ready-to-test ## have nodes live on with a backlog (LIVING="--rounds N --seed N"), and kill Spark and the broker in mid-batch (ARGS="--rounds N --seed N --folder DIR --minutes N"; archives to Iceberg and S3: LAKES="--rounds N --seed N")
	$(BIN)/python -m tests.living.rounds $(LIVING)
	$(BIN)/python -m tests.pipeline.rounds $(ARGS)
	$(BIN)/python -m tests.pipeline.lake_rounds $(LAKES)

docs: $(VENV)/.ready-to-run ## print the pages that are generated from the code
	$(BIN)/python -m leveret.config.docs > docs/configuration.md
	$(BIN)/python -m leveret.arguments.docs > docs/arguments.md
	$(BIN)/python -m leveret.protocols.http.docs > docs/http.md
	$(BIN)/python scripts/api_reference.py
	$(BIN)/python scripts/map.py
	$(BIN)/python scripts/meeting_places.py

clean: ## remove what was set up or built
	rm -rf $(VENV) $(NPM)/node_modules $(NPM)/.fetched build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.ready-to-run: $(INPUTS)
	@PYTHON="$(PYTHON)" scripts/setup.sh run

# Others wait for these, because one process at a time may install packages of the system.
$(BASE): scripts/setup.sh
	@PYTHON="$(PYTHON)" scripts/setup.sh base
	@touch $@

$(VENV)/.ready-to-test: $(INPUTS) | $(BASE)
	@PYTHON="$(PYTHON)" scripts/setup.sh test
	@touch $@ $(VENV)/.ready-to-run

# A compiled module contains facts about the modules that it imports, so any file that changes may change it. What is set up
# for tests can compile; nothing else is set up beside it.
$(COMPILED)/.ready: setup.py pyproject.toml $(SOURCES) | $(VENV)/$(if $(TOGETHER),.ready-to-test,.ready-to-run)
	@scripts/setup.sh compile
	@if [ -d $(@D) ]; then touch $@; fi

$(NPM)/node_modules/.ready: $(NPM)/package-lock.json scripts/setup.sh | $(BASE)
	@scripts/setup.sh npm
	@if [ -d $(@D) ]; then touch $@; fi

$(HELM): scripts/setup.sh | $(BASE)
	@scripts/setup.sh helm
	@mkdir -p $(@D) && touch $@

$(PROGRAMS): scripts/setup.sh | $(BASE)
	@scripts/setup.sh programs
	@mkdir -p $(@D) && touch $@

$(NPM)/.fetched/.logins: scripts/setup.sh | $(PROGRAMS) $(VENV)/.ready-to-test
	@scripts/setup.sh logins
	@mkdir -p $(@D) && touch $@

.PHONY: rabbitmq
rabbitmq: $(VENV)/.ready-to-test ## try federation and shovels with a RabbitMQ, if this machine has one (Debian: rabbitmq-server)
	LEVERET_RABBITMQ=1 $(BIN)/pytest tests/interop/test_federation_rabbitmq.py tests/interop/test_shovels_rabbitmq.py

.PHONY: connect
connect: $(VENV)/.ready-to-test ## try Spark Connect, with a client whose packages are in a folder of their own
	$(BIN)/pip install -q -c constraints.txt --target .cache/connect grpcio==1.85.3 grpcio-status==1.85.3 googleapis-common-protos==1.76.0 \
	    pandas==2.3.3 zstandard==0.25.0
	$(BIN)/pytest tests/pipeline/test_connect.py
