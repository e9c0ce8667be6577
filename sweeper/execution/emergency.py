"""Ctrl-C: once in order, twice without waiting. The keepers would end the servers too; this is only sooner."""

import asyncio
import os
import signal
import sys

from sweeper.effects import ledger
from sweeper.execution.controller import Controller


def stop_on_signals(controller: Controller) -> None:
    """The first SIGINT or SIGTERM stops in order, the second at once. Call within the event loop."""
    asked = False

    def stop() -> None:
        nonlocal asked
        if asked:
            try:
                end_servers(controller.run_id)
            finally:  # without a ledger that can be read, the keepers end them
                os._exit(130)
        asked = True
        sys.stderr.write("stopping servers; once more to kill them at once\n")
        sys.stderr.flush()
        controller.interrupt()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)


def end_servers(run_id: str) -> None:
    """Kill every server of this run on this node, by its ledger entry."""
    for entry in ledger.read_entries():
        if entry.run_id == run_id:
            ledger.end_entry(entry, term_wait_s=0.0, kill_wait_s=5.0)
