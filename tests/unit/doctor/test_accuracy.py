"""The offline head against the toy pair, dumps in every layout, and the arithmetic of acceptance."""

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tokenizers import Tokenizer  # noqa: E402

from sweeper.doctor.accuracy import measure  # noqa: E402
from sweeper.doctor.agreement import Agreement, accepted, blame, summarise  # noqa: E402
from sweeper.doctor.manifest import read_manifest  # noqa: E402
from sweeper.doctor.numerics import Head, read_tensor  # noqa: E402
from sweeper.doctor.samples import Sample, read_samples  # noqa: E402
from sweeper.effects.hub import local_checkpoint  # noqa: E402
from sweeper.errors import PreflightError  # noqa: E402
from sweeper.toy.draft import Draft  # noqa: E402
from sweeper.toy.model import Target  # noqa: E402
from sweeper.toy.recipe import Shape  # noqa: E402

TARGET, DRAFT = local_checkpoint("toy:target"), local_checkpoint("toy:draft")


def loaded(module: torch.nn.Module, path: Path) -> torch.nn.Module:
    tensors = read_manifest(path).tensors
    module.load_state_dict({n: read_tensor(t).float() for n, t in tensors.items() if n not in ("d2t", "t2d")})
    return module


@lru_cache
def target() -> torch.nn.Module:
    torch.set_num_threads(1)  # tiny matrices: more threads only wait for each other
    return loaded(Target(Shape()), TARGET)


@lru_cache
def text() -> tuple[torch.Tensor, int]:
    """A prompt with the toy target's greedy answer, and where the answer starts."""
    prompt = json.loads((TARGET.parent / "prompts.jsonl").read_text().splitlines()[0])
    ids = torch.tensor([Tokenizer.from_file(str(TARGET / "tokenizer.json")).encode(prompt["text"]).ids])
    start = ids.shape[1]
    with torch.inference_mode():
        for _ in range(48):
            ids = torch.cat([ids, target()(ids)[:, -1:].argmax(-1)], 1)
    return ids, start


def sample(layers: tuple[int, ...] = (2, 4, 6), tokens: int | None = None) -> Sample:
    ids, start = text()
    with torch.inference_mode():
        aux = target().with_aux(ids[:, :tokens], layers)[1][0]
    slots = tuple(zip(map(str, layers), aux.chunk(len(layers), -1), strict=True))
    return Sample(name="greedy", input_ids=ids[0, :tokens], slots=slots, generated_from=start)


def test_the_head_computes_what_the_toy_draft_was_trained_as() -> None:
    given = sample()
    table = read_tensor(read_manifest(TARGET).tensors["model.embed_tokens.weight"]).float()
    embeddings = table[given.input_ids]
    rows = len(given.input_ids) - 6
    theirs = loaded(Draft(Shape()), DRAFT)
    with torch.inference_mode():
        expected = [x[0] for x in theirs.unroll(given.states[None, :rows], embeddings[None], 5)]
        ours = list(Head(read_manifest(DRAFT), version="0.5.23").unroll(given.states[:rows], embeddings, 5))
    for step, (left, right) in enumerate(zip(ours, expected, strict=True)):
        assert torch.allclose(left, right, atol=2e-3), step


def test_the_right_layers_agree_and_the_wrong_ones_do_not() -> None:
    right = measure(DRAFT, TARGET, [sample()], steps=4, version="0.5.23")
    wrong = measure(DRAFT, TARGET, [sample(layers=(1, 3, 5))], steps=4, version="0.5.23")
    assert right.joint[0] > wrong.joint[0]
    assert right.accept_length[-1] > wrong.accept_length[-1] + 0.3
    assert right.walked
    assert list(right.joint) == sorted(right.joint, reverse=True)


def test_states_of_the_wrong_width_are_refused_with_both_widths() -> None:
    with pytest.raises(PreflightError, match="256 wide, this draft's fc takes 384"):
        measure(DRAFT, TARGET, [sample(layers=(2, 4))], steps=2, version="0.5.23")


