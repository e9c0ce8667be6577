"""Run in the engine's interpreter: a JSON list of argument lists on stdin, the TCP ports SGLang derives on stdout."""

import contextlib
import json
import sys


def main() -> None:
    answers = []
    with contextlib.redirect_stdout(sys.stderr):
        from sglang.srt.server_args import PortArgs, prepare_server_args

        for argv in json.load(sys.stdin):
            args = prepare_server_args(argv)
            args.resolve_once()
            ports = PortArgs.init_new(args)
            names = (
                ports.tokenizer_ipc_name,
                ports.scheduler_input_ipc_name,
                ports.detokenizer_ipc_name,
                ports.rpc_ipc_name,
                ports.metrics_ipc_name,
                ports.load_collector_ipc_name,
            )
            over_tcp = [int(name.rpartition(":")[2]) for name in names if name.startswith("tcp://")]
            answers.append({"http": args.port, "tcp": over_tcp, "nccl": ports.nccl_port})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
