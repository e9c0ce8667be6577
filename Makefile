# Everything below works on a machine with Python 3.11+ and nothing else installed.
PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
RUN := .venv/bin/python
export UV_PROJECT_ENVIRONMENT := .venv
export UV_PYTHON_DOWNLOADS := never
# The machine's own certificates: company networks bring theirs.
export UV_SYSTEM_CERTS := true
# Where this is set, each of the many processes of the tests would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: quickstart setup test room check fast real browser chromium clean-env

quickstart: setup  ## set everything up and find out whether speculation pays on this machine
	$(RUN) -m sweeper run experiments/quickstart.yaml

setup: .venv/.ready

.uv/bin/uv:
	$(PYTHON) -m venv .uv
	.uv/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.5"

.venv/.ready: pyproject.toml uv.lock | $(filter .uv/bin/uv,$(UV))
	$(UV) sync --frozen --quiet --all-extras --python $(PYTHON)
	@touch $@

test: room check fast real browser  ## the whole test suite, as CI runs it

room:  ## is there room on the disk for all of it?
	@$(PYTHON) scripts/check_room.py

check: setup  ## style, types, layers
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache

fast: setup  ## tests without a server
	$(RUN) -m pytest tests/unit --numprocesses 3 --dist worksteal

real: setup  ## tests on the real SGLang engine, on the CPU; two files at once, for a server's start keeps one core busy
	$(RUN) -m pytest tests/real -m real --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 40

browser: setup chromium  ## the dashboard and the report in a real Chromium; pictures of them go to test-artifacts/
	$(RUN) -m pytest tests/browser

chromium:
	@if [ -n "$$CHROMIUM" ] || command -v chromium chromium-browser google-chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; \
	else \
	  echo "The browser tests need Chromium: install your system's package chromium, or set CHROMIUM=/path/to/it" >&2; exit 2; \
	fi

clean-env:
	rm -rf .venv .uv
