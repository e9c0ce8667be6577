"""Files that call `sweeper nightly run`: systemd, cron, GitHub Actions, Ray. Text only; nothing is enabled."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sweeper.errors import ConfigError

Kind = Literal["systemd", "cron", "github-actions", "ray-job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Which night, and when. All paths absolute."""

    name: str
    experiment: Path
    history: Path
    policy: Path | None
    python: str
    at: str
    """`HH:MM`, in the local time of the machine (UTC on GitHub)."""

    @property
    def hour(self) -> int:
        return int(self.at.split(":")[0])

    @property
    def minute(self) -> int:
        return int(self.at.split(":")[1])

    @property
    def secrets(self) -> Path:
        """Variables of webhooks, one NAME=value a line, readable by the owner only."""
        return self.history / "secrets.env"

    def argv(self) -> tuple[str, ...]:
        policy = ("--policy", str(self.policy)) if self.policy else ()
        return (
            *(self.python, "-m", "sweeper", "nightly", "run", str(self.experiment)),
            *("--history", str(self.history), *policy),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What is to be written, and how it is then enabled by hand."""

    files: Mapping[str, str]
    """Name → text."""
    folder: Path
    enable: tuple[str, ...]


def checked_time(text: str) -> str:
    """`HH:MM`; ConfigError otherwise."""
    if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", text):
        raise ConfigError(f"--at {text}: not a time of day; write e.g. 03:00")
    return text


def files_for(kind: Kind, job: Installation, *, home: Path, here: Path, folder: Path | None = None) -> Files:
    """`home`: of the user; `here`: the repository that a workflow belongs to; `folder`: instead of the usual one."""
    match kind:
        case "systemd":
            usual = home / ".config" / "systemd" / "user"
            return _systemd(job, folder or usual, linked=folder not in (None, usual))
        case "cron":
            return _cron(job, folder or job.history / "schedule")
        case "github-actions":
            return _github(job, folder or here / ".github" / "workflows")
        case "ray-job":
            return _ray(job, folder or job.history / "schedule")


def _systemd(job: Installation, folder: Path, *, linked: bool) -> Files:
    unit = f"sweeper-nightly-{job.name}"
    # --no-fork: a signal must reach Sweeper itself, which then ends its servers in order.
    lock = (
        "/usr/bin/flock",
        "--no-fork",
        "--nonblock",
        "--conflict-exit-code",
        "0",
        str(job.history / ".schedule.lock"),
    )
    command = " ".join(_systemd_word(word) for word in (*lock, *job.argv()))
    service = f"""\
# Written by `sweeper nightly install --systemd`. Output goes to the journal, which rotates itself.
[Unit]
Description=Sweeper nightly: {_systemd_text(job.name)}

[Service]
Type=oneshot
WorkingDirectory={_systemd_text(str(job.experiment.parent))}
# Webhook addresses, one NAME=value a line; chmod 600.
EnvironmentFile=-{_systemd_text(str(job.secrets))}
ExecStart={command}
# The first signal ends servers in order; what was measured is kept and the next call goes on.
KillSignal=SIGINT
KillMode=mixed
TimeoutStartSec=20h
TimeoutStopSec=5min
"""
    timer = f"""\
# Written by `sweeper nightly install --systemd`. Persistent: a night that was missed runs after the next boot.
[Unit]
Description=Every night: Sweeper {_systemd_text(job.name)}

[Timer]
OnCalendar=*-*-* {job.at}:00
Persistent=true
AccuracySec=1min

[Install]
WantedBy=timers.target
"""
    made = {f"{unit}.service": service, f"{unit}.timer": timer}
    return Files(
        files=made,
        folder=folder,
        enable=(
            *(f"systemctl --user link {shlex.quote(str(folder / name))}" for name in made if linked),
            "systemctl --user daemon-reload",
            f"systemctl --user enable --now {unit}.timer",
            "loginctl enable-linger   # so that it also runs when nobody is logged in",
            f"journalctl --user -u {unit}   # what it said",
        ),
    )


def _cron(job: Installation, folder: Path) -> Files:
    log = job.history / "nightly.log"
    lock = ("flock", "--no-fork", "--nonblock", "--conflict-exit-code", "0", str(job.history / ".schedule.lock"))
    secrets = shlex.quote(str(job.secrets))
    run = f"set -a; [ -f {secrets} ] && . {secrets}; set +a; cd {shlex.quote(str(job.experiment.parent))} && "
    run += f"{shlex.join((*lock, *job.argv()))} >> {shlex.quote(str(log))} 2>&1"
    line = f"{job.minute} {job.hour} * * * {run}".replace("%", r"\%")
    crontab = f"# Sweeper nightly {job.name}; written by `sweeper nightly install --cron`.\nSHELL=/bin/sh\n{line}\n"
    rotate = f"""\
# Written by `sweeper nightly install --cron`.
"{log}" {{
    monthly
    rotate 12
    compress
    missingok
    notifempty
    copytruncate
}}
"""
    return Files(
        files={"crontab": crontab, "logrotate.conf": rotate},
        folder=folder,
        enable=(
            f"(crontab -l 2>/dev/null; cat {shlex.quote(str(folder / 'crontab'))}) | crontab -",
            f"sudo install -m 644 {shlex.quote(str(folder / 'logrotate.conf'))} /etc/logrotate.d/sweeper-{job.name}",
        ),
    )


def _github(job: Installation, folder: Path) -> Files:
    history = shlex.quote(str(job.history))
    command = shlex.join(job.argv())
    workflow = f"""\
# Written by `sweeper nightly install --github-actions`. Needs a self-hosted runner with the label `gpu` on the machine
# that is measured; the history lives on that machine, outside the checkout.
name: sweeper nightly {job.name}

on:
  schedule:
    - cron: "{job.minute} {job.hour} * * *"
  workflow_dispatch: {{}}

permissions:
  contents: read

concurrency:
  group: sweeper-nightly-{job.name}
  cancel-in-progress: false

jobs:
  nightly:
    runs-on: [self-hosted, gpu]
    timeout-minutes: 1200
    steps:
      - name: Measure and compare
        # Webhook addresses are repository secrets; name them here as the policy file names them:
        # env:
        #   SLACK_WEBHOOK_URL: ${{{{ secrets.SLACK_WEBHOOK_URL }}}}
        run: {json.dumps(command)}
      - name: Summary
        if: always()
        run: {json.dumps(f'cat {history}/summary.md >> "$GITHUB_STEP_SUMMARY"')}
      - name: Keep verdict, JUnit and history
        if: always()
        uses: actions/upload-artifact@v4
        with:
          name: nightly-{job.name}
          path: |
            {job.history}/verdict.json
            {job.history}/summary.md
            {job.history}/junit.xml
            {job.history}/history.html
          if-no-files-found: warn
"""
    return Files(
        files={f"sweeper-nightly-{job.name}.yml": workflow},
        folder=folder,
        enable=(f"git add {shlex.quote(str(folder / f'sweeper-nightly-{job.name}.yml'))}   # then commit and push",),
    )


def _ray(job: Installation, folder: Path) -> Files:
    spec = {
        "entrypoint": shlex.join((*job.argv(), "--ray-address", "auto")),
        "entrypoint_num_cpus": 0,
        "entrypoint_num_gpus": 0,
        "runtime_env": {"env_vars": {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}},
        "metadata": {"job": f"sweeper-nightly-{job.name}"},
    }
    target = shlex.quote(str(folder / "ray-job.json"))
    submit = f"curl --fail-with-body -X POST -H 'Content-Type: application/json' -d @{target} "
    return Files(
        files={"ray-job.json": json.dumps(spec, indent=2) + "\n"},
        folder=folder,
        enable=(
            f'{submit}"$RAY_DASHBOARD_ADDRESS/api/jobs/"   # e.g. http://127.0.0.1:8265; once, to try it',
            f"{job.minute} {job.hour} * * *  …the same line in a crontab, for every night",
        ),
    )


def _systemd_word(word: str) -> str:
    """One word of ExecStart."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if re.fullmatch(r"[A-Za-z0-9_./:=@%+,-]+", escaped) else f'"{escaped}"'


def _systemd_text(text: str) -> str:
    return text.replace("%", "%%")
