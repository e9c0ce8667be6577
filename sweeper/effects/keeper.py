"""Ends a server when nobody is left who wants it. One process per server, in a session of its own.

`python -m sweeper.effects.keeper LAUNCH_ID`, started before the server. It watches the controller and the launching
process by pidfd; when either dies it ends the server's session, cleans the ledger and exits. It holds the launcher's
lock files open, so that a GPU stays locked until its last process is gone. It is nobody's child: what ends the
launcher's group, session or whole tree of processes does not reach it. A line on standard input says that the server
was stopped in order; the end of its standard output, that it is gone itself. Imports the standard library only: it
must be watching before the server is spawned.
"""

import contextlib
import os
import select
import signal
import sys
import time

from sweeper.effects import ledger
from sweeper.effects.process import alive
from sweeper.errors import PreflightError

TICK_S = 2.0
LONGEST_TICK_S = 30.0
"""How often the session's members are recorded: they change while the server starts, and nothing may disturb a load."""
NONCE_SEARCH_S = 3.0
"""A server that was being forked when its launcher died shows its nonce only after exec."""
READY = "watching"
"""The line that says so also says its pid."""


def main(argv: list[str]) -> int:
    """Exit code 0: the server is gone or was stopped in order; 1: something of it lives on."""
    if os.fork():
        os._exit(0)  # the parent ends, so that the child is adopted by init
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    launch_id = argv[0]
    entry = ledger.read_entry(launch_id)
    if entry is None:
        return 0
    os.write(1, f"{READY} {os.getpid()}\n".encode())
    left = _watch(entry)
    return 0 if left is None or _end(left) else 1


def _watch(entry: ledger.Entry) -> ledger.Entry | None:
    """None: the server was stopped in order; else what is left of it: a process that wanted it is gone."""
    wanted = (entry.owner, entry.launcher)
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    watched_by_kernel = True
    for identity in wanted:
        try:
            poll.register(os.pidfd_open(identity.pid), select.POLLIN)
        except ProcessLookupError:
            return entry
        except OSError:  # no pidfd in this kernel or sandbox: the identities are looked at every tick
            watched_by_kernel = False
    tick_s = TICK_S
    while True:
        if not all(alive(identity) for identity in wanted):
            return entry
        before, now = entry, recorded(entry)
        if now is None:
            return None
        entry = now
        changed = entry != before or entry.sid is None
        tick_s = TICK_S if changed or not watched_by_kernel else min(LONGEST_TICK_S, tick_s * 1.5)
        for handle, _ in poll.poll(tick_s * 1000):
            if handle == 0:
                if os.read(0, 64):
                    return None
                poll.unregister(0)  # end of file: the launcher died; its pidfd says so too


def recorded(entry: ledger.Entry) -> ledger.Entry | None:
    """The entry with the session's present members; None: the server was ended, and its entry removed.

    A ledger that was emptied under a living server is written again. One that cannot be written ends no watch.
    """
    found = ledger.read_entry(entry.launch_id)
    if found is None and entry.sid is not None and not ledger.proven_members(entry):
        return None
    with contextlib.suppress(PreflightError, OSError):
        if found is None:
            ledger.write_entry(entry)
        return ledger.record_members(found or entry)
    return found or entry


def _end(entry: ledger.Entry) -> bool:
    """End the session; the entry may still lack its pid, then the nonce is searched for a while."""
    deadline = time.monotonic() + NONCE_SEARCH_S
    while True:
        entry = ledger.read_entry(entry.launch_id) or entry
        found = ledger.proven_members(entry)
        if found or time.monotonic() >= deadline:
            return not ledger.end_entry(entry).remaining
        if entry.sid is not None:  # launched and already gone
            ledger.remove_entry(entry.launch_id)
            return True
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
