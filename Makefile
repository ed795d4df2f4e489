# make demo               MovieLens 100k: raw ratings to a served, load-tested ranking model
# make demo DATA=synth    the same on generated logs, no download
# make demo DATA=FILES    the same on your own Criteo-format files (a path or a quoted glob)
# make test               the test suite
# make lint | bench | docs

PYTHON ?= python3
VENV ?= .venv
DATA ?= movielens
BIN := $(VENV)/bin
# Idle OpenMP threads sleep instead of spinning beside the kernels' own threads.
export OMP_WAIT_POLICY ?= passive
export GOMP_SPINCOUNT ?= 0

.PHONY: demo test lint bench docs clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint,docs]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py '$(DATA)'

test: $(VENV)/.installed
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	touch $@

bench: $(VENV)/.bench
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(VENV)/.installed
	$(BIN)/mkdocs build --strict

clean:
	rm -rf demo site build .cache
