"""Runs in the engine's process: reads an adaptive config with the engine's own reader and says what it understood."""

import json
import sys

from sglang.srt.speculative.adaptive_spec_params import (
    AdaptiveSpeculativeParams,
    resolve_candidate_steps_from_config,
)


def main() -> None:
    path, batch_sizes = sys.argv[1], [int(word) for word in sys.argv[2:]]
    steps = resolve_candidate_steps_from_config(path)
    params = AdaptiveSpeculativeParams(initial_steps=steps[-1], cfg_path=path)
    now = {size: params.get_steps_for_batch(size) for size in batch_sizes}
    print(json.dumps({"steps": steps, "now": now}))


if __name__ == "__main__":
    main()
