"""The dashboard behind a socket."""

from types import FrameType

import uvicorn
from fastapi import FastAPI


class DashboardServer(uvicorn.Server):
    """Ends live streams when it is asked to stop: browsers would hold them open for ever."""

    def __init__(self, app: FastAPI) -> None:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2
        )
        super().__init__(config)
        self._room = app.state.room

    def stop(self) -> None:
        self._room.closing.set()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._room.closing.set()
        super().handle_exit(sig, frame)
