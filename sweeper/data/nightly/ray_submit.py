"""Written by `sweeper nightly install --ray-job`: submits ray-job.json, shows what the job says, ends as it ends.

RAY_API_SERVER_ADDRESS: where the cluster's job server listens. Exit code: the night's own (0 fine, 1 regression,
2 could not run, 3 a bug); 2 as well when the job could not be submitted or was stopped.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

ADDRESS = os.environ.get("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:8265")
TOKEN = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")).expanduser()


async def follow(client: Any, job: str) -> None:
    async for part in client.tail_job_logs(job):
        print(part, end="", flush=True)


def main() -> int:
    if TOKEN.exists():  # a cluster that is started where there is a token asks for it; read when ray is imported
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    from ray.exceptions import RayError
    from ray.job_submission import JobSubmissionClient

    spec = json.loads(Path(__file__).with_name("ray-job.json").read_text(encoding="utf-8"))
    try:
        client = JobSubmissionClient(ADDRESS)
        job = client.submit_job(**spec)
        asked = "RAY_AUTH_MODE=token " if os.environ.get("RAY_AUTH_MODE") == "token" else ""
        print(f"job {job}; to end it in order: {asked}ray job stop {job} --address {ADDRESS}", flush=True)
        while not client.get_job_status(job).is_terminal():
            asyncio.run(follow(client, job))
        info = client.get_job_info(job)
    except (OSError, RuntimeError, RayError) as error:
        print(f"{ADDRESS}: {error} (the job server comes with ray[default] on the head node)", file=sys.stderr)
        return 2
    print(f"job {job}: {info.status.value}, exit code {info.driver_exit_code}")
    return 2 if info.driver_exit_code is None else info.driver_exit_code


if __name__ == "__main__":
    sys.exit(main())
