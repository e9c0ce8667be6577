"""Stands in for SGLang's process: its log lines, its HTTP answers and its ways to fail, by the first argument.

Run as `python stub_engine.py BEHAVIOUR --port N --served-model-name NAME`; standard library only.
"""

import http.server
import json
import os
import signal
import subprocess
import sys
import time

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free."


def say(text: str) -> None:
    if sys.argv[1] != "silent":
        print(f"[2026-01-02 03:04:05] {text}", flush=True)


def flag(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


class Handler(http.server.BaseHTTPRequestHandler):
    name = ""
    behaviour = "good"
    refusals = 2

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, status: int, body: object) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def do_GET(self) -> None:
        if self.path == "/server_info":
            info = {"version": "0.5.23", "served_model_name": self.name, "api_key": "sk-very-secret-0123456789"}
            self.answer(200, {**info, "model_path": "/m", "speculative_algorithm": None})
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or "{}")
        if self.path == "/generate":
            tokens = body["sampling_params"]["max_new_tokens"]
            if self.behaviour == "refusing":
                self.answer(500, {"error": {"message": "no draft worker"}})
                return
            self.answer(200, {"meta_info": {"completion_tokens": 1 if self.behaviour == "short" else tokens}})
        elif Handler.refusals > 0:
            Handler.refusals -= 1
            self.answer(400, {"error": "not idle"})
        else:
            self.answer(200, {})


def serve(behaviour: str) -> None:
    say("Load weight begin. avail mem=10.00 GB")
    say("Load weight end. elapsed=0.08 s, type=LlamaForCausalLM, avail mem=9.0 GB")
    Handler.behaviour = behaviour
    Handler.name = "yesterday" if behaviour == "impostor" else flag("--served-model-name")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(flag("--port"))), Handler)
    say("INFO:     Application startup complete.")
    say("The server is fired up and ready to roll!")
    if behaviour == "dies-later":
        import threading

        threading.Timer(1.0, crash).start()
    server.serve_forever()


def crash() -> None:
    say("Scheduler hit an exception: torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    behaviour = sys.argv[1]
    if behaviour == "bad-flag":
        print("sglang serve: error: unrecognized arguments: --no-such-flag 3", flush=True)
        sys.exit(2)
    if behaviour == "oom":
        say("Load weight begin. avail mem=10.00 GB")
        print('Traceback (most recent call last):\n  File "x.py", line 1, in load_model\n' + OOM, flush=True)
        sys.exit(1)
    if behaviour == "hang":
        say("Load weight begin. avail mem=10.00 GB")
        time.sleep(1000)
    if behaviour == "doomed":
        say("Scheduler hit an exception: RuntimeError: selected index k out of range")
        time.sleep(1000)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(
            [sys.executable, "-c", "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)"]
        )
    if behaviour == "strays":
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    serve(behaviour)


if __name__ == "__main__":
    main()
