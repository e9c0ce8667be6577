"""What we launched on this node, on disk, so that any later run can find it and end exactly that.

One fixed folder a node (`state_dir`), because a ledger that moves with the results folder cannot be found by the next
run. An entry is written before the process exists and removed only when its session is really gone. Standard library
only: the keeper imports this module.
"""

import contextlib
import json
import os
import stat
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from sweeper.effects.process import (
    LAUNCH_ID_VARIABLE,
    Ending,
    ProcessId,
    ProcessInfo,
    alive,
    boot_id,
    end_sessions,
    environment_of,
    process_table,
    processes_with_launch_id,
    session_members,
)
from sweeper.errors import DiskError, PreflightError

STATE_DIR_VARIABLE = "SWEEPER_STATE_DIR"
CLOCK_SLACK_TICKS = 200
"""Two seconds: a child's start time is read after its parent's entry was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One server (or what was to become one) of ours on this node."""

    launch_id: str
    run_id: str
    state: Literal["launching", "launched"]
    owner: ProcessId
    """The controller: when it dies, this server has no reason to live."""
    launcher: ProcessId
    """The process that started the server: the controller itself, or a pool worker."""
    gpu_uuids: tuple[str, ...]
    gpu_ids: tuple[int, ...]
    port: int
    log_path: str
    server: ProcessId | None = None
    """The session's leader; None until it was spawned."""
    keeper: ProcessId | None = None
    members: tuple[tuple[int, int], ...] = ()
    """(pid, start ticks) seen in the session, so that it is known for ours after its leader died."""

    @property
    def sid(self) -> int | None:
        return self.server.pid if self.server else None


