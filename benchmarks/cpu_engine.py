"""Speed of the CPU engine on the toy pair: `python benchmarks/cpu_engine.py [--arms baseline,3-1-4] [--loads 5]`.

Each arm's server is started as `sweeper run` starts it; then, after one load to warm up, `sweeper bench` sends 16
prompts for 64 tokens, with the prefix cache flushed before each load. Meaningful on an idle machine only.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from statistics import median

import httpx

from sweeper.core.trial import ServerConfig, SpecConfig
from sweeper.effects.ports import reserve_port
from sweeper.effects.server import SglangLauncher
from sweeper.engine.argv import launch_plan
from sweeper.toy import unpack

CPU_ENGINE = Path(__file__).parents[1] / "sweeper" / "data" / "cpu_engine"
PROMPTS, TOKENS = 16, 64


def server_of(arm: str, toy: Path) -> ServerConfig:
    spec = None
    if arm != "baseline":
        steps, topk, drafts = (int(part) for part in arm.split("-"))
        spec = SpecConfig(
            algorithm="EAGLE3",
            draft_model_path=str(toy / "draft"),
            num_steps=steps,
            eagle_topk=topk,
            num_draft_tokens=drafts,
        )
    args = {"max_running_requests": 48}
    return ServerConfig(model_path=str(toy / "target"), device="cpu", args=args, env={}, spec=spec, ready_timeout_s=300)


def tok_per_s(url: str, concurrency: int, out: Path) -> float:
    shape = ("--num-prompts", str(PROMPTS), "--max-tokens", str(TOKENS), "--ignore-eos")
    where = ("--prompts", "toy:all", "--concurrency", str(concurrency), "--out", str(out))
    httpx.post(f"{url}/flush_cache", timeout=30).raise_for_status()
    subprocess.run([sys.executable, "-m", "sweeper", "bench", url, *where, *shape], check=True, capture_output=True)
    return float(json.loads(out.read_text())["output_tps"])


async def measure(arm: str, folder: Path, loads: int) -> None:
    began = time.monotonic()
    with reserve_port(holder=f"benchmark {os.getpid()}") as port:
        plan = launch_plan(
            server_of(arm, folder / "toy"),
            launch_id=uuid.uuid4().hex[:12],
            gpu_ids=(),
            port=port,
            log_path=folder / f"{arm}.log",
            python=sys.executable,
            cpu_engine_dir=CPU_ENGINE,
        )
        launched = SglangLauncher().launch(
            plan, run_id="cpu-engine-benchmark", owner_pid=os.getpid(), on_phase=lambda phase, text: None
        )
        async with launched:
            print(f"{arm}: ready after {time.monotonic() - began:.1f} s", flush=True)
            for concurrency in (1, 8):
                await asyncio.to_thread(tok_per_s, plan.base_url, concurrency, folder / "warm.json")
                found = [
                    await asyncio.to_thread(tok_per_s, plan.base_url, concurrency, folder / f"{number}.json")
                    for number in range(loads)
                ]
                told = " ".join(f"{rate:.0f}" for rate in found)
                print(f"{arm}: concurrency {concurrency}: median {median(found):.0f} tok/s of {told}", flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", default="baseline,3-1-4")
    parser.add_argument("--loads", type=int, default=5)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unpack(folder / "toy")
        for arm in options.arms.split(","):
            await measure(arm, folder, options.loads)


if __name__ == "__main__":
    asyncio.run(main())
