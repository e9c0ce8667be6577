#!/usr/bin/env bash
# Writes engine.python into the shipped experiments for GPUs: the interpreter given as the only argument has SGLang.
set -euo pipefail
cd "$SWEEPER_HOME"
for experiment in experiments/*.yaml; do
  sed -i "s|^  device: cuda *\(#.*\)\?\$|  device: cuda\n  python: $1|; s|^engine: {device: cuda|engine: {python: $1, device: cuda|" "$experiment"
done
