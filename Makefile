# `make` alone lists what there is. `make demo` and `make test` need nothing but Python 3.11+, make and Java 17+:
# they make their own virtual environment here (.venv) and fetch what else they need into .cache.

VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
# The pipelines have an environment of their own; the broker that they start is this checkout's.
PIPELINES := env PYKBROKER_PYTHON=$(CURDIR)/$(RUN) .venvs/pipelines/bin/python -m spark_jobs

.DEFAULT_GOAL := help
.PHONY: help setup java spark35 pipelines pipelines-env jars format lint lint-code check test test-all docs coverage unit unit-all interop interop-cluster kafka-python fuzz spark simulate demo bench bench-plots bench-keep bench-compare profile bench-start bench-small bench-cluster bench-failover bench-spark build wheels clean clean-all

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make the virtual environment (.venv), again when its pins change
	@tools/venv.sh $(VENV) requirements/development.txt --with-checkout

java:
	@tools/require_java.sh

spark35: java
	@tools/venv.sh .venvs/spark35 requirements/spark35.txt

jars: java setup
	@$(RUN) -m interop_tests.kafka_jars

demo: java setup ## a Spark streaming job and stock clients on pykbroker; KILL=1 kills both job and broker on the way
	@$(RUN) spark_jobs/demo.py $(if $(filter-out 0,$(KILL)),--kill) $(ARGS)

pipelines: java setup pipelines-env ## the pipelines of spark_jobs with their checks and reports; ONLY="logs orders", CHAOS=1 kills, SEED=n, SEEDS=20, TARGET=kafka
	@$(if $(filter kafka,$(TARGET)),$(RUN) -m interop_tests.with_kafka) $(PIPELINES) check $(or $(ONLY),all) $(if $(filter-out 0,$(CHAOS)),--chaos) $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)

pipelines-env:
	@tools/venv.sh .venvs/pipelines requirements/pipelines.txt

test: java setup ## the tests to run first, a quarter of an hour: all that is quick, and a sample of what takes long
	@$(RUN) tools/run_tests.py

test-all: java setup spark35 pipelines-env ## all tests: more simulated clusters, every fault of three nodes, Spark 3.5, other Pythons
	@$(RUN) tools/run_tests.py --whole

unit: setup ## the unit tests alone: no Java, no network, two to three minutes; ARGS go to pytest
	@$(RUN) $(if $(ARGS),-m pytest -m "not java" $(ARGS),tools/run_tests.py unit)

unit-all: setup ## the unit tests on every CPython from 3.11 that this machine has; ARGS go to pytest
	@$(RUN) tools/unit_all.py $(ARGS)

interop: jars ## stock clients against a broker; TARGET=kafka starts Apache Kafka, BOOTSTRAP=host:port uses what runs
	@$(RUN) -m pytest interop_tests --ignore-glob='*/test_cluster_*.py' $(if $(TARGET),--target $(TARGET)) $(if $(BOOTSTRAP),--bootstrap $(BOOTSTRAP)) $(ARGS)

interop-cluster: jars ## stock clients against three nodes that are killed, paused, cut off; TARGET=kafka as above, TARGET=mixed has nodes of both
	@$(RUN) -m pytest interop_tests/test_cluster_*.py --report-name=cluster $(if $(TARGET),--target $(TARGET)) $(ARGS)

kafka-python: setup ## kafka-python's own integration tests; TARGET=kafka runs them against Apache Kafka
	@$(RUN) -m interop_tests.kafka_python_suite $(if $(TARGET),--target $(TARGET)) $(if $(BOOTSTRAP),--bootstrap $(BOOTSTRAP)) $(ARGS)

spark: java setup spark35 ## the Spark tests alone, with Spark 4 and with Spark 3.5
	@$(RUN) -m pytest interop_tests/test_spark*.py $(ARGS)
	@PYKBROKER_PYTHON=$(CURDIR)/$(RUN) .venvs/spark35/bin/python -m pytest interop_tests/test_spark*.py $(ARGS)

