"""Files that call `sweeper nightly run`: systemd, cron, GitHub Actions, Ray. Text only; nothing is enabled."""

import getpass
import grp
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Literal

from sweeper.errors import ConfigError

Kind = Literal["systemd", "cron", "github-actions", "ray-job"]

CARRIED = (
    *("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE"),
    *("XDG_CACHE_HOME", "XDG_STATE_HOME", "SWEEPER_STATE_DIR"),
)
"""Variables that a night needs as they are in the shell in which the experiment was tried: schedulers start with next
to none, and an engine that compiles its kernels at its first start does not find the compiler."""

RAY_JOBS_AT = "http://127.0.0.1:8265"
RAY_VARIABLES = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_JOB_STOP_WAIT_TIME_S": "300"}
"""No second environment beside the one we run in. And `ray job stop` kills after 3 s where nobody says otherwise: too
soon for servers that are to end in order."""


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
    environment: Mapping[str, str] = field(default_factory=dict)
    """What `carried` found."""
    ray_jobs_at: str = RAY_JOBS_AT
    """Where the job server of a Ray cluster listens."""

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


def carried(environ: Mapping[str, str], python: str) -> dict[str, str]:
    """What the files set, of `environ`; the interpreter's own folder comes first on the PATH."""
    found = {name: environ[name] for name in CARRIED if environ.get(name)}
    folders = [str(Path(python).parent), *found.get("PATH", "/usr/bin:/bin").split(":")]
    return found | {"PATH": ":".join(dict.fromkeys(filter(None, folders)))}


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
    variables = "".join(
        f"Environment={_systemd_quoted(f'{name}={value}')}\n" for name, value in job.environment.items()
    )
    service = f"""\
# Written by `sweeper nightly install --systemd`. Output goes to the journal, which rotates itself.
[Unit]
Description=Sweeper nightly: {_systemd_text(job.name)}

[Service]
Type=oneshot
WorkingDirectory={_systemd_text(str(job.experiment.parent))}
# As in the shell that wrote this file; a user's service manager knows less.
{variables}# Webhook addresses, one NAME=value a line; chmod 600.
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
    script = folder / f"nightly-{job.name}.sh"
    lock = ("flock", "--no-fork", "--nonblock", "--conflict-exit-code", "0", str(job.history / ".schedule.lock"))
    secrets = shlex.quote(str(job.secrets))
    variables = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in job.environment.items())
    run = f"""\
#!/bin/sh
# Written by `sweeper nightly install --cron`, which calls it; it can be run by hand as well.
cd {shlex.quote(str(job.experiment.parent))} || exit 2
exec >> {shlex.quote(str(log))} 2>&1

# As in the shell that wrote this file; cron knows next to nothing.
{variables}
# Webhook addresses, one NAME=value a line; chmod 600.
set -a
[ ! -f {secrets} ] || . {secrets}
set +a

exec {shlex.join((*lock, *job.argv()))}
"""
    # One short line: some crons cut long ones, and each % would end the command.
    line = f"{job.minute} {job.hour} * * * /bin/sh {shlex.quote(str(script))}".replace("%", r"\%")
    crontab, own = shlex.quote(str(folder / "crontab")), shlex.quote(script.name)
    return Files(
        files={script.name: run, "crontab": line + "\n", "logrotate.conf": _rotation(log)},
        folder=folder,
        enable=(
            f"sh {shlex.quote(str(script))}; tail {shlex.quote(str(log))}   # a night as cron runs it, to try it",
            f"(crontab -l 2>/dev/null | grep -vF {own}; cat {crontab}) | crontab -",
            _enable_rotation(job, folder),
        ),
    )


def _enable_rotation(job: Installation, folder: Path) -> str:
    written = shlex.quote(str(folder / "logrotate.conf"))
    return f"sudo install -m 644 {written} /etc/logrotate.d/sweeper-{job.name}"


def _rotation(log: Path) -> str:
    # Without `su` logrotate refuses folders that a group may write to.
    return f"""\
# Written by `sweeper nightly install`.
"{log}" {{
    su {getpass.getuser()} {grp.getgrgid(os.getgid()).gr_name}
    monthly
    rotate 12
    compress
    missingok
    notifempty
    copytruncate
}}
"""


def _github(job: Installation, folder: Path) -> Files:
    history = shlex.quote(str(job.history))
    command = shlex.join(job.argv())
    variables = "".join(f"          {name}: {json.dumps(value)}\n" for name, value in job.environment.items())
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
        # As in the shell that wrote this file. Webhook addresses are repository secrets; add them here by the names
        # that the policy file gives them:
        #   SLACK_WEBHOOK_URL: ${{{{ secrets.SLACK_WEBHOOK_URL }}}}
        env:
{variables}        run: {json.dumps(command)}
      - name: Summary
        if: always()
        run: {json.dumps(f'[ ! -f {history}/summary.md ] || cat {history}/summary.md >> "$GITHUB_STEP_SUMMARY"')}
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
    secrets = shlex.quote(str(job.secrets))
    spec = {
        # Ray shows entrypoints and environments to whoever sees its dashboard; secrets stay in their file.
        "entrypoint": f"set -a; [ ! -f {secrets} ] || . {secrets}; set +a; "
        f"exec {shlex.join((*job.argv(), '--ray-address', 'auto'))}",
        "entrypoint_num_cpus": 0,
        "entrypoint_num_gpus": 0,
        "runtime_env": {"env_vars": {**job.environment, **RAY_VARIABLES}},
        "metadata": {"job": f"sweeper-nightly-{job.name}"},
    }
    script, log = folder / f"ray-submit-{job.name}.py", job.history / "nightly.log"
    submit = shlex.join((job.python, str(script)))
    told = f"RAY_API_SERVER_ADDRESS={shlex.quote(job.ray_jobs_at)} {submit} >> {shlex.quote(str(log))} 2>&1"
    line = f"{job.minute} {job.hour} * * * {told}".replace("%", r"\%")
    crontab = folder / "crontab-ray"
    return Files(
        files={
            "ray-job.json": json.dumps(spec, indent=2) + "\n",
            script.name: _submit_script(),
            crontab.name: line + "\n",
            "logrotate.conf": _rotation(log),
        },
        folder=folder,
        enable=(
            f"RAY_API_SERVER_ADDRESS={shlex.quote(job.ray_jobs_at)} {submit}   # a night now, to try it",
            f"(crontab -l 2>/dev/null | grep -vF {script.name}; cat {shlex.quote(str(crontab))}) | crontab -",
            _enable_rotation(job, folder),
        ),
    )


def _submit_script() -> str:
    return (resources.files("sweeper") / "data" / "nightly" / "ray_submit.py").read_text(encoding="utf-8")


def _systemd_word(word: str) -> str:
    """One word of ExecStart."""
    return _systemd_quoted(word.replace("$", "\0")).replace("\0", "$$")


def _systemd_quoted(word: str) -> str:
    """One word of Environment, where a dollar is a dollar."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return escaped if re.fullmatch(r"[A-Za-z0-9_./:=@%+,-]+", escaped) else f'"{escaped}"'


def _systemd_text(text: str) -> str:
    return text.replace("%", "%%")
