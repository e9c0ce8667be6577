#!/usr/bin/env bash
# gcc: triton and the engine compile small helpers when they start; libnuma1: the engine asks for it.
set -euo pipefail
apt-get update
apt-get install -y --no-install-recommends gcc libc6-dev libnuma1
rm -rf /var/lib/apt/lists/*