@pytest.mark.parametrize("layout", ["list", "side by side", "stacked", "batched", "safetensors", "several"])
def test_dumps_are_read_in_every_common_layout(layout: str, tmp_path: Path) -> None:
    given = sample(tokens=30)
    parts = [part for _, part in given.slots]
    item = {"input_ids": given.input_ids, "hidden_states": parts}
    if layout == "side by side":
        item["hidden_states"] = torch.cat(parts, -1)
    elif layout == "stacked":
        item["hidden_states"] = torch.stack(parts)
    elif layout == "batched":
        item = {"input_ids": given.input_ids[None], "aux_hidden_state": torch.cat(parts, -1)[None].half()}
    if layout == "safetensors":
        from safetensors.torch import save_file

        flat = {f"hidden_states.{index}": part.contiguous() for index, part in enumerate(parts)}
        save_file({"input_ids": given.input_ids, **flat}, tmp_path / "dump.safetensors")
    else:
        torch.save([item, item] if layout == "several" else item, tmp_path / "dump.pt")
    read = read_samples(tmp_path, hidden=128)
    assert len(read) == (2 if layout == "several" else 1)
    assert torch.equal(read[0].input_ids, given.input_ids)
    assert torch.allclose(read[0].states, given.states, rtol=1e-2)


@pytest.mark.parametrize("layout", ["beside", "last of the list"])
def test_the_targets_last_state_in_a_dump_is_not_fed_to_the_draft(layout: str, tmp_path: Path) -> None:
    given = sample()
    parts, last = [part for _, part in given.slots], torch.zeros(len(given.input_ids), 128)
    beside = {"aux_hidden_state": given.states, "hidden_state": last}
    item = beside if layout == "beside" else {"hidden_states": [*parts, last]}
    torch.save({"input_ids": given.input_ids, **item}, tmp_path / "d.pt")
    measured = [
        measure(DRAFT, TARGET, [replace(s, generated_from=None)], steps=3, version="0.5.23")
        for s in (given, *read_samples(tmp_path / "d.pt", hidden=128))
    ]
    assert measured[0] == measured[1]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("/tmp/never-made-by-a-dump"),))


def test_a_dump_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch.save({"input_ids": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(PreflightError, match="without running code"):
        read_samples(tmp_path, hidden=8)


def test_dumps_that_do_not_fit_say_what_was_found(tmp_path: Path) -> None:
    torch.save({"input_ids": torch.arange(5), "hidden_states": torch.zeros(5, 9)}, tmp_path / "d.pt")
    with pytest.raises(PreflightError, match=r"\[5, 9\] are no multiple of 5 tokens x 8"):
        read_samples(tmp_path, hidden=8)
    torch.save({"text": [1]}, tmp_path / "d.pt")
    with pytest.raises(PreflightError, match="needs input_ids and hidden_states"):
        read_samples(tmp_path, hidden=8)


def test_a_chain_is_accepted_up_to_its_first_miss() -> None:
    assert [accepted(c) for c in ([True, True], [True, False], [False, True], [])] == [2, 1, 0, 0]


def test_walking_starts_each_step_where_the_last_one_ended() -> None:
    chain = [[True, True], [False, False], [False, True], [True, False], [True, True]]
    found = summarise([chain], [0], steps=2)
    assert found is not None
    # Two steps: row 0 accepts 2 and moves to 3, row 3 accepts 1 and moves to 5. One step: rows 0, 2 and 3.
    assert found.accept_length == (5 / 3, 2.5)
    assert found.joint == (3 / 5, 2 / 5)
    assert found.teacher_forced == (3 / 5, 3 / 5)
    assert found.conditional == (3 / 5, (2 / 5) / (3 / 5))


def test_without_the_targets_own_text_the_length_is_one_plus_the_chain() -> None:
    found = summarise([[[True, False], [True, True]]], [None], steps=2)
    assert found is not None
    assert not found.walked
    assert found.accept_length == (2.0, 2.5)


def test_no_rows_are_no_agreement() -> None:
    assert summarise([[]], [None], steps=2) is None


def offline(first: float, length: float) -> Agreement:
    return Agreement(rows=9, teacher_forced=(first,), joint=(first,), accept_length=(length,), walked=True)


@pytest.mark.parametrize(
    ("first", "expected", "live", "at_fault"),
    [(0.77, 3.2, 1.8, "wiring"), (0.77, 3.2, 3.1, "neither"), (0.2, 1.25, 1.22, "draft")],
)
def test_the_side_at_fault_is_named(first: float, expected: float, live: float, at_fault: str) -> None:
    judged = blame(offline(first, expected), live=live, steps=1)
    assert judged.at_fault == at_fault
    assert f"live {live:.2f}" in judged.sentence
