"""`sweeper nightly`: the same experiment every night, and one sentence in the morning."""

import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from sweeper.core.plain import plain
from sweeper.errors import ConfigError, StoreError


def _one_line(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Schedules and messages hold the path in a line of theirs."""
    if path is not None and not str(path).isprintable():
        raise ConfigError(f"{param.opts[0]} {str(path)!r}: holds control characters; choose another name")
    return path


RAY_JOBS = "RAY_API_SERVER_ADDRESS"
HISTORY = click.option(
    "--history",
    "history_dir",
    type=click.Path(path_type=Path),
    callback=_one_line,
    required=True,
    help="Folder of the history.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")


class _Nightly(click.Group):
    """Lists each command with its whole sentence; click would cut it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.get_short_help_str(limit=200)) for name, found in self.commands.items()])


@click.group(cls=_Nightly)
def command() -> None:
    """Measure the same experiment every night and say whether anything got worse."""


@command.command()
@click.argument("experiment", type=click.Path(path_type=Path))
@HISTORY
@click.option("--policy", type=click.Path(path_type=Path), help="YAML: thresholds, webhooks, retention.")
@click.option("--ray-address", metavar="ADDRESS", help="Join this Ray cluster instead of starting a Ray here.")
@JSON
def run(experiment: Path, history_dir: Path, policy: Path | None, ray_address: str | None, as_json: bool) -> int:
    """Measure EXPERIMENT tonight and compare it with the nights before.

    Safe to call from cron: a night that was cut goes on, a second call while one runs says so and ends. Exit code: 0
    fine, improved or could not tell; 1 regression; 2 could not run; 3 a bug.
    """
    from sweeper.nightly.history import History
    from sweeper.nightly.settings import read_settings

    settings = read_settings(policy)
    history = History(history_dir)
    with history.locked() as ours:
        if not ours:
            _say(f"{history_dir}: process {history.holder()} is at it; nothing is started")
            if as_json:
                click.echo(json.dumps({"state": "running", "pid": history.holder()}))
            return 0
        return _night(experiment, history, settings, ray_address, as_json)


def _night(experiment: Path, history: Any, settings: Any, ray_address: str | None, as_json: bool) -> int:
    from sweeper.effects.facts import load_experiment
    from sweeper.effects.http import post_json
    from sweeper.nightly.bench import Interrupted, SessionBench
    from sweeper.nightly.job import run_night
    from sweeper.nightly.outputs import verdict_document
    from sweeper.nightly.retention import prune
    from sweeper.nightly.webhooks import send

    name = load_experiment(experiment).experiment.name
    try:
        ended = run_night(
            lambda: SessionBench(experiment, ray_address=ray_address),
            history,
            settings.policy(),
            experiment=name,
            say=_say,
        )
    except Interrupted:
        _say("interrupted; the same command goes on with this night")
        return 130
    for line in send(ended.verdict, settings.webhooks, post_json):
        _say(line)
    for line in prune(history, settings.retention, datetime.now(UTC)):
        _say(f"deleted {line}")
    document = verdict_document(ended.verdict)
    click.echo(json.dumps(document, indent=2) if as_json else ended.sentence)
    _say(f"verdict: {ended.folder / 'verdict.json'}; history: {history.root / 'history.html'}")
    return ended.exit_code


@command.command()
@click.argument("experiment", type=click.Path(path_type=Path), callback=_one_line)
@HISTORY
@click.option("--policy", type=click.Path(path_type=Path), callback=_one_line, help="Policy file of `nightly run`.")
@click.option("--systemd", "kind", flag_value="systemd", help="A user timer and its service.")
@click.option("--cron", "kind", flag_value="cron", help="A crontab line and log rotation.")
@click.option("--github-actions", "kind", flag_value="github-actions", help="A workflow for a self-hosted runner.")
@click.option("--ray-job", "kind", flag_value="ray-job", help="A job specification for a Ray cluster.")
@click.option("--at", default="03:00", show_default=True, help="Time of day: local, UTC on GitHub.")
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Write into this folder instead.")
@click.option("--force", is_flag=True, help="Replace files that differ.")
def install(experiment: Path, history_dir: Path, kind: str | None, **options: Any) -> int:
    """Write the files that run EXPERIMENT every night, and show them. Nothing is enabled."""
    if kind is None:
        raise ConfigError(
            "nightly install: no scheduler named; give one of --systemd, --cron, --github-actions, --ray-job"
        )
    from sweeper.effects.facts import load_experiment
    from sweeper.nightly.install import RAY_JOBS_AT, Installation, carried, checked_time, files_for
    from sweeper.nightly.settings import read_settings

    policy: Path | None = options["policy"]
    read_settings(policy)
    job = Installation(
        name=load_experiment(experiment).experiment.name,
        experiment=experiment.resolve(),
        history=history_dir.resolve(),
        policy=policy.resolve() if policy else None,
        python=sys.executable,
        at=checked_time(options["at"]),
        environment=carried(os.environ, sys.executable),
        ray_jobs_at=os.environ.get(RAY_JOBS) or RAY_JOBS_AT,
    )
    folder: Path | None = options["folder"]
    chosen = folder.resolve() if folder else None
    made = files_for(kind, job, home=Path.home(), here=Path.cwd(), folder=chosen)  # type: ignore[arg-type]
    job.history.mkdir(parents=True, exist_ok=True)
    _write_files(made.files, made.folder, force=options["force"])
    click.echo("\nNothing is enabled. When you have read the files:")
    for line in made.enable:
        click.echo(f"  {line}")
    return 0


