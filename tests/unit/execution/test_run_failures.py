"""What a failure is called: of a load that ended and gave nothing usable, of a start that could not be."""

import copy
from dataclasses import replace

import pytest

from sweeper.core.sample import GeneratorHealth, LoadOutcome, Sample
from sweeper.errors import DiskError, PreflightError, ServerError, StoreError, SweeperError
from sweeper.execution.failures import failure_of, outcome_failure

ANSWER = Sample(
    index=0,
    prompt_id="p0",
    category="code",
    due_ns=0,
    send_ns=0,
    chunk_ns=(5, 9),
    chunk_tokens=(1, 2),
    end_ns=9,
    input_tokens=7,
    cached_tokens=0,
    output_tokens=3,
    finish_reason="length",
    text="abc",
    output_ids=None,
    spec=None,
)
EMPTY = replace(ANSWER, output_tokens=0, chunk_ns=(), chunk_tokens=(), text="")
HEALTH = GeneratorHealth(loop_lag_p99_ms=None, loop_lag_max_ms=None, send_late_p99_ms=None, cpu_s=None, cpu_share=None)


def load(*samples: Sample) -> LoadOutcome:
    return LoadOutcome(samples=samples, health=HEALTH, flush="flushed")


def test_a_load_whose_answers_all_have_no_token_has_failed() -> None:
    failure = outcome_failure(load(EMPTY, EMPTY))
    assert failure is not None and failure.failure_class == "empty"
    assert failure.message.startswith("no tokens counted: 2 of 2 requests were answered")


def test_one_answer_with_tokens_is_enough() -> None:
    assert outcome_failure(load(EMPTY, ANSWER)) is None


def test_a_server_that_does_not_count_is_not_called_empty() -> None:
    assert outcome_failure(load(replace(ANSWER, output_tokens=None))) is None


def test_a_load_without_any_request_has_failed() -> None:
    failure = outcome_failure(load())
    assert failure is not None and failure.failure_class == "empty"


@pytest.mark.parametrize(
    "error",
    [
        DiskError("/s/ledger: the ledger cannot be written: No space left on device; free or unlock it"),
        StoreError("/r/groups/g/start-0: cannot be made on this node: Read-only file system"),
    ],
)
def test_a_disk_that_takes_nothing_is_not_the_configurations_fault(error: SweeperError) -> None:
    failure = failure_of(error)
    assert failure.failure_class == "disk"
    assert failure.message == str(error)
    assert failure.remedy.endswith("no configuration is at fault")


def test_what_has_no_class_of_its_own_is_unknown() -> None:
    assert failure_of(PreflightError("no free port")).failure_class == "unknown"


def test_a_servers_failure_can_be_carried_to_another_process() -> None:
    error = ServerError("the address is taken", failure_class="port", log_lines=("bind",), remedy="another port")
    there = copy.copy(error)
    assert (str(there), there.failure_class, there.log_lines) == ("the address is taken", "port", ("bind",))
    assert there.remedy == "another port"
