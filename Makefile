# `make help` lists the targets; every target sets up what it needs first, once.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
ROWS ?= 200000
FORMAT ?= criteo
PORT ?= 5000

.DEFAULT_GOAL := help
.PHONY: help set-up run test spark mlflow check ui compile images test-images bench bench-select bench-month clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

set-up: .venv/.base ## install ctrflow and what it needs into .venv

run: .venv/.base ## run the whole pipeline on the built-in sample, or: make run DATA=<file, folder or glob> FORMAT=<criteo|libsvm|libffm|tfrecord|csv|parquet>
	@$(BIN)/ctrflow run $(if $(DATA),--data '$(DATA)' --format $(FORMAT),--sample-rows $(ROWS)) $(RUN_OPTIONS)

test: .venv/.test ## run all tests
	@$(BIN)/python -m pytest -m 'not alone' -n 2 --dist loadgroup $(PYTEST_OPTIONS)
	@$(BIN)/python -m pytest -m alone $(PYTEST_OPTIONS)

spark: .venv/.test ## install Spark (310 MB) for its tests and for ctrflow preprocess --engine spark; it needs Java 17
	@command -v java > /dev/null || { echo "make spark: no java; install Java 17, such as openjdk-17-jre-headless of Debian" >&2; exit 1; }
	@$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -c requirements.lock -c requirements-spark.lock -e '.[spark]' 2> .venv/pip.log || { cat .venv/pip.log >&2; exit 1; }

check: .venv/.test ## lint, format check, strict types, hadolint on the images' Dockerfiles, and the manifests
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/hadolint images/*/Dockerfile && $(BIN)/python -m pytest tests/manifests

compile: .venv/.base ## compile the pipeline to retrain.yaml
	@$(BIN)/ctrflow compile retrain.yaml

ui: .venv/.base ## show runs, reports and models in MLflow on 127.0.0.1, or: make ui PORT=5001
	@$(BIN)/ctrflow ui --port $(PORT) $(RUN_OPTIONS)

mlflow: .venv/.test ## install MLflow for its tests and for ctrflow ui
	@$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -c requirements.lock -c requirements-ui.lock -e '.[ui]' 2> .venv/pip.log || { cat .venv/pip.log >&2; exit 1; }

images: ## build the container images; the engine is started for it where none runs
	@images/engine.sh images/build.sh steps training

test-images: .venv/.test ## build the images and test them in containers: SageMaker's contract on one host and on two
	@CTRFLOW_TEST_IMAGES=1 images/engine.sh sh -c 'images/build.sh steps training && $(BIN)/python -m pytest tests/images tests/components/train/program/test_image.py $(PYTEST_OPTIONS)'

bench: .venv/.base ## measure: preprocess, step, input, models, methods, Horovod, parameter servers, large tables, peers (TORCH_PYTHON=...); half an hour
	@for each in preprocess train_step input_pipeline models methods towers horovod_scaling parameter_servers table_size evaluate gate_power peers; do \
	  echo; echo "== $$each"; $(BIN)/python tests/benchmarks/$$each.py 2> .venv/bench.log || { tail -n 20 .venv/bench.log >&2; exit 1; }; \
	done

bench-select: .venv/.base ## measure: chosen plans against the best of all, and what choosing costs; half an hour
	@$(BIN)/python tests/benchmarks/regret.py

bench-month: .venv/.test ## a simulated month of nightly retraining on a drifting model: bad days, killed promotions; 5 minutes
	@$(BIN)/python tests/benchmarks/month.py 2> .venv/bench.log || { tail -n 20 .venv/bench.log >&2; exit 1; }

clean: ## remove the environment and everything that a run or a tool left in the checkout
	rm -rf .venv components/train/program/kernels-*.so runs models retrain.yaml build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find components pipelines tests images -name __pycache__ -prune -exec rm -rf {} +

# Set-up. A stamp is newer than everything it depends on, so a second call costs nothing.
.venv/.python:
	@"$(PYTHON)" -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else f"set-up: Python 3.11 is needed, {sys.executable} is {sys.version.split()[0]}; name one with make PYTHON=/path/to/python3.11")'
	@echo "set-up: creating .venv"
	@"$(PYTHON)" -m venv .venv
	@touch $@

KERNELS := images/training/build_kernels.py components/train/program/kernels.cc components/train/program/shared_memory.cc components/train/program/kernel_library.py

.venv/.base: .venv/.python pyproject.toml requirements.lock images/training/build_horovod_wheel.py $(KERNELS)
	@echo "set-up: installing pinned packages (about 1 minute the first time)"
	@$(BIN)/pip install -q --disable-pip-version-check -c requirements.lock setuptools wheel 2> .venv/pip.log || { cat .venv/pip.log >&2; exit 1; }
	@$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -c requirements.lock -e . 2> .venv/pip.log || { cat .venv/pip.log >&2; exit 1; }
	@$(BIN)/python images/training/build_horovod_wheel.py
	@$(BIN)/python images/training/build_kernels.py
	@touch $@

.venv/.test: .venv/.base
	@echo "set-up: installing what tests and checks need"
	@$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -c requirements.lock -e '.[test]' 2> .venv/pip.log || { cat .venv/pip.log >&2; exit 1; }
	@touch $@
