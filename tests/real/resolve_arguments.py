"""Run in the engine's interpreter: a JSON list of argument lists on stdin, what SGLang makes of each on stdout."""

import contextlib
import json
import sys

KEYS = (
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "max_running_requests",
    "enable_mixed_chunk",
    "disable_overlap_schedule",
    "speculative_adaptive",
)


def main() -> None:
    answers = []
    with contextlib.redirect_stdout(sys.stderr):
        from sglang.srt.server_args import prepare_server_args

        for argv in json.load(sys.stdin):
            try:
                args = prepare_server_args(argv)
                args.resolve_once()
                args.check_server_args()
                resolved = args.resolved_dict()
                answers.append({key: resolved[key] for key in KEYS})
            except (Exception, SystemExit) as error:  # noqa: BLE001  whatever the engine raises is its answer
                answers.append({"error": f"{type(error).__name__}: {error}"})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