def _write_files(files: Mapping[str, str], folder: Path, *, force: bool) -> None:
    for name, text in files.items():
        path = folder / name
        if path.exists() and path.read_text(encoding="utf-8") != text and not force:
            raise StoreError(f"{path} exists and differs; look at it, then use --force")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        click.echo(f"wrote {folder / name}:\n")
        click.echo("".join(f"    {line}\n" for line in text.splitlines()))


@command.command()
@HISTORY
@JSON
def status(history_dir: Path, as_json: bool) -> int:
    """What the last night said, and whether one is running."""
    from sweeper.nightly.history import VERDICT, History

    history = History(history_dir)
    file = history_dir / VERDICT
    if not file.exists():
        if history.running():
            told = {"state": "running", "pid": history.holder()}
            click.echo(json.dumps(told) if as_json else f"the first night is running: process {history.holder()}")
            return 0
        raise _no_night(history_dir)
    document = _verdict(file)
    current = history.open_night()
    document["open_night"] = current.night_id if current else None
    document["running"] = history.running()
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return 0
    click.echo(f"night {document['night_id']}: {document['sentence']}")
    for note in document["notes"]:
        click.echo(f"  {note}")
    if document["running"]:
        click.echo(f"running now: process {history.holder()}")
    elif current:
        click.echo(f"night {current.night_id} was cut; the next `nightly run` goes on with it")
    return 0


def _verdict(file: Path) -> dict[str, Any]:
    """What the last night wrote; StoreError when it is damaged."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        document = None
    if (
        not isinstance(document, dict)
        or not {"night_id", "sentence"} <= document.keys()
        or not isinstance(document.get("notes"), list)
    ):
        raise StoreError(f"{file}: damaged; remove it, the next night writes it anew")
    return document


@command.command("history")
@HISTORY
@click.option("--nights", "count", type=click.IntRange(1), default=14, show_default=True, help="The last so many.")
@click.option("--series", default="", help="Only series whose name contains this.")
@JSON
def history_command(history_dir: Path, count: int, series: str, as_json: bool) -> int:
    """The last nights, one line each; with --series the numbers too."""
    from sweeper.nightly.history import History
    from sweeper.present.history_page import night_row
    from sweeper.store.codec import to_plain

    nights = History(_existing(history_dir)).nights()
    if not nights:
        raise _no_night(history_dir)
    chosen = nights[-count:]
    rows = [(night, night_row(night, nights)) for night in chosen]
    if as_json:
        click.echo(json.dumps([{**to_plain(row), "values": _values(night, series)} for night, row in rows], indent=2))
        return 0
    for night, row in rows:
        click.echo(f"{row.night_id}  {row.standing:<13} {row.detail}".rstrip())
        if series:
            for name, value in _values(night, series).items():
                click.echo(f"    {name}: {value:.4g}")
    return 0


def _values(night: Any, series: str) -> dict[str, float]:
    return {name.text: finding.night.value for name, finding in night.findings if series in name.text}


@command.command()
@HISTORY
@click.option("--note", required=True, help="Why the new level is right.")
@click.option("--series", default="", help="Only series whose name contains this; default: all that regressed.")
@click.option("--since", metavar="NIGHT", help="First night of the new level [the one each regression began on].")
def accept(history_dir: Path, note: str, series: str, since: str | None) -> int:
    """Bless the level of the open regressions: from now on it is what nights are compared with."""
    from sweeper.analysis.nightly.record import Accepted
    from sweeper.nightly.history import History

    history = History(_existing(history_dir))
    with history.locked() as ours:
        if not ours:
            raise StoreError("a night is running; wait for its verdict")
        nights = history.nights()
        known = {night.night_id for night in nights}
        if not nights or (since is not None and since not in known):
            raise StoreError(f"no such night; `sweeper nightly history --history {history_dir}` lists them")
        told = [name.text for name, finding in nights[-1].findings if finding.night.flagged and series in name.text]
        if not told and since is None:
            raise StoreError("nothing is regressed here; --since NIGHT starts a level at a night of your choice")
        history.add(Accepted(after=nights[-1].night_id, since=since, pattern=series, note=note, at=_now()))
    for text in told:
        click.echo(f"accepted: {text}")
    return 0


@command.command()
@HISTORY
@click.option("--series", required=True, help="Series whose name contains this.")
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), help="Last day of the silence.")
@click.option("--note", default="", help="Why.")
@click.option("--off", is_flag=True, help="Take mutes of this very --series back.")
def mute(history_dir: Path, series: str, until: datetime | None, note: str, off: bool) -> int:
    """Let series raise no alarm until a date; they are still measured and shown."""
    from sweeper.analysis.nightly.record import Muted
    from sweeper.nightly.history import History

    history = History(_existing(history_dir))
    if off:
        click.echo(f"{history.unmute(series)} mutes taken back")
        return 0
    if until is None or not note:
        raise ConfigError("nightly mute: give --until and --note; a silence ends, and says why")
    history.add(Muted(pattern=series, until=f"{until:%Y-%m-%d}", note=note, at=_now()))
    click.echo(f"muted until {until:%Y-%m-%d}: series with {series!r} in their name")
    return 0


def _existing(history_dir: Path) -> Path:
    """A word for a mistyped folder would be lost in a new one."""
    if not history_dir.is_dir():
        raise StoreError(f"{history_dir}: no such history; correct --history")
    return history_dir


def _no_night(history_dir: Path) -> StoreError:
    return StoreError(f"{history_dir}: no night has ended here yet; run `sweeper nightly run`, or correct --history")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _say(text: str) -> None:
    click.echo(plain(text), err=True)
