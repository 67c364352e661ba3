# Two commands do everything on a fresh machine:
#
#   make demo     set up what it needs, train small models on the CPU, report, find a slow input and mend it, serve
#   make test     set up, lint, types, import contracts, tests, and a wheel in an environment of its own
#
# What is too long for that is `make full`.
#
# `make demo NO_SERVE=1` returns instead of serving. PYTHON=... picks the interpreter (3.11 or newer).

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
# One more than there are cores: a test that waits for a browser, a process or a disk leaves its core to another one.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
FUZZ ?= 100000
# A file at a time, in the order of tests/conftest.py: pytest-xdist would begin with the files of the most tests.
SPREAD := --dist loadfile --no-loadscope-reorder
# What the demo needs is installed first, and what else the tests need on top of it.
DEMO_STAMP := $(VENV)/.mpprof-demo-installed
STAMP := $(VENV)/.mpprof-installed

.PHONY: help forecast-truth setup demo docs test full long check lint types contracts unit wheel dist chromium bench soak versions test-torch test-sinks samples traces clean

help:
	@sed -n '3,8s/^# *//p' Makefile

setup: $(STAMP)

$(DEMO_STAMP): pyproject.toml setup.py mpprof/traces/common/_walk.pyx
	@test -n "$(PYTHON)" || { echo "mpprof needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	@echo "Installing mpprof and TensorFlow for the CPU into $(VENV): 350 MB to download, 1.7 GB on disk, 2 to 5 minutes."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[demo]'
	@$(BIN)/python -m compileall -q mpprof dashboards
	@touch $@

$(STAMP): $(DEMO_STAMP)
	@echo "Installing what the tests need besides: 330 MB to download, 1.3 GB on disk, 2 to 5 minutes."
	@$(BIN)/python -m pip install --quiet 'mpprof[dev]'
	@# Keras 2 asks for the package tensorflow by name, which would put the GPU build over the CPU one.
	@$(BIN)/python -m pip install --quiet --no-deps tf_keras
	@touch $@

demo: $(DEMO_STAMP)
	@echo "Training four times on the CPU and comparing: under two minutes."
	$(BIN)/mpprof demo $(if $(NO_SERVE),--no-serve)

# The site, into build/site: a link or an anchor that leads nowhere is an error. The tests build it, too.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# What waits for downloads beside what computes; the tests alone.
test: setup
	$(MAKE) -j3 check chromium wheel
	$(MAKE) unit

# The long rest, which `make test` leaves out: fuzzing, pages, notebooks, sizes, other versions of the frameworks,
# Keras on torch, sinks. `make soak` alone fuzzes with 100,000 files a reader, hours on two cores.
full: FUZZ = 5000
full: soak versions test-torch test-sinks long

long: setup chromium
	$(BIN)/python -m pytest -n $(WORKERS) $(SPREAD) -m full

check: lint types contracts

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

unit: setup
	$(BIN)/python -m pytest -n $(WORKERS) $(SPREAD) --durations=20 -m "not benchmark and not soak and not full"

# The wheel for this Python, from tracked files alone, in an environment that has nothing else but what it asks for;
# then, in its place, the wheel for systems without a compiled one.
wheel: setup
	rm -rf build/source build/wheel build/plain && git checkout-index --all --prefix=build/source/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel build/source
	MPPROF_PLAIN=1 CC=/bin/false $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/plain build/source
	$(BIN)/python -m venv --clear build/clean
	build/clean/bin/python -m pip install --quiet build/wheel/*.whl
	cd build && clean/bin/python ../tests/smoke.py
	build/clean/bin/python -m pip install --quiet --no-deps --force-reinstall build/plain/*-py3-none-any.whl
	cd build && clean/bin/python ../tests/smoke.py --plain

# What a release holds besides the compiled wheels: the sdist, and the wheel for systems without a compiled one, made
# from it. URL=... is the repository's address. Needs the packages build, setuptools and cython.
dist:
	rm -rf build/source dist && git checkout-index --all --prefix=build/source/
	test -z "$(URL)" || printf '\n[project.urls]\nHomepage = "%s"\nDocumentation = "%s/tree/main/docs"\nChangelog = "%s/blob/main/CHANGELOG.md"\nIssues = "%s/issues"\n' \
		$(URL) $(URL) $(URL) $(URL) >> build/source/pyproject.toml
	test -z "$(URL)" || sed -i -E 's#\]\((docs/images/)#]($(URL)/raw/main/\1#; s#\]\((docs/|CONTRIBUTING)#]($(URL)/blob/main/\1#g' build/source/README.md
	$(BIN)/python -m build --no-isolation --sdist --outdir dist build/source
	MPPROF_PLAIN=1 $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist dist/*.tar.gz

# Sinks, tables and surveys against the packages that they write to or run on, in an environment of their own. In CI
# these tests skip.
test-sinks:
	$(PYTHON) -m venv .versions/sinks
	.versions/sinks/bin/python -m pip install --quiet --editable '.[tables,dask]' wandb mlflow 'pytest>=8.2'
	.versions/sinks/bin/python -m pytest tests/record/test_tracking.py -k 'weights_and_biases or mlflow'
	.versions/sinks/bin/python -m pytest tests/api/test_survey.py tests/api/test_results.py \
		-k 'cluster or parquet or polars or pandas'

# The browser tests drive Debian's chromium. Elsewhere they skip and say how to get it.
chromium:
	@if [ ! -x /usr/bin/chromium ] && [ -f /etc/debian_version ] && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	fi

bench: setup
	$(BIN)/python -m pytest -m benchmark -s tests/benchmarks

# The forecast's programs compiled anew and compared with those that the tests keep. No GPU; a download of 550 MB.
forecast-truth: setup
	$(PYTHON) -m venv --system-site-packages .venv-forecast
	.venv-forecast/bin/python -m pip install --quiet --editable '.[forecast-cuda12]' pytest
	.venv-forecast/bin/python -m pytest tests/forecasts

soak: setup
	$(BIN)/python -m pip install --quiet --editable '.[fuzz]'
	MPPROF_FUZZ_INPUTS=$(FUZZ) $(BIN)/python -m pytest -m soak -s tests

# Environments of other versions of the frameworks, and the tests that read their traces; without the environments
# these tests skip. TensorFlow 2.16 and 2.18 need Python 3.11 or 3.12, JAX 0.11 needs 3.12: what this Python cannot
# have is left out, and said by pip.
versions: setup
	for v in "tf216 tensorflow-cpu==2.16.*" "tf218 tensorflow-cpu==2.18.*" "jax0435 jax[cpu]==0.4.35" \
		"jax06 jax[cpu]==0.6.*" "jax011 jax[cpu]==0.11.*" "torch213 torch==2.13.0"; do \
		set -- $$v; $(PYTHON) -m venv .versions/$$1 && \
		.versions/$$1/bin/pip install -q "$$2" keras "setuptools<81" || rm -rf .versions/$$1; done
	$(BIN)/python -m pytest tests/traces/test_versions.py
	$(BIN)/python -m tests.analysis.layers.layer_cases $(filter-out .versions/sinks/%,$(wildcard .versions/*/bin/python))

# Keras on torch, in an environment of its own: a process has one Keras backend, and torch is a large download.
# TORCH=... picks another version. The package itself is taken from here; in CI these tests skip.
TORCH ?= torch==2.13.0
TORCH_VENV ?= .venv-torch
TORCH_TESTS ?= tests/torch tests/record/test_fit.py
test-torch:
	@test -n "$(PYTHON)" || { echo "mpprof needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	test -x $(TORCH_VENV)/bin/python || $(PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
		> $(TORCH_VENV)/requirements.txt
	$(TORCH_VENV)/bin/python -m pip install --quiet --requirement $(TORCH_VENV)/requirements.txt '$(TORCH)' 'keras>=3.8' 'pytest>=8.2'
	KERAS_BACKEND=torch OMP_NUM_THREADS=1 PYTHONPATH=.:dashboards $(TORCH_VENV)/bin/python -m pytest $(TORCH_TESTS)

# Public traces for the tests that read them, from their repositories (CONTRIBUTING.md).
traces:
	$(PYTHON) tools/fetch_traces.py

samples: setup
	$(BIN)/python sample_traces/make.py synthetic
	$(BIN)/python sample_traces/make.py recorded

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
