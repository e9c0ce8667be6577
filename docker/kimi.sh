#!/usr/bin/env bash
# The Kimi-K2.5 sweep on one 8-GPU node, in the container.
#   docker/kimi.sh MODELS_DIR [plan | check | run | nightly]      default: check, then run
# MODELS_DIR holds what experiments/kimi_eagle3.yaml names below /models, and a Hugging Face cache in hub/.
set -euo pipefail
models="${1:?usage: docker/kimi.sh MODELS_DIR [plan|check|run|nightly]}"
what="${2:-all}"
image="${SWEEPER_IMAGE:-sweeper}"
here="$(cd "$(dirname "$0")/.." && pwd)"
experiment=/opt/sweeper/experiments/kimi_eagle3.yaml

[[ -d "$models" ]] || { echo "kimi.sh: $models: no such folder" >&2; exit 2; }
count="$(nvidia-smi --query-gpu=index --format=csv,noheader | wc -l)"
[[ "$count" -ge 8 ]] || { echo "kimi.sh: this node has $count GPUs, the experiment takes 8" >&2; exit 2; }
# Ledger and GPU locks: the very folder of a Sweeper outside the container, so that each sees the other's servers.
state="${SWEEPER_STATE_DIR:-/var/tmp/sweeper-$(id -u)}"
mkdir -p "$here/results" "$here/history"
mkdir -p -m 700 "$state"

sweeper() {
  # --pid=host: foreign holders of a GPU can be named. --ipc=host: NCCL's shared memory. --init: no zombies.
  docker run --rm --init --gpus all --pid=host --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 \
    --user "$(id -u):$(id -g)" -e HOME=/tmp -e HF_HUB_CACHE=/models/hub -e HF_HUB_OFFLINE=1 \
    -v "$models:/models:ro" -v "$here/results:/results" -v "$here/history:/history" -v "$state:/state" \
    "$image" "$@"
}

case "$what" in
  plan) sweeper plan "$experiment" ;;
  check) sweeper check "$experiment" ;;
  run) sweeper run "$experiment" --out /results ;;
  nightly) sweeper nightly run "$experiment" --history /history ;;
  all) sweeper check "$experiment" && sweeper run "$experiment" --out /results ;;
  *) echo "kimi.sh: $what: choose plan, check, run or nightly" >&2; exit 2 ;;
esac
