# Everything below works on a machine with Python 3.11+ and nothing else installed.
PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
RUN := .venv/bin/python
export UV_PROJECT_ENVIRONMENT := .venv

.PHONY: quickstart setup test check fast real clean-env

setup: .venv/.ready

.uv/bin/uv:
	$(PYTHON) -m venv .uv
	.uv/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.5"

.venv/.ready: pyproject.toml uv.lock | $(filter .uv/bin/uv,$(UV))
	$(UV) sync --frozen --quiet --all-extras --python $(PYTHON)
	@touch $@

quickstart: setup
	$(RUN) -m sweeper run experiments/quickstart.yaml

test: check fast real

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache

fast: setup
	$(RUN) -m pytest tests/unit

real: setup
	$(RUN) -m pytest tests/real -m real

clean-env:
	rm -rf .venv .uv
