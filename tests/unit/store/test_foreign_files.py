"""Files that others wrote, or that were damaged: every reader gives a value or one of our own errors."""

import json
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeper.analysis.compare import compare
from sweeper.analysis.figures.common import Material
from sweeper.analysis.figures.course import phase_spans
from sweeper.analysis.imported import parse_results
from sweeper.analysis.timeline import timeline_of
from sweeper.doctor.manifest import read_manifest
from sweeper.effects.prompt_files import prompt_of, read_prompts
from sweeper.errors import SweeperError
from sweeper.store.reader import read_run, read_samples
from sweeper.testing.runs import model_run
from sweeper.testing.stored import store_run

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
QUIET = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*at, key))


def spoilt(draw: st.DataObject, document: Any) -> Any:
    """A sound document with one value, however deep, replaced by any other."""
    where = draw.draw(st.sampled_from(list(places(document))), label="where")
    value = draw.draw(JSON, label="value")
    if not where:
        return value
    document = deepcopy(document)
    inner = document
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    return document


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_run(model_run(starts=1, repeats=1), tmp_path_factory.mktemp("sound"))


@QUIET
@given(draw=st.data())
def test_a_run_folder_with_any_value_replaced_is_read_or_refused(
    draw: st.DataObject, sound: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = tmp_path_factory.mktemp("run") / "copy"
    shutil.copytree(sound, run)
    files = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.suffix in (".json", ".parquet"))
    file = run / draw.draw(st.sampled_from(files), label="file")
    if file.suffix == ".json":
        file.write_text(json.dumps(spoilt(draw, json.loads(file.read_text()))))
    else:
        data = bytearray(file.read_bytes())
        data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
        file.write_bytes(data)
    try:
        found = read_run(run)
        compare(found)
        for one in found.measurements:
            read_samples(run, one)
    except SweeperError as error:
        assert str(error)
    finally:
        shutil.rmtree(run.parent)


@QUIET
@given(draw=st.data())
def test_a_journal_with_any_value_replaced_still_draws_the_course_of_its_run(draw: st.DataObject, sound: Path) -> None:
    told = model_run(starts=1, repeats=1)
    lines = [dict(line) for line in told.events]
    number = draw.draw(st.integers(0, len(lines) - 1), label="line")
    lines[number] = spoilt(draw, lines[number])
    (sound / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_run(sound)
    assert len(found.events) + sum("events.jsonl" in problem for problem in found.problems) == len(lines)
    timeline_of(found)
    phase_spans(Material.of(found, compare(found)))


TENSOR = {"dtype": "BF16", "shape": [2, 4], "data_offsets": [0, 16]}


@QUIET
@given(draw=st.data(), size=st.none() | st.integers(0, 2**64 - 1), rest=st.binary(max_size=40))
def test_any_header_of_a_checkpoint_is_read_or_refused(
    draw: st.DataObject, size: int | None, rest: bytes, tmp_path: Path
) -> None:
    header = json.dumps(spoilt(draw, {"__metadata__": {"format": "pt"}, "fc.weight": TENSOR, "d2t": TENSOR})).encode()
    length = len(header) if size is None else size
    (tmp_path / "config.json").write_text(json.dumps(spoilt(draw, {"hidden_size": 8, "architectures": ["X"]})))
    (tmp_path / "model.safetensors").write_bytes(length.to_bytes(8, "little") + header + rest)
    try:
        read_manifest(tmp_path)
    except SweeperError as error:
        assert "safetensors" in str(error) or "config.json" in str(error)


BENCH = {"backend": "sglang", "max_concurrency": 8, "duration": 9.5, "completed": 40, "output_throughput": 311.5,
         "total_output_tokens": 2960, "accept_length": 2.7, "server_info": {"tp_size": 1}}  # fmt: skip
VLLM = {"backend": "vllm", "duration": 9.5, "completed": 40, "failed": 0, "total_output_tokens": 2960,
        "spec_decode_acceptance_length": 2.6, "request_rate": "inf", "p99_itl_ms": 12.0}  # fmt: skip


@QUIET
@given(draw=st.data())
def test_any_result_of_another_tool_is_read_or_refused(draw: st.DataObject) -> None:
    rows = [spoilt(draw, document) for document in (BENCH, VLLM)]
    for text in (*map(json.dumps, rows), "\n".join(map(json.dumps, rows))):
        try:
            parse_results(text, source="x.json")
        except SweeperError as error:
            assert "x.json" in str(error)


ROW = {"id": 7, "category": "a", "turns": ["q", "r"], "conversations": [{"from": "human", "value": "q"}],
       "messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}], "answer": 3, "max_tokens": 9,
       "body": {"messages": [{"role": "user", "content": "q"}], "max_tokens": 4}, "prompt": "q"}  # fmt: skip


@QUIET
@given(draw=st.data(), keep=st.sets(st.sampled_from(sorted(ROW))))
def test_any_row_of_a_prompt_file_is_read_or_refused(draw: st.DataObject, keep: set[str], tmp_path: Path) -> None:
    row = spoilt(draw, {key: value for key, value in ROW.items() if key in keep})
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(row))
    prompt_of(row, "x")
    try:
        prompts = read_prompts(path)
    except SweeperError as error:
        assert "x.jsonl" in str(error)
    else:
        assert all(prompt.text.strip() for prompt in prompts)


@QUIET
@given(data=st.binary(max_size=200), suffix=st.sampled_from([".txt", ".json", ".jsonl"]))
def test_any_bytes_as_prompts_are_read_or_refused(data: bytes, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(data)
    try:
        read_prompts(path)
    except SweeperError as error:
        assert str(path) in str(error)
