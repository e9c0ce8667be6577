"""The live half of the doctor, toy pair and real engine: five kinds of dumps, the probe, predicted lengths."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

torch = pytest.importorskip("torch")

from tokenizers import Tokenizer  # noqa: E402

from sweeper.doctor.accuracy import measure  # noqa: E402
from sweeper.doctor.live import Engine, Text, ask, capture, serving  # noqa: E402
from sweeper.doctor.probe import probe, speculative  # noqa: E402
from sweeper.doctor.samples import Sample  # noqa: E402
from sweeper.doctor.wiring import EngineStates, WiringReport, compare, engine_states  # noqa: E402
from sweeper.effects.hub import local_checkpoint  # noqa: E402
from sweeper.effects.prompts import toy_prompts  # noqa: E402
from sweeper.engine.wire import spec_counters  # noqa: E402

TARGET, DRAFT = local_checkpoint("toy:target"), local_checkpoint("toy:draft")
ENGINE = Engine(target=TARGET, device="cpu")
VERSION = "0.5.23"


def texts(count: int, new_tokens: int) -> list[Text]:
    tokenizer = Tokenizer.from_file(str(TARGET / "tokenizer.json"))
    prompts = toy_prompts("code")[:count]
    return [
        Text(name=p.prompt_id, input_ids=tuple(tokenizer.encode(p.text).ids), max_new_tokens=new_tokens)
        for p in prompts
    ]


@pytest.fixture(scope="module")
def honest() -> tuple[Sample, ...]:
    """What a training run would have dumped: states of the trained layers over the target's own text."""
    return capture(ENGINE, texts(6, 96), layer_ids=(2, 4, 6), hidden=128)


@pytest.fixture(scope="module")
def states(honest: tuple[Sample, ...]) -> EngineStates:
    return engine_states(ENGINE, trimmed(honest), version=VERSION, portion=16)


def trimmed(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """One text whose tokens all have states."""
    first = samples[0]
    rows = len(first.slots[0][1])
    return (replace(first, input_ids=first.input_ids[:rows]),)


def judged(samples: Sequence[Sample], states: EngineStates) -> WiringReport:
    return compare(TARGET, DRAFT, samples, states, version=VERSION)


def relabelled(samples: Sequence[Sample], slots: Sequence[tuple[str, "torch.Tensor"]]) -> tuple[Sample, ...]:
    return (replace(samples[0], slots=tuple(slots)),)


def test_honest_dumps_are_right_and_both_paths_agree(honest: tuple[Sample, ...], states: EngineStates) -> None:
    report = judged(trimmed(honest), states)
    assert report.wiring.kind == "right"
    assert report.wiring.ids == (2, 4, 6)
    assert report.decode_distance is not None and report.paths_agree


def test_shifted_labels_give_the_ids_to_set(honest: tuple[Sample, ...], states: EngineStates, tmp_path: Path) -> None:
    used = trimmed(honest)
    shifted = relabelled(used, [("embed", used[0].slots[0][1]), ("2", used[0].slots[1][1]), ("4", used[0].slots[2][1])])
    story = tmp_path / "draft"
    story.mkdir()
    config = json.loads((DRAFT / "config.json").read_text())
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [-1, 2, 4]
    (story / "config.json").write_text(json.dumps(config))
    report = compare(TARGET, story, shifted, states, version=VERSION)
    assert (report.wiring.kind, report.wiring.ids) == ("other-ids", (2, 4, 6))
    assert "your slot `embed` is the output of layer 2" in report.wiring.sentence


def test_swapped_slots_are_told_apart(honest: tuple[Sample, ...], states: EngineStates) -> None:
    used = trimmed(honest)
    assert judged(relabelled(used, used[0].slots[::-1]), states).wiring.kind == "reordered"


def test_another_dtype_is_no_accusation(honest: tuple[Sample, ...], states: EngineStates) -> None:
    used = trimmed(honest)
    halved = [(name, part.half().float()) for name, part in used[0].slots]
    assert judged(relabelled(used, halved), states).wiring.kind == "right"


def test_states_of_another_target_are_called_so(honest: tuple[Sample, ...], states: EngineStates) -> None:
    used = trimmed(honest)
    torch.manual_seed(0)
    other = [(name, part[:, torch.randperm(part.shape[1])]) for name, part in used[0].slots]
    assert judged(relabelled(used, other), states).wiring.kind == "other-model"


@pytest.mark.parametrize(("algorithm", "width", "fits"), [("EAGLE3", 384, True), ("EAGLE", 128, False)])
def test_the_probe_sees_what_the_drafter_receives(algorithm: str, width: int, fits: bool) -> None:
    report = asyncio.run(probe(ENGINE, DRAFT, texts(1, 24), algorithm=algorithm))
    given = [item for item in report.received if item.mode != "DECODE"]
    assert {item.width for item in given} == {width}
    assert all(item.fits is fits for item in given)
    assert ("128 values per token" in report.sentence) is not fits


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
def test_the_offline_length_is_the_live_one_within_5_percent(honest: tuple[Sample, ...], steps: int) -> None:
    expected = measure(DRAFT, TARGET, honest, steps=5, version=VERSION).accept_length[steps - 1]
    live = asyncio.run(live_length(steps))
    assert live == pytest.approx(expected, rel=0.05)


async def live_length(steps: int) -> float:
    """1 + correct drafts / verify steps of the running pair, on the prompts of `honest`."""
    correct = verified = 0
    async with serving(ENGINE, speculative(ENGINE, DRAFT, algorithm="EAGLE3", steps=steps)) as client:
        for text in texts(6, 96):
            counters = spec_counters((await ask(client, text, states=False))["meta_info"])
            assert counters is not None and counters.correct_drafts is not None
            correct, verified = correct + counters.correct_drafts, verified + counters.verify_steps
    return 1 + correct / verified
