import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from sweeper.analysis.metrics import summarize
from sweeper.core.experiment import Workload
from sweeper.core.sample import LoadOutcome, Prompt, PromptSet
from sweeper.core.trial import LoadPoint
from sweeper.execution.loadgen import Load, LoadTarget, drive
from sweeper.execution.shards import drive_blocking
from sweeper.testing.server import running

FAST = ("--prefill-ms", "4", "--step-ms", "1", "--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3")
ENDPOINTS = ("generate", "completions", "chat")


def prompts(count: int) -> PromptSet:
    made = tuple(Prompt(prompt_id=f"p{i}", category="c", text=f"prompt number {i}") for i in range(count))
    return PromptSet(prompts=made, source="test", sha256="0", template="none")


def workload(**changes: object) -> Workload:
    return Workload.model_validate({"max_tokens": 24, "stall_timeout_s": 5.0, "concurrency": [4], **changes})


async def load(url: str, count: int = 24, *, point: LoadPoint | None = None, client="lean", **changes) -> LoadOutcome:
    return await drive(
        LoadTarget(base_url=url, model="m"),
        prompts(count),
        workload(**changes),
        point or LoadPoint(concurrency=4),
        client=client,
    )


def kinds(outcome: LoadOutcome) -> Counter[str]:
    return Counter(sample.error.kind for sample in outcome.samples if sample.error is not None)


