# Everything runs in a virtual environment of the checkout. You need not install anything first.
VENV := .venv
PYTHON ?= python3
SECONDS ?= 600
PACKAGES ?= journal store ingest fanout protocols
COUNT ?= 20
N ?= 30
MINUTES ?= 120
MARK ?= alone
RUN := $(VENV)/bin
# The results of these tests can differ between engines. With Redis, `make test-engines` runs only OF_STORES, without
# random examples, and without the tests that use both servers anyway.
OF_STORES := tests/store tests/boards tests/journal/log tests/journal/test_one_lost_board.py \
	tests/maintenance/test_merge.py \
	--ignore tests/store/board/test_usage.py
OF_VIEWERS := tests/ingest tests/fanout --ignore tests/ingest/test_bodies.py
# The installation compiles no modules, because that would double its time. Python compiles the modules that it imports.
# One process imports them before the tests, because the processes of the tests begin at the same time.
INSTALL := sh tests/install-packages.sh $(VENV) --constraint constraints.txt
PARALLEL := --numprocesses auto --dist loadfile --no-loadscope-reorder --max-worker-restart 2
# Tests with the mark `alone` need real time, so they run after the others, two at a time.
ALONE := --numprocesses 2 --dist load --maxschedchunk 1 --max-worker-restart 2
# `$(call both,COMMAND,MARKS)` runs the tests that have these marks, and at the end the `alone` ones among them. Both runs
# take place, and a failure of either is a failure.
both = failed=; $(1) $(PARALLEL) -m 'not alone$(2)' || failed=1; $(1) $(ALONE) -m 'alone$(2)' || failed=1; test -z "$$failed"
# For tests with a larger --effort: the time of a test, and the time after which a test that hangs ends its process.
LONG := --timeout 3600 --override-ini faulthandler_timeout=3720

# Tests start hundreds of processes, which need compiled modules to start fast.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-fast test-engines coverage attack faults stress soak mutate check bench pictures docs format image pin clean

run: $(VENV)/run  ## start a server with sample boards
	@$(RUN)/live serve --demo --admin-key

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

test: $(VENV)/test  ## run all tests
	@$(call both,$(RUN)/pytest)

test-fast: $(VENV)/test  ## run the tests that take little time: no browser, no faults, no mutants
	@$(call both,$(RUN)/pytest, and not (browser or fault or mutant or slow))

test-engines: $(VENV)/test  ## run the tests of stores, boards, journals and viewers with Sentinels and on a Cluster
	for engine in $(or $(ENGINE),sentinel cluster); do for server in $(or $(SERVER),valkey redis); do \
	which="--engine $$engine --server $$server $(OF_STORES)"; test $$server = redis || which="$$which $(OF_VIEWERS)"; \
	$(RUN)/pytest $(PARALLEL) --numprocesses 4 $$which -m 'not alone' || exit 1; \
	$(RUN)/pytest $(ALONE) $$which -m alone || exit 1; \
	done; done

coverage: $(VENV)/test  ## run all tests but the mutants, and print the branch coverage of live/
	rm -rf .cache/coverage && mkdir -p .cache/coverage
	@$(call both,$(RUN)/coverage run -m pytest, and not mutant)
	$(RUN)/coverage combine --quiet
	$(RUN)/coverage report

attack: $(VENV)/test  ## run the tests in tests/security twenty times as long, and random examples with a new seed
	$(RUN)/pytest tests/security tests/web/test_fuzz.py tests/test_properties.py --effort 20 $(LONG)
	$(RUN)/pytest -m hypothesis --effort 20

faults: $(VENV)/test  ## run the tests that kill, cut and fill servers, with 50 kills in each gap (ENGINE=cluster: the faults of a Cluster)
	$(RUN)/pytest -m 'fault$(if $(ENGINE), and $(ENGINE) and not mutant)' --effort $(if $(ENGINE),20,17) $(LONG)

stress: $(VENV)/test  ## repeat N=30 times, beside two busy processes, the tests marked `alone` and TESTS="tests/x.py::test_y"
	$(RUN)/python -m tests.stress $(TESTS) --times $(N) --minutes $(MINUTES) --mark '$(MARK)'

soak: $(VENV)/test  ## cause random faults under load for ten minutes (SECONDS=600), and compare what is left
	$(RUN)/python -m tests.soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

mutate: $(VENV)/test  ## make random mistakes in PACKAGES="journal store" (COUNT=20), and count those that the tests notice
	$(RUN)/python -m tests.mutate $(PACKAGES) --count $(COUNT) $(if $(SEED),--seed $(SEED))

check: $(VENV)/test  ## check style and types
	$(RUN)/ruff check live tests bench image packages
	$(RUN)/ruff format --check live tests bench image packages
	$(RUN)/mypy
	@if test -x .tools/node_modules/.bin/tsc; then .tools/node_modules/.bin/tsc --project tests/tools/tsconfig.json; \
	else echo 'Skipped: the types of static/*.js, which need Node.js.' >&2; fi

bench: $(VENV)/test  ## print the benchmarks as one table
	@sh tests/install-system.sh bench
	$(RUN)/python -m bench

pictures: $(VENV)/test  ## make the pictures of the documentation again
	$(RUN)/python -m tests.pictures

docs: $(VENV)/docs  ## build the documentation as a site
	$(RUN)/zensical build --strict --clean
	$(RUN)/python packages/site_text.py
	@echo "Read it with: $(RUN)/python -m http.server --bind 127.0.0.1 --directory build/site 8080"

format: $(VENV)/test  ## format the code
	$(RUN)/ruff check --fix live tests bench image packages
	$(RUN)/ruff format live tests bench image packages

image: $(VENV)/test  ## build the image with buildah, and run it as a user without rights on a read-only system
	PYTHON="$(PYTHON)" sh image/build.sh $(or $(TAG),localhost/live-board) $(BASE)
	TEST_IMAGE=$(or $(TAG),localhost/live-board) $(RUN)/pytest tests/test_built_image.py

pin: $(VENV)/test  ## write the hashes of the packages in the image, from constraints.txt
	$(RUN)/python image/pin.py

clean:  ## remove everything that these targets made
	rm -rf $(VENV) .tools .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/pip:
	@MAKECMDGOALS="$(MAKECMDGOALS)" sh tests/install-system.sh venv $(PYTHON)
	@$(PYTHON) -m venv $(VENV)
	@$@ install --quiet --disable-pip-version-check --only-binary :all: --constraint constraints.txt uv || true

$(VENV)/run: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo "Installing what the board needs; this takes ten seconds or so, once."
	@$(INSTALL) --editable '.[load]'
	@touch $@

$(VENV)/test: $(VENV)/bin/pip pyproject.toml constraints.txt tests/tools/requirements.txt tests/tools/package.json
	@echo "Installing what the tests need, once; this takes half a minute. Python packages go into $(VENV), packages of"
	@echo "Node.js and tools that read the contracts into .tools. apt installs what is missing of Chromium, Redis, nginx,"
	@echo "zsh, curl, fail2ban, Prometheus and PostgreSQL. At the end, the tests say what they skipped, and why."
	@sh tests/install-tools.sh $(PYTHON) & tools=$$!; \
	$(INSTALL) --editable '.[docs,load,test]' && \
	$(RUN)/pytest --collect-only --quiet >/dev/null && sh tests/install-system.sh test && wait $$tools
	@touch $@ $(VENV)/run $(VENV)/docs

$(VENV)/docs: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo "Installing what builds the documentation, once."
	@$(INSTALL) --editable '.[docs]'
	@touch $@
