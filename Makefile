# Every target builds and uses .venv; nothing else needs to be installed but Python 3.11 and make.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

# Where this is set, each of the many processes that tests and benchmarks start would compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: check test test-fast test-lowest test-pythons package browser demo docs docs-serve bench conformance coverage fuzz soak clean

$(VENV): $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "riglm needs Python 3.11 or newer: set PYTHON=..."; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

check: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.documents.words
	$(BIN)/python -m pytest --quiet tests/documents/test_architecture.py
	@! command -v node >/dev/null || for file in $$(find src -name '*.js' ! -path '*/vendor/*'); do node --input-type=module --check <$$file || exit 1; done

# Tests wait much for the processes that they start: so more of them run at once than CI has processors, and who is
# done takes from the others.
WORKERS ?= 3
SPREAD := -n $(WORKERS) --dist worksteal
PYTEST := $(BIN)/python -m pytest $(SPREAD)
test: $(VENV)/.ready browser
	$(BIN)/python -m tests.rerun $(SPREAD) $(ARGS)

# The tests that start no process and open no socket: for every change, in little more than a minute.
PROCESSES := tests/unit/adapters/upstream tests/unit/adapters/downstream tests/unit/adapters/wire tests/unit/cli
test-fast: $(VENV)/.ready
	$(PYTEST) tests/unit $(PROCESSES:%=--ignore=%) $(ARGS)

# The same with the lowest versions that pyproject.toml allows, and with each Python, in environments of their own. uv
# downloads a Python that is not installed.
UV := .cache/uv/bin/uv
PYTHONS ?= 3.11 3.12 3.13 3.14
$(UV):
	$(PYTHON) -m venv .cache/uv
	.cache/uv/bin/python -m pip install --quiet --disable-pip-version-check uv

test-lowest: PYTHONS := $(PYTHON)
test-lowest: VERSIONS := --resolution lowest-direct
test-pythons: VERSIONS := --constraint constraints.txt
test-lowest test-pythons: $(UV)
	@set -e; for python in $(PYTHONS); do \
		$(UV) venv --quiet --clear --python $$python .cache/$@; \
		$(UV) pip install --quiet --python .cache/$@/bin/python $(VERSIONS) --editable '.[dev]'; \
		.cache/$@/bin/python --version; \
		.cache/$@/bin/python -m pytest -n $(WORKERS) --dist worksteal tests/unit $(PROCESSES:%=--ignore=%) $(ARGS); \
	done

# The files of a release in dist, checked, and installed in a new environment where the demo runs.
PACKAGE := .cache/package
package: $(UV)
	rm -rf dist
	$(UV) tool run --from build pyproject-build
	$(UV) tool run twine check --strict dist/*
	$(UV) venv --quiet --clear --python $(PYTHON) $(PACKAGE)
	$(UV) pip install --quiet --python $(PACKAGE)/bin/python --constraint constraints.txt dist/*.whl
	$(PACKAGE)/bin/riglm --version
	$(PACKAGE)/bin/riglm demo --bundled

# The browser and the load balancers that tests use: Debian's, and no service is started (RUNLEVEL). Only root can install
# them; else the tests say what to type.
browser:
	@if ! { command -v chromium && command -v chromedriver && command -v haproxy && command -v nginx; } >/dev/null && \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends \
			chromium chromium-driver haproxy nginx-light >/dev/null; \
	fi

demo: $(VENV)/.ready
	$(BIN)/riglm demo

# The site: what is wrong with a page, a link or the navigation is an error. It takes seconds, and asks no other host.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
docs: $(VENV)/.ready
	$(MKDOCS) build --quiet

docs-serve: $(VENV)/.ready
	$(MKDOCS) serve

# Everything together takes a few minutes after the first time, which installs the proxy to compare with and embeds
# the tools of the data sets. DATA is the directory of the data sets, with mcp_catalog as distractors.
DATA ?= ../shared/data
bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks.recording
	$(BIN)/python -m benchmarks.telemetry
	$(BIN)/python -m benchmarks.wire
	$(BIN)/python -m benchmarks.overhead
	@if test -d $(DATA); then $(BIN)/python -m benchmarks.retrieval --data $(DATA) distractors; \
	else echo "retrieval is not measured: no data sets in $(DATA); set DATA=..."; fi

# LEGS=server, client or auth runs one part; the first time installs the suite.
LEGS ?= all
conformance: $(VENV)/.ready
	$(BIN)/python -m benchmarks.conformance --legs $(LEGS)

# Of the whole, lines and branches together; framing and routing, where a miss loses or misleads a message, have no gaps.
WITHOUT_GAPS := src/riglm/adapters/mcp/wire/messages.py,$\
	src/riglm/adapters/mcp/wire/event_stream.py,src/riglm/domain/rawjson.py,$\
	src/riglm/domain/naming.py,src/riglm/domain/jsonrpc.py,$\
	src/riglm/application/proxy/stages.py,src/riglm/application/proxy/routing.py,$\
	src/riglm/application/proxy/merging.py
coverage: $(VENV)/.ready browser
	rm -f .coverage .coverage.*
	$(PYTEST) --cov --cov-report= $(ARGS)
	$(BIN)/python -m coverage report --fail-under=95
	$(BIN)/python -m coverage report --include='$(WITHOUT_GAPS)' --fail-under=100

# Each target runs for SECONDS, all at once; TARGETS names some of them. What they reach is kept in .cache/fuzz.
SECONDS ?= 10800
fuzz: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(TARGETS)

# The report is .cache/soak/soak.html.
HOURS ?= 1
soak: $(VENV)/.ready
	$(BIN)/python -m benchmarks.soak --hours $(HOURS)

clean:
	rm -rf $(VENV) build dist site .coverage* htmlcov .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