@pytest.mark.parametrize("client", ["lean", "httpx"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_every_figure_that_is_no_time_equals_the_servers_own_count(endpoint, client, tmp_path: Path):
    truth = tmp_path / "truth.jsonl"
    with running(*FAST, "--early-stop", "0.4", "--stream-interval", "3", "--truth", str(truth)) as url:
        outcome = await load(url, endpoint=endpoint, client=client)
    rows = [json.loads(line) for line in truth.read_text().splitlines()]
    metrics = summarize(outcome.samples, draft_tokens=4, concurrency=4)
    assert metrics.ok == len(rows) == 24
    assert metrics.output_tokens == sum(row["output_tokens"] for row in rows)
    assert metrics.input_tokens == sum(row["prompt_tokens"] for row in rows)
    told = sorted(row["chunk_tokens"] for row in rows)
    assert sorted(list(sample.chunk_tokens or ()) for sample in outcome.samples) == told
    assert metrics.spec is not None
    assert metrics.spec.verify_steps == sum(row["steps"] for row in rows)
    assert metrics.spec.correct_drafts == sum(row["correct"] for row in rows)
    assert set(metrics.finish_reasons) == {"stop", "length"}


KIND_OF_FAULT = {
    "status": "status",
    "stall": "stall",
    "drop": "dropped",
    "cut": "cut",
    "error": "error_chunk",
    "abort": "aborted",
    "garbage": "garbage",
    "endless": "endless",
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("at", ["0", "0.5"])
async def test_each_fault_is_an_error_of_its_kind_exactly_as_often_as_it_happened(endpoint, at, tmp_path: Path):
    truth = tmp_path / "truth.jsonl"
    faults = [
        f"{kind}:0.09" + (f":{at}" if kind not in ("status", "endless", "garbage") else "") for kind in KIND_OF_FAULT
    ]
    options = [word for fault in faults for word in ("--fault", fault)]
    with running(*FAST, *options, "--truth", str(truth)) as url:
        outcome = await load(url, 120, endpoint=endpoint, stall_timeout_s=1.5, point=LoadPoint(concurrency=16))
    rows = [json.loads(line) for line in truth.read_text().splitlines()]
    injected = Counter(KIND_OF_FAULT[row["fault"]] for row in rows if row["fault"])
    assert set(injected) == set(KIND_OF_FAULT.values())
    assert kinds(outcome) == injected
    told = sum(row["output_tokens"] for row in rows if row["fault"] is None)
    assert sum(sample.output_tokens or 0 for sample in outcome.samples if sample.ok) == told


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_what_is_only_unusual_is_no_error(endpoint):
    unusual = ("--fault", "noise:0.4", "--fault", "fragments:0.4", "--fault", "slow-headers:0.2:0.2")
    with running(*FAST, *unusual) as url:
        outcome = await load(url, endpoint=endpoint)
    assert kinds(outcome) == {}
    assert all(sample.output_tokens == 24 for sample in outcome.samples)


async def test_a_missing_done_is_counted_but_the_answer_is_whole():
    with running(*FAST, "--fault", "no-done") as url:
        outcome = await load(url, 8)
    assert kinds(outcome) == {}
    assert all(sample.notes for sample in outcome.samples)


async def test_a_request_that_takes_too_long_is_given_up():
    with running("--prefill-ms", "1", "--step-ms", "200") as url:
        outcome = await load(url, 4, request_timeout_s=0.6, stall_timeout_s=5.0)
    assert kinds(outcome) == {"timeout": 4}


async def test_a_server_that_dies_leaves_errors_and_no_hang():
    with running(*FAST, "--die-after", "9") as url:
        outcome = await load(url, 40)
    assert len(outcome.samples) == 40
    found = kinds(outcome)
    assert found["refused"] >= 20
    assert set(found) <= {"refused", "cut", "dropped"}
    assert 5 <= sum(sample.ok for sample in outcome.samples) <= 9


async def test_no_server_at_all_is_an_error_of_the_caller():
    with pytest.raises(OSError, match=r"refused|111"):
        await load("http://127.0.0.1:9", 2)


async def test_no_more_requests_are_in_flight_than_the_concurrency():
    with running(*FAST) as url:
        outcome = await load(url, 40, point=LoadPoint(concurrency=3))
    changes = sorted([(s.send_ns, 1) for s in outcome.samples] + [(s.end_ns, -1) for s in outcome.samples])
    in_flight = peak = 0
    for _, change in changes:
        in_flight += change
        peak = max(peak, in_flight)
    assert peak == 3


async def test_an_open_loop_never_sends_before_a_request_is_due():
    point = LoadPoint(concurrency=16, arrival="poisson", rate_rps=200.0)
    with running(*FAST) as url:
        outcome = await load(url, 40, point=point)
    assert all(sample.send_ns >= sample.due_ns for sample in outcome.samples)
    dues = [sample.due_ns for sample in outcome.samples]
    assert dues == sorted(dues) and len(set(dues)) == 40


def test_an_open_loop_that_the_server_cannot_follow_is_stopped_and_says_so():
    with running("--prefill-ms", "200", "--step-ms", "1") as url:
        whole = Load(
            target=LoadTarget(base_url=url, model="m"),
            prompts=prompts(200),
            workload=workload(max_tokens=2),
            point=LoadPoint(concurrency=1, arrival="constant", rate_rps=100.0),
            give_up_late_s=0.5,
        )
        outcome = drive_blocking(whole)
    assert 1 <= len(outcome.samples) < 20
    assert outcome.stopped is not None and "cannot keep up with 100 requests/s" in outcome.stopped


def test_two_shards_send_each_prompt_once_and_share_the_concurrency():
    with running(*FAST) as url:
        whole = Load(
            target=LoadTarget(base_url=url, model="m"),
            prompts=prompts(31),
            workload=workload(),
            point=LoadPoint(concurrency=5),
        )
        outcome = drive_blocking(whole, shards=2)
    assert [sample.index for sample in outcome.samples] == list(range(31))
    assert sorted(sample.prompt_id for sample in outcome.samples) == sorted(f"p{i}" for i in range(31))
    assert kinds(outcome) == {}


def test_shards_say_when_there_is_no_server():
    whole = Load(
        target=LoadTarget(base_url="http://127.0.0.1:9", model="m"),
        prompts=prompts(4),
        workload=workload(),
        point=LoadPoint(concurrency=4),
    )
    with pytest.raises(OSError, match=r"refused|111"):
        drive_blocking(whole, shards=2)


KILLED = """
import sys
from test_loadgen import LoadPoint, LoadTarget, drive_blocking, prompts, workload
from sweeper.execution.loadgen import Load
target = LoadTarget(base_url=sys.argv[1], model="m")
asked = workload(max_tokens=100_000, request_timeout_s=600)
drive_blocking(Load(target=target, prompts=prompts(8), workload=asked, point=LoadPoint(concurrency=4)), shards=2)
"""


def shards_of(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """Once there are both."""
    while len(found := psutil.Process(process.pid).children()) < 2:
        assert process.poll() is None
    return found


@pytest.mark.parametrize("killed", ["the load generator", "one of its processes"])
def test_a_load_whose_process_was_killed_ends_all_the_others(killed: str):
    with running(*FAST) as url:
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, url], cwd=Path(__file__).parent, stderr=subprocess.PIPE
        )
        shards = shards_of(process)
        psutil.Process(process.pid if killed == "the load generator" else shards[0].pid).kill()
        _, left = psutil.wait_procs(shards, timeout=20)
        _, told = process.communicate()
    assert left == []
    assert killed == "the load generator" or b"was it killed?" in told


async def test_more_requests_than_prompts_repeat_them_in_order():
    with running(*FAST) as url:
        outcome = await drive(
            LoadTarget(base_url=url, model="m"), prompts(3), workload(), LoadPoint(concurrency=1), num_prompts=7
        )
    assert [sample.prompt_id for sample in outcome.samples] == ["p0", "p1", "p2", "p0", "p1", "p2", "p0"]


async def test_a_body_larger_than_the_sockets_buffer_is_sent_whole():
    long = Prompt(prompt_id="long", category="c", text="word " * 800_000)
    one = PromptSet(prompts=(long,), source="test", sha256="0", template="none")
    with running(*FAST) as url:
        outcome = await drive(LoadTarget(base_url=url, model="m"), one, workload(), LoadPoint(concurrency=1))
    assert outcome.samples[0].input_tokens == 800_000


async def test_a_host_name_with_several_addresses_is_tried_until_one_answers():
    with running(*FAST) as url:
        outcome = await load(url.replace("127.0.0.1", "localhost"), 4)
    assert kinds(outcome) == {}