def state_dir() -> Path:
    """Where this node's ledger, locks and port reservations live; made on first use, for its owner only.

    Raises PreflightError (DiskError) when it cannot be used: without a ledger nothing may be started.
    """
    given = os.environ.get(STATE_DIR_VARIABLE)
    if given:
        path = Path(given)
    elif os.environ.get("XDG_STATE_HOME"):
        path = Path(os.environ["XDG_STATE_HOME"]) / "sweeper" / os.uname().nodename
    else:
        path = Path("/var/tmp") / f"sweeper-{os.getuid()}"  # noqa: S108  per user, 0700, owner checked
    advice = f"set {STATE_DIR_VARIABLE} to a folder of your own on a local disk"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = path.lstat()  # a link in a shared folder is somebody's trap
    except OSError as error:
        raise DiskError(f"{path}: the ledger cannot be kept here: {error.strerror}; {advice}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PreflightError(f"{path} is not a folder of this user; {advice}")
    if status.st_mode & 0o022:
        try:
            path.chmod(0o700)
        except OSError as error:
            raise DiskError(f"{path}: others may write here: {error.strerror}; {advice}") from error
    return path


def state_folder(name: str) -> Path:
    """One of the folders in it, made on first use. Raises as `state_dir` does."""
    folder = state_dir() / name
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        raise DiskError(f"{folder}: cannot be made: {error.strerror}; free the disk or unlock it") from error
    return folder


def write_entry(entry: Entry) -> None:
    """Atomic and durable: after a kill at any moment there is the old entry or the new one, whole.

    Raises DiskError when it cannot be written: a server that the ledger does not know must not be started.
    """
    path = _path(entry.launch_id)
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("w") as file:
            json.dump(asdict(entry), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise DiskError(f"{path.parent}: the ledger cannot be written: {error.strerror}; free or unlock it") from error


def remove_entry(launch_id: str) -> None:
    """One that cannot be removed names nothing that lives any more: the next cleaning tries again."""
    with contextlib.suppress(OSError, PreflightError):
        _path(launch_id).unlink(missing_ok=True)
        _sync_folder(_folder())


def read_entry(launch_id: str) -> Entry | None:
    """None: there is no such entry (any more), or it cannot be read."""
    try:
        return _parse(json.loads(_path(launch_id).read_text()))
    except (OSError, PreflightError, ValueError, KeyError, TypeError):
        return None


def read_entries() -> tuple[Entry, ...]:
    """Every entry of this boot; entries of earlier boots name nothing that lives and are removed."""
    entries = []
    for path in sorted(_folder().glob("*.json")):
        entry = read_entry(path.stem)
        if entry is None:
            continue
        if entry.launcher.boot_id != boot_id():
            remove_entry(path.stem)
            continue
        entries.append(entry)
    return tuple(entries)


def unreadable_entries() -> tuple[Path, ...]:
    """Ledger files that are not whole entries: shown to the user, never guessed at."""
    return tuple(path for path in sorted(_folder().glob("*.json")) if path.exists() and read_entry(path.stem) is None)


def orphaned(entry: Entry) -> bool:
    """Is nobody left who wants this server? True when its controller or its launching process is gone."""
    return not (alive(entry.owner) and alive(entry.launcher))


def proven_members(
    entry: Entry,
    table: Sequence[ProcessInfo] | None = None,
    environments: Mapping[int, Mapping[str, str] | None] | None = None,
) -> tuple[ProcessInfo, ...]:
    """The living processes that are this entry's, proved against pid reuse; empty when none can be proved.

    A session is ours when its leader is the very process we started; or, after the leader died, when a member was
    recorded by the keeper or carries our nonce (while any member lives, the kernel gives the session's number to nobody
    else). A member whose environment says something else disproves it. A process that left the session is ours by the
    nonce alone. `table` and `environments` are given by tests; a table knows no such strays.
    """
    strays = processes_with_launch_id(entry.launch_id) if table is None else ()
    session = () if entry.sid is None else _proven_session(entry, table, environments)
    return (*session, *(info for info in strays if info not in session))


def _proven_session(
    entry: Entry,
    table: Sequence[ProcessInfo] | None,
    environments: Mapping[int, Mapping[str, str] | None] | None,
) -> tuple[ProcessInfo, ...]:
    assert entry.sid is not None
    members = session_members(entry.sid, table)
    if not members or entry.server is None:
        return ()
    leader = next((info for info in members if info.pid == entry.sid), None)
    if leader is not None:
        return members if leader.start_ticks == entry.server.start_ticks else ()
    if {(info.pid, info.start_ticks) for info in members} & set(entry.members):
        return members
    known = {info.pid: environment_of(info.pid) for info in members} if environments is None else environments
    if any((known.get(info.pid) or {}).get(LAUNCH_ID_VARIABLE) == entry.launch_id for info in members):
        return members
    unreadable = all(known.get(info.pid) is None for info in members)
    not_older = all(info.start_ticks >= entry.server.start_ticks - CLOCK_SLACK_TICKS for info in members)
    return members if unreadable and not_older else ()


def end_entry(entry: Entry, *, term_wait_s: float = 10.0, kill_wait_s: float = 20.0) -> Ending:
    """End what this entry stands for and remove it when nothing of it remains."""
    sids = {info.sid for info in proven_members(entry)}
    if entry.sid is not None:  # a stray's session may have been somebody's before
        sids &= {entry.sid}
    ending = end_sessions(sids, entry.launch_id, term_wait_s=term_wait_s, kill_wait_s=kill_wait_s)
    if not ending.remaining:
        remove_entry(entry.launch_id)
    return ending


def record_members(entry: Entry) -> Entry:
    """The entry with the session's present members added, written only when something is new."""
    seen = {(info.pid, info.start_ticks) for info in proven_members(entry, process_table())} if entry.sid else set()
    if seen <= set(entry.members):
        return entry
    updated = replace(entry, members=tuple(sorted(seen)))
    write_entry(updated)
    return updated


def _folder() -> Path:
    return state_folder("ledger")


def _path(launch_id: str) -> Path:
    if not launch_id or "/" in launch_id or launch_id.startswith("."):
        raise ValueError(f"not a launch id: {launch_id!r}")
    return _folder() / f"{launch_id}.json"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _parse(data: dict[str, Any]) -> Entry:
    def identity(value: dict[str, Any] | None) -> ProcessId | None:
        return ProcessId(**value) if value else None

    owner, launcher = identity(data["owner"]), identity(data["launcher"])
    if owner is None or launcher is None:
        raise ValueError("an entry without owner")
    return Entry(
        launch_id=str(data["launch_id"]),
        run_id=str(data["run_id"]),
        state=data["state"],
        owner=owner,
        launcher=launcher,
        gpu_uuids=tuple(data["gpu_uuids"]),
        gpu_ids=tuple(data["gpu_ids"]),
        port=int(data["port"]),
        log_path=str(data["log_path"]),
        server=identity(data["server"]),
        keeper=identity(data.get("keeper")),
        members=tuple((int(pid), int(ticks)) for pid, ticks in data["members"]),
    )
