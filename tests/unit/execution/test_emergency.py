"""Ctrl-C for the second time."""

import asyncio
import os
import signal
from pathlib import Path
from typing import cast

import pytest

from sweeper.effects.ledger import STATE_DIR_VARIABLE
from sweeper.execution.controller import Controller
from sweeper.execution.emergency import stop_on_signals


class Asked:
    run_id = "r"
    interrupts = 0

    def interrupt(self) -> None:
        self.interrupts += 1


async def test_the_second_interrupt_ends_the_process_although_the_ledger_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder can be made here")
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(tmp_path / "file" / "state"))
    ended = asyncio.Event()
    codes: list[int] = []

    def leave(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(os, "_exit", leave)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    controller = Asked()
    stop_on_signals(cast(Controller, controller))
    try:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)
        await asyncio.wait_for(ended.wait(), 10)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    assert (codes, controller.interrupts) == ([130], 1)
