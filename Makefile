# Everything is done in a virtual environment of the checkout; nothing has to be installed before.
VENV := .venv
PYTHON ?= python3
RUN := $(VENV)/bin

.PHONY: run test check bench format clean

run: $(VENV)/run  ## a board that moves, at the address it prints
	@$(RUN)/live serve --demo

test: $(VENV)/test  ## all tests
	$(RUN)/pytest --numprocesses auto --dist worksteal

check: $(VENV)/test  ## style and types
	$(RUN)/ruff check live tests bench
	$(RUN)/ruff format --check live tests bench
	$(RUN)/mypy

bench: $(VENV)/test  ## the measures, as one table
	@sh tests/install-system.sh bench
	$(RUN)/python -m bench

format: $(VENV)/test
	$(RUN)/ruff check --fix live tests bench
	$(RUN)/ruff format live tests bench

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/pip:
	@sh tests/install-system.sh venv $(PYTHON)
	@$(PYTHON) -m venv $(VENV)

$(VENV)/run: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo "Installing what the board needs; this takes half a minute, once."
	@$(RUN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(VENV)/test: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo "Installing what the tests need; this takes a minute, once."
	@$(RUN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@sh tests/install-system.sh test
	@touch $@ $(VENV)/run