coverage: setup ## which lines of the four directories the unit tests do not run; ARGS go to pytest. Processes that tests start are not counted
	@mkdir -p reports/coverage && $(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q -m "not java" $(or $(ARGS),tests --ignore=tests/examples --ignore=tests/hostile --ignore=tests/installation --ignore=tests/simulation)
	@$(BIN)/coverage combine -q && $(BIN)/coverage report

fuzz: setup ## hostile frames at a broker process, for SECONDS=60; SEED=n repeats a run, findings go to reports/fuzz
	@$(RUN) -m tests.fuzz --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(ARGS)

simulate: setup ## clusters in one thread: SEED=n replays one, SEEDS=1000 runs many, MUTATIONS=1 breaks rules on purpose
	@$(RUN) -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MUTATIONS),--mutations) $(ARGS)

check: lint unit ## what must pass before a commit: format, lint, types, import contracts, unit tests

docs: ## the documentation site in build/docs/site; fails on a dead link
	@tools/venv.sh .venvs/docs requirements/docs.txt
	@.venvs/docs/bin/python tools/docs_site.py

lint: setup ## format, lint, types, import contracts and the documentation site, without the tests
	@$(MAKE) --no-print-directory --jobs=2 docs lint-code

lint-code:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p pykbroker
	$(BIN)/mypy benchmarks interop_tests spark_jobs tests
	$(BIN)/mypy tools
	$(BIN)/lint-imports
	@$(RUN) tools/long_code.py

format: setup ## format the code and mend what lint can mend by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: jars ## Kafka's own tools and the shapes of load, us and Apache Kafka (PEER=kfake: kfake) in turn; ARGS=--quick is one small round
	@$(RUN) -m benchmarks $(if $(PEER),--peer $(PEER)) $(ARGS)
	@$(MAKE) --no-print-directory bench-plots bench-compare

bench-plots: ## draws what `make bench` has measured, as PNG in reports/bench
	@tools/venv.sh .venvs/plots requirements/plots.txt
	@.venvs/plots/bin/python -m benchmarks.plots

bench-keep: setup ## keeps what `make bench` has measured, in benchmarks/results, for this version; NOTE says how
	@$(RUN) -m benchmarks.keep $(if $(NOTE),--note "$(NOTE)")

bench-compare: setup ## what `make bench` has measured last beside the newest kept results
	@$(RUN) -m benchmarks.keep --compare

profile: setup ## where a broker's time goes under load: py-spy and, if installed, perf; SHAPE="one client"; needs Go
	@tools/venv.sh .venvs/profile requirements/profile.txt
	@$(RUN) -m benchmarks.profiles $(if $(SHAPE),--shape "$(SHAPE)") $(ARGS)

bench-start: setup ## time from process start to the first answer, and memory when idle
	@$(RUN) -m benchmarks.start $(ARGS)

bench-small: jars ## one record a request, beside Apache Kafka and kfake: CPU for each, and latencies; needs Go
	@$(RUN) -m benchmarks --only small --broker pykbroker --broker kafka --broker kfake $(ARGS)

bench-cluster: jars ## three nodes: start, memory, throughput with acks=all, beside Apache Kafka's three
	@$(RUN) -m benchmarks.cluster $(ARGS)

bench-failover: jars ## three nodes: how long nobody leads after kill -9 and after a stop, beside Apache Kafka's three
	@$(RUN) -m benchmarks.failover $(ARGS)

bench-spark: jars ## Spark reading 2 GB, catching up, and its latency by rate, beside Apache Kafka; ARGS="--megabytes 500 --rounds 2"
	@$(RUN) -m benchmarks.spark $(ARGS)
	@$(MAKE) --no-print-directory bench-plots

build: ## sdist and the compiled wheel of this Python in dist/, as docs/releasing.md says
	@tools/venv.sh .venvs/release requirements/release.txt
	PYKBROKER_COMPILE=1 .venvs/release/bin/python -m build

wheels: ## the wheels that a release has, in dist/: several Pythons and processors; needs Docker or Podman
	@tools/venv.sh .venvs/release requirements/release.txt
	.venvs/release/bin/python -m cibuildwheel --platform linux --output-dir dist

clean: ## remove what was built and measured; the virtual environments and downloads stay (clean-all takes them too)
	rm -rf build dist reports pykbroker-data *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

clean-all: clean ## clean, and remove .venv, .venvs and .cache
	rm -rf .venv .venvs .cache
