# Every target makes .venv and installs what it needs; the stamp is renewed when the pins change.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help setup quickstart test lint bench compare mutants clean
help:            ## list the targets
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Steelyard needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

setup: $(STAMP)  ## make .venv and install Steelyard with the pinned versions
quickstart: setup  ## train a small code-writing model on the booking task and print where to look
	$(BIN)/steelyard train recipes/booking.toml
test: setup      ## the whole test suite
	$(BIN)/pytest -n 2 --dist loadgroup
lint: setup      ## format, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
bench: setup     ## benchmarks, results as JSON in benchmarks/results
	$(BIN)/python benchmarks/run.py
compare: setup   ## every variant on the bandit and on booking, three seeds each (about an hour), and the page that shows it
	$(BIN)/python benchmarks/compare_variants.py
	$(BIN)/python benchmarks/variants_page.py
mutants: setup   ## mutation score of numerics (half an hour), MODULE=kl for one module
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mutants]'
	$(BIN)/python benchmarks/mutants.py $(MODULE)
clean:           ## remove what the other targets made, runs excepted
	rm -rf .venv .pytest_cache .hypothesis .ruff_cache dist build
