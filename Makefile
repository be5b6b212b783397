# Two commands: `make run` trains on the built-in data, `make test` checks everything.
# Each sets up its own .venv from requirements.lock; only python3 (3.11+) and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FLEET := .venv-nvflare

.PHONY: run test lint types imports unit swtpm postgresql faulttools clean

run: $(STAMP)
	$(BIN)/consilia run examples/plans/heart.toml

test: lint types imports unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

# Two at a time, a file's tests one after the other: most of them start processes and wait for them.
unit: $(STAMP) $(FLEET)/.installed swtpm postgresql faulttools
	$(BIN)/python -m pytest -n 2 --dist loadfile

# The tests of attested aggregation start a software TPM. Only root may install one; for others those tests are skipped and
# say so. Where the installation fails the tests decide: with CI=true a missing software TPM fails them.
swtpm:
	@if ! command -v swtpm > /dev/null && command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "Installing swtpm, a software TPM that tests use: ten seconds, once."; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y -qq --no-install-recommends swtpm; } \
	    > /dev/null || echo "swtpm could not be installed." >&2; \
	fi

# The tests of the coordinator's store start a PostgreSQL server of their own in a temporary folder. As above for root, others
# and CI; no server of the system's is made or started.
postgresql:
	@if ! command -v initdb > /dev/null && ! ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 && command -v apt-get > /dev/null && \
	  [ "$$(id -u)" = 0 ]; then \
	  echo "Installing PostgreSQL, which tests use: half a minute, once."; \
	  mkdir -p /etc/postgresql-common/createcluster.d; \
	  echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.d/consilia-tests.conf; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y -qq --no-install-recommends postgresql; } \
	    > /dev/null || echo "PostgreSQL could not be installed." >&2; \
	  rm -f /etc/postgresql-common/createcluster.d/consilia-tests.conf; \
	fi

# The tests of faults let a site's flushes fail (strace) and set its calendar wrong (libfaketime). As above for root, others and CI.
faulttools:
	@if { ! command -v strace > /dev/null || ! ls /usr/lib/*/faketime/libfaketimeMT.so.1 > /dev/null 2>&1; } && \
	  command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "Installing strace and libfaketime, which tests use: ten seconds, once."; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y -qq --no-install-recommends strace libfaketime; } \
	    > /dev/null || echo "strace and libfaketime could not be installed." >&2; \
	fi

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Consilia needs Python 3.11 or newer; got $$($(PYTHON) --version). Name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "Installing into $(VENV): one to three minutes, once."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# NVFlare, for the test that runs a plan on a fleet: in an environment of its own, which sees the other one behind it.
$(FLEET)/.installed: requirements-nvflare.lock $(STAMP)
	@echo "Installing NVFlare into $(FLEET), beside $(VENV): half a minute, once."
	@$(BIN)/python -m venv $(FLEET)
	@$(FLEET)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-nvflare.lock
	@$(FLEET)/bin/python -c 'import sys, sysconfig; print(f"import site; site.addsitedir({sys.argv[1]!r})", \
	  file=open(sysconfig.get_path("purelib") + "/beside.pth", "w"))' "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@touch $@

clean:
	rm -rf $(VENV) $(FLEET) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
