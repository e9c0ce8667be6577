"""Five kinds of dumps are told apart by their values, with the toy target's own states."""

from functools import lru_cache

import pytest

torch = pytest.importorskip("torch")

from sweeper.doctor.manifest import read_manifest  # noqa: E402
from sweeper.doctor.matching import Wiring, judge, match_slots, portions  # noqa: E402
from sweeper.doctor.numerics import read_tensor  # noqa: E402
from sweeper.effects.hub import local_checkpoint  # noqa: E402
from sweeper.engine.layers import captured_layers, known_targets  # noqa: E402
from sweeper.toy.model import Target  # noqa: E402
from sweeper.toy.recipe import Shape  # noqa: E402

TOKENS = torch.arange(5, 69)


@lru_cache
def states(dtype: str = "float32", seed: int | None = None) -> dict[int, torch.Tensor]:
    """Input of every layer of the toy target; with `seed`, of a target whose weights were shuffled."""
    torch.set_num_threads(1)  # tiny matrices: more threads only wait for each other
    model = Target(Shape())
    weights = {
        name: read_tensor(t).float() for name, t in read_manifest(local_checkpoint("toy:target")).tensors.items()
    }
    if seed is not None:
        torch.manual_seed(seed)
        weights = {name: w.flatten()[torch.randperm(w.numel())].reshape(w.shape) for name, w in weights.items()}
    model.load_state_dict(weights)
    model = model.to(getattr(torch, dtype))
    with torch.inference_mode():
        _, aux = model.with_aux(TOKENS[None], tuple(range(-1, Shape().layers)))
    return dict(enumerate(aux[0].float().chunk(Shape().layers + 1, -1)))


def engine() -> dict[int, torch.Tensor]:
    """What SGLang captures on a Llama target: bfloat16, every input but that of no layer."""
    return {index: state for index, state in states("bfloat16").items() if index < Shape().layers}


def wiring(slots: dict[str, torch.Tensor], configured: list[int] | None) -> Wiring:
    matches = match_slots(list(slots.items()), engine())
    facts = {"architecture": "LlamaForCausalLM", "num_layers": Shape().layers, "version": "0.5.23"}
    return judge(matches, configured=configured, **facts)


def test_honest_labels_are_confirmed() -> None:
    full = states()
    found = wiring({"2": full[3], "4": full[5], "6": full[7]}, [2, 4, 6])
    assert (found.kind, found.layers, found.ids) == ("right", (3, 5, 7), (2, 4, 6))


def test_shifted_labels_are_named_with_the_ids_to_set() -> None:
    full = states()
    found = wiring({"embed": full[3], "2": full[5], "4": full[7]}, [-1, 2, 4])
    assert (found.kind, found.ids) == ("other-ids", (2, 4, 6))
    assert "your slot `embed` is the output of layer 2" in found.sentence
    assert "set [2, 4, 6]" in found.sentence


def test_a_true_embedding_slot_is_recognised_and_no_ids_deliver_it_with_the_last_block() -> None:
    full = states()
    assert wiring({"embed": full[0], "a": full[3], "b": full[5]}, None).layers == (0, 3, 5)


def test_swapped_slots_are_not_repaired_by_ids() -> None:
    full = states()
    found = wiring({"0": full[7], "1": full[5], "2": full[3]}, [2, 4, 6])
    assert (found.kind, found.ids) == ("reordered", None)
    assert "[2, 1, 0]" in found.sentence


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_another_dtype_is_no_accusation(dtype: str) -> None:
    full = {index: state.to(getattr(torch, dtype)) for index, state in states().items()}
    assert wiring({"2": full[3], "4": full[5], "6": full[7]}, [2, 4, 6]).kind == "right"


def test_states_of_another_model_are_called_so() -> None:
    other = states(seed=3)
    found = wiring({"2": other[3], "4": other[5], "6": other[7]}, [2, 4, 6])
    assert found.kind == "other-model"
    assert "not from this model" in found.sentence


def test_a_slot_that_is_no_capturable_layer_is_named_and_the_others_kept() -> None:
    full = states()
    found = wiring({"2": full[3], "4": full[5], "last": full[8]}, [2, 4, 6])
    assert found.kind == "partly"
    assert "Slot last" in found.sentence


def test_every_layer_differs_enough_from_its_neighbours_to_be_told_apart() -> None:
    matches = match_slots([(str(index), state) for index, state in states().items() if index < 8], engine())
    assert [item.layer for item in matches] == list(range(8))


@pytest.mark.parametrize("architecture", known_targets())
def test_the_portions_together_capture_all_that_a_target_can_deliver(architecture: str) -> None:
    facts = {"architecture": architecture, "num_layers": 40, "version": "0.5.23"}
    got: set[int] = set()
    for ids in portions(**facts, size=16):
        capture = captured_layers(ids=ids, **facts)
        assert capture is not None
        assert not capture.unreached
        got |= set(capture.layers)
    assert set(range(1, 40)) <= got
