# Needs Python 3.11 or newer and a package index; everything else is installed into .venv.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN ?= runs/$(shell date +%Y%m%d-%H%M%S)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run test test-bridges test-scale soak smoke audit bench results docs docs-serve format clean

# Train the paper's model with VIMCO for two minutes, evaluate it, make its page, and print the paths.
run: $(VENV)/.installed
	$(BIN)/vimco train --num-samples 5 --minutes 2 --output $(RUN)
	$(BIN)/vimco evaluate $(RUN) --num-samples 100
	$(BIN)/vimco page $(RUN)
	@echo
	@echo "Open $(RUN)/page.html in a browser: the model inside it dreams, and explains the digit that you draw."
	@echo "Look at $(RUN)/curves.png, $(RUN)/samples.png and $(RUN)/summary.json. Then try:"
	@echo "  $(BIN)/vimco resume $(RUN) --minutes 10                  resume this run"
	@echo "  $(BIN)/vimco evaluate $(RUN)                             with 1000 samples, as in the paper"
	@echo "  $(BIN)/vimco train --task structured --num-samples 20    predict bottom halves from top halves"
	@echo "  $(BIN)/vimco --help"

# Run the tests, the linter and the type checker. Tests of extras that are not installed are skipped.
test: $(VENV)/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# Run the tests of the bridges to NumPyro, PyTorch and Pyro, which need a large install.
test-bridges: $(VENV)/.installed-bridges
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile tests/bridges tests/test_extras.py

# Test several devices, processes and machines, in separate processes, since JAX counts its devices once.
test-scale: $(VENV)/.installed-scale
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup tests/scale

# Disturb runs by a thousand kills, full disks and damaged files: each must end as if undisturbed. Takes about half
# an hour of processor time.
soak: $(VENV)/.installed-test
	$(BIN)/python tests/soak.py --kills 1000

# Build the source distribution and a wheel from it, install each into an empty environment, and use the program there.
smoke: $(VENV)/.installed-test
	rm -rf build/smoke
	$(INSTALL) build
	$(BIN)/python -m build --outdir build/smoke .
	for package in build/smoke/vimco-*.whl build/smoke/vimco-*.tar.gz; do \
	  sh scripts/smoke.sh $(PYTHON) "$$package" || exit 1; \
	done

# Check the versions in constraints.txt against known vulnerabilities: those on PyPI, by the network, or, without a
# network, those of a local copy of the OSV database: make audit ADVISORIES=all.zip
audit: $(VENV)/.installed
ifdef ADVISORIES
	$(INSTALL) packaging
	$(BIN)/python scripts/audit.py $(ADVISORIES)
else
	$(INSTALL) pip-audit
	$(BIN)/python -m pip_audit --requirement constraints.txt --no-deps --disable-pip --strict
endif

# Measure milliseconds per update beside the matrix products alone: print a table, write bench.json (or BENCH_OUTPUT).
bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks

# Write docs/paper/results.md and its figures, and the time to quality in docs/explanation/speed.md, from the records of runs in docs/results.
results: $(VENV)/.installed
	$(BIN)/vimco report docs/results --output docs/paper --remarks docs/results/remarks.txt
	$(BIN)/python scripts/time_to_quality.py

# Build the site in site/. Warnings and broken links are errors. Needs no network.
docs: $(VENV)/.installed-docs
	$(BIN)/vimco report docs/results --output site/paper/report --remarks docs/results/remarks.txt
	mkdir -p site/how-to && $(BIN)/vimco page docs/models/halves --weights best-average --half --output site/how-to/live.html
	$(BIN)/vimco page docs/models/digits --half --output site/how-to/dreams.html
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --doctree-dir build/doctrees docs site
	@echo "The site is in site/index.html."

docs-serve: docs
	$(BIN)/python -m http.server --directory site --bind 127.0.0.1 8000

format: $(VENV)/.installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) site build

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable ".[test]"
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-scale: $(VENV)/.installed-test
	$(INSTALL) --editable ".[test,cluster]"
	@touch $@

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable ".[docs]"
	@touch $@ $(VENV)/.installed

# Install this version of PyTorch first, so that pip does not fetch a newer one with accelerator libraries.
$(VENV)/.installed-bridges: $(VENV)/.installed-test
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable ".[test,numpyro,pyro]"
	@touch $@
