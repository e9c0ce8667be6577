"""The dashboard without a browser: what its pages say, and what nobody can make it do."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sweeper.core.events import Measured, PhaseChanged, RunEnded, RunStarted, TrialEnded
from sweeper.core.result import Completed
from sweeper.errors import ConfigError, PreflightError
from sweeper.present.dashboard.app import create_app
from sweeper.store.writer import RunWriter
from sweeper.testing.runs import model_run
from sweeper.testing.stored import store_run

LOCAL = "http://127.0.0.1"


def client(results: Path, *, base: str = LOCAL, token: str | None = None) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(results, token=token))
    return httpx.AsyncClient(transport=transport, base_url=base)


async def read(visitor: httpx.AsyncClient, address: str) -> str:
    """The page once its run was read."""
    while "being read" in (text := (await visitor.get(address)).text):  # noqa: ASYNC110  as a browser does
        await asyncio.sleep(0.02)
    return text


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_run(model_run(("3-1-4", "5-4-16"), concurrency=(1, 8)), tmp_path_factory.mktemp("results"))


@pytest.fixture
async def visitor(stored: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client(stored.parents[1]) as one:
        yield one


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def url(run_dir: Path) -> str:
    return f"/run/{run_dir.parent.name}/{run_dir.name}"


async def test_a_run_folder_and_an_experiments_folder_can_be_opened_too(stored: Path) -> None:
    for folder in (stored, stored.parent, stored.parents[1]):
        async with client(folder) as one:
            assert url(stored) in (await one.get("/")).text
            assert (await one.get(url(stored))).status_code == 200


async def test_the_verdict_of_the_list_is_that_of_the_report(visitor: httpx.AsyncClient, stored: Path) -> None:
    listed = await read(visitor, "/")
    report = (await visitor.get(url(stored) + "/report")).text
    headline = re.search(r'<h1 id="verdict">(.*?)</h1>', report, flags=re.S)
    assert headline and headline[1] in listed


async def test_the_latest_run_has_an_address_of_its_own(visitor: httpx.AsyncClient, stored: Path) -> None:
    answer = await visitor.get(f"/run/{stored.parent.name}/latest")
    assert (answer.status_code, answer.headers["location"]) == (307, url(stored))


async def test_filters_keep_the_baseline_in_view(visitor: httpx.AsyncClient, stored: Path) -> None:
    text = await read(visitor, url(stored) + "?topk=4&load=8")
    rows = re.findall(r'<th scope="row"><a [^>]*>([^<]+)</a>', text)
    assert rows == ["baseline", "5-4-16"]


async def test_a_category_brings_its_own_columns(visitor: httpx.AsyncClient, stored: Path) -> None:
    assert "edit: ms/token" in await read(visitor, url(stored) + "?category=edit")


async def test_figures_are_drawn_over_what_is_in_view(visitor: httpx.AsyncClient, stored: Path) -> None:
    drawn = (await visitor.get(url(stored) + "/figure/speedup?topk=4")).json()
    assert {label for trace in drawn["data"] for label in trace["y"]} == {"5-4-16"}
    assert (await visitor.get(url(stored) + "/figure/layers")).status_code == 204
    assert (await visitor.get(url(stored) + "/figure/nonsense")).status_code == 404


@pytest.mark.parametrize(
    "address",
    [
        "/run/../../etc/passwd",
        "/run/%2e%2e/%2e%2e",
        "/run/..%2f..%2fetc/passwd",
        "{run}/trial/..%2f..%2fplan.json",
        "{run}/trial/{trial}/request/0/0/99999",
        "{run}/log/..%2f..%2f/0",
        "/static/..%2f..%2fpyproject.toml",
        "/static/security.py",
        "/nightly?history=../../etc",
        "/docs",
        "/openapi.json",
    ],
)
async def test_nothing_outside_the_folder_has_an_address(
    visitor: httpx.AsyncClient, stored: Path, address: str
) -> None:
    trial = next((stored / "trials").iterdir()).name
    answer = await visitor.get(address.format(run=url(stored), trial=trial))
    assert answer.status_code == 404
    assert "root:" not in answer.text and "Traceback" not in answer.text


async def test_links_that_lead_outside_are_not_followed(stored: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    inside = store_run(model_run(("3-1-4",), concurrency=(1,)), results)
    (results / "x").mkdir()
    (results / "x" / "elsewhere").symlink_to(stored)
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    log = next(inside.glob("groups/*/start-0")) / "server.log"
    log.symlink_to(secret)
    async with client(results) as one:
        listed = (await one.get("/")).text
        assert "leads outside the results folder" in listed and stored.name not in re.findall(r'href="([^"]*)"', listed)
        assert (await one.get("/run/x/elsewhere")).status_code == 404
        answer = await one.get(f"{url(inside)}/log/{log.parent.parent.name}/0")
        assert "no log here" in answer.text and "the secret" not in answer.text


async def test_ids_in_a_plan_lead_nowhere(tmp_path: Path) -> None:
    run = store_run(model_run(("3-1-4",), concurrency=(1,)), tmp_path / "results")
    trial = next((run / "trials").iterdir()).name
    (tmp_path / "secret").mkdir()
    (run / "plan.json").write_text((run / "plan.json").read_text().replace(trial, "../../../../secret"))
    async with client(tmp_path / "results") as one:
        answer = await one.get(f"{url(run)}/trial/..%2f..%2f..%2f..%2fsecret")
        assert answer.status_code == 404


async def test_every_answer_forbids_foreign_scripts(visitor: httpx.AsyncClient, stored: Path) -> None:
    for address in ("/", url(stored), "/nowhere", "/static/dashboard.js", url(stored) + "/figure/speedup"):
        answer = await visitor.get(address)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe-inline" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    page = (await visitor.get(url(stored))).text
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", page)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


async def test_a_foreign_name_for_this_machine_is_refused(stored: Path) -> None:
    async with client(stored, base="http://rebound.example") as one:
        assert (await one.get("/")).status_code == 421
    for name in ("http://localhost:8642", "http://[::1]:8642"):
        async with client(stored, base=name) as one:
            assert (await one.get("/")).status_code == 200


async def test_with_a_token_only_its_bearer_gets_in(stored: Path) -> None:
    token = "0123456789abcdef"
    async with client(stored, base="http://node-7:8642", token=token) as one:
        assert (await one.get("/")).status_code == 401
        assert (await one.get("/?token=wrong")).status_code == 401
        assert (await one.get("/static/dashboard.js")).status_code == 401
        assert (await one.get("/", headers={"Authorization": f"Bearer {token}"})).status_code == 200
        first = await one.get(f"/compare?token={token}&a=x")
        assert (first.status_code, first.headers["location"]) == (303, "/compare?a=x")
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower() and token not in cookie
        assert (await one.get("/compare?a=x")).status_code == 200
        assert (await one.get(f"http://node-7:8642//evil.example/?token={token}")).headers[
            "location"
        ] == "/evil.example/"


async def test_nothing_can_be_written(visitor: httpx.AsyncClient, stored: Path) -> None:
    before = times(stored)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert (await visitor.request(method, url(stored))).status_code == 405
    await read(visitor, url(stored))
    await visitor.get(url(stored) + "/report")
    assert times(stored) == before


async def test_a_live_run_is_streamed_to_its_end(tmp_path: Path) -> None:
    run = model_run(("3-1-4",), concurrency=(1,), starts=2, repeats=1)
    writer = RunWriter.create(tmp_path, run.plan, experiment=run.experiment, environment={})
    arm = run.plan.arms[1]
    started = RunStarted(run_id="x", experiment="x", trials=2, starts=4, resumed=0, estimate_s=60)
    phase = PhaseChanged(group_id=f"g-{arm.arm_id}", arm_id=arm.arm_id, start=0, phase="measuring", detail="a <b> load")
    for event in (started, phase, *(Measured(measurement=one, samples=()) for one in run.measurements)):
        writer.record(event)
    async with client(tmp_path) as one:
        assert "running" in (await one.get("/")).text
        page = (await one.get(url(writer.path))).text
        assert "a &lt;b&gt; load" in page and "4 of 4" in re.sub(r"<[^>]+>", "", page)
        for trial in run.plan.trials:
            writer.record(TrialEnded(result=Completed(trial_id=trial.trial_id, measurements=2)))
        writer.record(RunEnded(completed=2, failed=0, skipped=0))
        writer.close()
        stream = (await one.get(url(writer.path) + "/live")).text
    events = re.findall(r"event: (\w+)\ndata: (.*)\n\n", stream)
    assert [name for name, _ in events] == ["panel", "ended"]
    assert "a &lt;b&gt; load" in json.loads(events[0][1]) and json.loads(events[1][1]) == "finished"


def test_other_hosts_need_a_long_token() -> None:
    from sweeper.cli.dashboard import _require_safe

    _require_safe("127.0.0.1", None)
    _require_safe("::1", None)
    _require_safe("0.0.0.0", "0123456789abcdef")
    with pytest.raises(ConfigError, match="add --token"):
        _require_safe("0.0.0.0", None)
    with pytest.raises(ConfigError, match="at least 12"):
        _require_safe("0.0.0.0", "short")


def test_a_taken_port_is_one_clear_line() -> None:
    from sweeper.cli.dashboard import _listen

    taken = _listen("127.0.0.1", 0)
    taken.listen()
    try:
        with pytest.raises(PreflightError, match=r"cannot listen .* --port"):
            _listen("127.0.0.1", taken.getsockname()[1])
    finally:
        taken.close()


async def test_the_runs_of_a_night_are_reached_from_its_history_wherever_that_lies(tmp_path: Path) -> None:
    nights = tmp_path / "history" / "nights"
    first = store_run(model_run(("3-1-4",), concurrency=(1,)), nights / "20261101-030000" / "runs")
    again = store_run(model_run(("3-1-4",), concurrency=(1,)), nights / "20261101-030000" / "again")
    (tmp_path / "results").mkdir()
    for results, histories in ((tmp_path / "results", (tmp_path / "history",)), (tmp_path / "history", ())):
        transport = httpx.ASGITransport(create_app(results, histories=histories))
        async with httpx.AsyncClient(transport=transport, base_url=LOCAL) as one:
            text = await read(one, "/nightly")
            assert f'<a href="{url(first)}">run</a>, <a href="{url(again)}">measured again</a>' in text
            assert "speed at concurrency 1" in await read(one, url(first))
            assert (await one.get(url(again))).status_code == 200
            assert "/nightly?history=history" in (await one.get("/")).text


async def test_a_night_that_leads_outside_its_history_is_not_shown(tmp_path: Path, stored: Path) -> None:
    runs = tmp_path / "nights" / "20261101-030000" / "runs"
    runs.mkdir(parents=True)
    (runs / "kimi").symlink_to(stored.parent)
    async with client(tmp_path) as one:
        assert stored.name not in await read(one, "/nightly")
        assert (await one.get(url(stored))).status_code == 404


async def test_numbers_that_cannot_be_are_named_on_the_page_of_their_trial(tmp_path: Path) -> None:
    run = store_run(model_run(("3-1-4",), concurrency=(1,)), tmp_path / "results")
    file = sorted(run.glob("trials/*/start-*/measurement.json"))[0]
    document = json.loads(file.read_text())
    document["metrics"]["output_tok_per_s"] = -1.0
    file.write_text(json.dumps(document))
    async with client(tmp_path / "results") as one:
        page = await read(one, f"{url(run)}/trial/{file.parent.parent.name}")
        assert f"{file.parent.name}/measurement.json: output_tok_per_s cannot be -1" in page
        assert (await one.get(url(run))).status_code == 200
        assert (await one.get("/")).status_code == 200
