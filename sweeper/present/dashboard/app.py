"""The dashboard as an ASGI app: read-only, every asset its own, nothing outside the results folder."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

# plotly uses pandas as soon as it is in sys.modules, also while another thread is still importing it.
import pandas  # noqa: F401
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.exceptions import HTTPException

from sweeper.analysis.figures import FIGURES
from sweeper.errors import StoreError
from sweeper.present.dashboard import live, nightly_pages, run_pages, trial_pages
from sweeper.present.dashboard.filters import Filter
from sweeper.present.dashboard.render import ASSETS, asset, figure, page
from sweeper.present.dashboard.room import NotHere, Room
from sweeper.present.dashboard.security import Guard
from sweeper.present.dashboard.shelf import Shelf
from sweeper.present.dashboard.trial_pages import Chosen, LogPlace, Place
from sweeper.present.report import render_html
from sweeper.store.reader import read_run

RUN = "/run/{experiment}/{run_id}"
TRIAL = RUN + "/trial/{trial_id}"
Start = Annotated[int | None, Query(ge=0, le=10**6)]
Byte = Annotated[int | None, Query(ge=0, le=2**62)]
PageNumber = Annotated[int, Query(ge=1, le=10**6)]
Word = Annotated[str, Query(max_length=200)]
RunName = Annotated[str, Query(max_length=600)]


def create_app(results: Path, *, histories: tuple[Path, ...] = (), token: str | None = None) -> FastAPI:
    """`results`: a results folder, an experiment's, or one run. `histories`: of nightly
    jobs, beside those inside it. With `token` every request must bring it."""
    room = Room(shelf=Shelf(results, histories))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        room.close()

    app = FastAPI(title="Sweeper", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.room = room
    _add_hall(app, room)
    _add_runs(app, room)
    _add_trials(app, room)
    _add_figures(app, room)
    _add_errors(app, room)
    app.add_middleware(Guard, token=token)
    return app


def _add_hall(app: FastAPI, room: Room) -> None:
    @app.get("/")
    def index(find: Word = "", page: PageNumber = 1) -> HTMLResponse:
        return run_pages.index(room, find, page)

    @app.get("/compare")
    def compare(a: RunName = "", b: RunName = "") -> HTMLResponse:
        return run_pages.compare(room, a, b)

    @app.get("/nightly")
    def nightly(history: RunName = "") -> HTMLResponse:
        return nightly_pages.nightly(room, history)

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in ASSETS:
            raise NotHere("There is no such file.")
        # Pages name the version in the address, so that a browser may keep these.
        return Response(asset(name), media_type=ASSETS[name], headers={"Cache-Control": "max-age=3600"})


def _add_runs(app: FastAPI, room: Room) -> None:
    watchers = live.Watchers()

    @app.get(RUN)
    def run(request: Request, experiment: str, run_id: str) -> Response:
        if run_id == "latest":
            key, _ = room.find(experiment, run_id)
            return RedirectResponse(key.url, status_code=307)
        try:
            return run_pages.run(room, experiment, run_id, Filter.parse(dict(request.query_params)))
        except StoreError as error:
            return run_pages.broken(room, experiment, run_id, str(error))

    @app.get(RUN + "/live")
    def watch(experiment: str, run_id: str) -> Response:
        sight = room.sight(experiment, run_id)
        if watchers.full:
            return PlainTextResponse("too many are watching\n", status_code=503, headers={"Retry-After": "10"})
        return StreamingResponse(live.stream(room, sight, watchers), media_type="text/event-stream")

    @app.get(RUN + "/report")
    def report(experiment: str, run_id: str) -> Response:
        """The self-contained file, made anew; as a download, so that its scripts never run beside our pages."""
        _, path = room.find(experiment, run_id)
        name = "report.html"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return HTMLResponse(render_html(read_run(path)).encode(errors="replace"), headers=headers)


def _add_trials(app: FastAPI, room: Room) -> None:
    @app.get(TRIAL)
    def trial(  # noqa: PLR0913  what an address may say
        experiment: str,
        run_id: str,
        trial_id: str,
        start: Start = None,
        repeat: Start = None,
        category: Word = "",
        sort: Word = "order",
        page: PageNumber = 1,
    ) -> HTMLResponse:
        chosen = Chosen(start=start, repeat=repeat, category=category, sort=sort, page=page)
        return trial_pages.trial(room, room.sight(experiment, run_id), trial_id, chosen)

    @app.get(TRIAL + "/request/{start}/{repeat}/{index}")
    def one_request(experiment: str, run_id: str, trial_id: str, start: int, repeat: int, index: int) -> HTMLResponse:
        place = Place(trial_id=trial_id, start=start, repeat=repeat, index=index)
        return trial_pages.one_request(room, room.sight(experiment, run_id), place)

    @app.get(RUN + "/log/{group_id}/{start}")
    def log(  # noqa: PLR0913  what an address may say
        experiment: str,
        run_id: str,
        group_id: str,
        start: int,
        begin: Byte = None,
        find: Word = "",
        at: Word = "",
    ) -> HTMLResponse:
        sight = room.sight(experiment, run_id)
        return trial_pages.log(room, sight, group_id, start, LogPlace(begin=begin, find=find, moment=at))


def _add_figures(app: FastAPI, room: Room) -> None:
    """Figures are drawn when they come into view, each from an address of its own."""

    @app.get(RUN + "/figure/{name}")
    def run_figure(request: Request, experiment: str, run_id: str, name: str) -> Response:
        if name not in FIGURES:
            raise NotHere("There is no such figure.")
        chosen = Filter.parse(dict(request.query_params))
        return figure(room.figure(room.sight(experiment, run_id), name, chosen))

    @app.get(TRIAL + "/figure/{start}/{repeat}")
    def requests_figure(experiment: str, run_id: str, trial_id: str, start: int, repeat: int) -> Response:
        place = Place(trial_id=trial_id, start=start, repeat=repeat)
        return figure(trial_pages.request_figure(room, room.sight(experiment, run_id), place))

    @app.get(TRIAL + "/figure/{start}/{repeat}/{index}")
    def request_figure(experiment: str, run_id: str, trial_id: str, start: int, repeat: int, index: int) -> Response:
        place = Place(trial_id=trial_id, start=start, repeat=repeat, index=index)
        return figure(trial_pages.request_figure(room, room.sight(experiment, run_id), place))

    @app.get("/nightly/figure/{quantity}")
    def nightly_figure(quantity: str, history: RunName = "") -> Response:
        return figure(nightly_pages.nightly_figure(room, history, quantity))

    @app.get("/compare/figure")
    def compare_figure(a: RunName = "", b: RunName = "") -> Response:
        return figure(run_pages.compare_figure(room, a, b))


def _add_errors(app: FastAPI, room: Room) -> None:
    def lost(status: int, title: str) -> Callable[[Request, Exception], HTMLResponse]:
        def handle(request: Request, error: Exception) -> HTMLResponse:
            detail = str(error.detail) if isinstance(error, HTTPException) else str(error)
            return page(
                "lost.html.j2", title=title, detail=detail, results=str(room.shelf.results), status=status, refresh_s=0
            )

        return handle

    def status(request: Request, error: Exception) -> HTMLResponse:
        assert isinstance(error, HTTPException)
        title = "Nothing here" if error.status_code == 404 else "This cannot be asked"
        return lost(error.status_code, title)(request, error)

    def senseless(request: Request, error: Exception) -> HTMLResponse:
        return lost(400, "This address makes no sense")(request, NotHere("A part of it is not what it should be."))

    app.add_exception_handler(NotHere, lost(404, "Nothing here"))
    app.add_exception_handler(StoreError, lost(500, "This cannot be read"))
    app.add_exception_handler(HTTPException, status)
    app.add_exception_handler(RequestValidationError, senseless)
