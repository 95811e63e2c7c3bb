# Everything is done in a virtual environment of the checkout; nothing has to be installed before.
VENV := .venv
PYTHON ?= python3
RUN := $(VENV)/bin

.PHONY: run test attack check bench docs format pin clean

run: $(VENV)/run  ## a board that moves, at the address it prints
	@$(RUN)/live serve --demo --admin-key

test: $(VENV)/test  ## all tests
	$(RUN)/pytest --numprocesses auto --dist worksteal

attack: $(VENV)/test  ## the tests in tests/security, twenty times as long
	$(RUN)/pytest tests/security --effort 20 --timeout 3600

check: $(VENV)/test  ## style and types
	$(RUN)/ruff check live tests bench image
	$(RUN)/ruff format --check live tests bench image
	$(RUN)/mypy
	@if test -x .tools/node_modules/.bin/tsc; then .tools/node_modules/.bin/tsc --project tests/tools/tsconfig.json; \
	else echo 'Skipped: the types of static/*.js, which need Node.js.' >&2; fi

bench: $(VENV)/test  ## the measures, as one table
	@sh tests/install-system.sh bench
	$(RUN)/python -m bench

docs: $(VENV)/docs  ## the documentation as a site
	$(RUN)/zensical build --strict --clean
	@echo "Read it with: $(RUN)/python -m http.server --bind 127.0.0.1 --directory build/site 8080"

format: $(VENV)/test
	$(RUN)/ruff check --fix live tests bench image
	$(RUN)/ruff format live tests bench image

pin: $(VENV)/test  ## the hashes of what the image installs, from constraints.txt
	$(RUN)/python image/pin.py

clean:
	rm -rf $(VENV) .tools .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/pip:
	@sh tests/install-system.sh venv $(PYTHON)
	@$(PYTHON) -m venv $(VENV)

$(VENV)/run: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo "Installing what the board needs; this takes half a minute, once."
	@$(RUN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(VENV)/test: $(VENV)/bin/pip pyproject.toml constraints.txt tests/tools/requirements.txt tests/tools/package.json
	@echo "Installing what the tests need; this takes a minute, once."
	@$(RUN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs,test]'
	@sh tests/install-system.sh test
	@sh tests/install-tools.sh $(RUN)/python
	@touch $@ $(VENV)/run $(VENV)/docs

$(VENV)/docs: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo "Installing what builds the documentation, once."
	@$(RUN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@
