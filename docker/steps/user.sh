#!/usr/bin/env bash
# The user that runs servers, and the folders (arguments) that it writes to.
set -euo pipefail
useradd --create-home --uid 10001 sweeper
mkdir -p "$@"
chown 10001 "$@"
