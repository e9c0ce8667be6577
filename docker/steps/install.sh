#!/usr/bin/env bash
# Sweeper from the lock into $UV_PROJECT_ENVIRONMENT. Arguments go to `uv sync`.
set -euo pipefail
cd "$SWEEPER_HOME"
python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check "uv>=0.5"
python3 -m uv sync --frozen --quiet --python "$(command -v python3)" "$@"
"$UV_PROJECT_ENVIRONMENT/bin/sweeper" --version
