# Two commands on a fresh machine with Python 3.11 or newer and make: `make demo` and `make test`.

PYTHON ?= $(shell command -v python3.11 || command -v python3 || command -v python)
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported: most of them never are.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt

.PHONY: demo test test-slow test-lowest browser check dist docs format figures constraints clean

demo: $(VENV)/.demo
	@$(BIN)/tallybox demo

# Two workers with a thread each; set WORKERS to the cores you have.
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --quiet

test: $(VENV)/.develop
	@$(PYTEST) -m "not slow"

# Tests that take minutes: Triton's interpreter in place of a GPU, fresh environments, the site.
test-slow: $(VENV)/.develop
	@$(PYTEST) -m slow

# The lowest versions that pyproject.toml allows, in an environment of its own: the wheel's smoke tests, layers, files and commands.
# Warnings of old packages are not errors here. Packages that few tests need are left out, with those tests.
LOWEST := .venv-lowest
test-lowest: constraints-lowest.txt
	@$(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip install --quiet --upgrade pip
	@$(LOWEST)/bin/python -m pip install --quiet --constraint constraints-lowest.txt --editable '.[all]' \
	  pytest hypothesis httpx onnx onnxscript pycocotools
	@OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest --quiet -m "not slow" -o filterwarnings=default \
	  tests/layers tests/counter tests/presence tests/detections tests/estimator tests/cli \
	  --ignore tests/detections/test_adapters.py --ignore tests/detections/test_baselines.py

# Install Debian's Chromium, as root. Without it, the tests of pages are skipped and say so.
browser:
	@command -v chromium > /dev/null || { timeout 120 apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq chromium > /dev/null; } || \
	  echo "Chromium could not be installed: the tests of pages will be skipped."

check: $(VENV)/.develop
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/codespell -D- -D banned-words.txt  # its own words, and those that code and docs avoid
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

# The site, in site/; a broken link or reference is an error.
docs: $(VENV)/.develop
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean
	@echo "Built site/index.html"

# Wheel and sdist, in dist/.
dist: $(VENV)/.develop
	@rm -rf dist
	@$(BIN)/hatchling build
	@ls -lh dist

format: $(VENV)/.develop
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# Every picture in the docs that a command can draw in seconds, and what commands print on its pages.
figures: $(VENV)/.develop
	@$(BIN)/python docs/pictures.py
	@$(BIN)/python docs/outputs.py

# Pin what is installed now; run it in a fresh environment after changing pyproject.toml.
constraints: $(VENV)/.develop
	@{ echo "# Versions that demo, tests and checks use; made by \`make constraints\`."; \
	   $(BIN)/python -m pip freeze --all --exclude-editable | sed 's/+cpu$$//'; } > constraints.tmp
	@mv constraints.tmp constraints.txt

clean:
	rm -rf $(VENV) $(LOWEST) site .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tallybox needs Python 3.11 or newer; name it with: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) pip
	@touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml constraints.txt
	@echo "Installing tallybox and PyTorch (a few minutes the first time) ..."
	@$(PIP) --build-constraint constraints.txt --editable '.[cli,cpu,detections,figures,photos,serve,vqa]'
	@touch $@

$(VENV)/.develop: $(VENV)/.python pyproject.toml constraints.txt
	@echo "Installing tallybox with all extras and its tests (a few minutes the first time) ..."
	@$(PIP) --build-constraint constraints.txt --editable '.[all]' --group test --group check --group docs
	@touch $@ $(VENV)/.demo
