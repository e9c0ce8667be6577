"""Training dumps of the shipped target, as a training run leaves them: tokens, and the states a draft learns from."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from sweeper.effects.prompts import toy_prompts
from sweeper.toy import ToyPair
from sweeper.toy.model import Target
from sweeper.toy.recipe import Shape

SHIFTED_LABELS = ("embed", "2", "4")
"""What the dumps of the story called the outputs of layers 2, 4 and 6."""
PROMPTS = 4
ANSWER_TOKENS = 64


def write_dumps(pair: ToyPair, dest: Path) -> tuple[Path, ...]:
    """One `.pt` a prompt: the target's own greedy answer, its states by layer, and labels that are shifted.

    `input_ids` [tokens] int64, `hidden_states` three times [tokens, hidden] bfloat16, `layer_names`, `generated_from`.
    """
    torch.set_num_threads(1)  # the matrices are tiny; threads that wait for each other cost minutes on a busy machine
    target = _target(pair.target)
    tokenizer = Tokenizer.from_file(str(pair.target / "tokenizer.json"))
    dest.mkdir(parents=True, exist_ok=True)
    made = []
    short = sorted(toy_prompts("code"), key=lambda prompt: len(prompt.text))[:PROMPTS]
    for number, prompt in enumerate(short):
        ids = tokenizer.encode(prompt.text).ids
        file = dest / f"sample-{number}.pt"
        torch.save(_dump(target, ids), file)
        made.append(file)
    return tuple(made)


def _target(folder: Path) -> Target:
    target = Target(Shape())
    target.load_state_dict(load_file(folder / "model.safetensors"))
    return target.eval()


@torch.inference_mode()
def _dump(target: Target, prompt: Sequence[int]) -> dict[str, object]:
    tokens = torch.tensor([prompt])
    for _ in range(ANSWER_TOKENS):
        tokens = torch.cat([tokens, target(tokens)[:, -1:].argmax(-1)], 1)
    _, states = target.with_aux(tokens, target.shape.aux_layer_ids)
    parts: Sequence[Tensor] = states[0].bfloat16().chunk(len(target.shape.aux_layer_ids), -1)
    return {
        "input_ids": tokens[0],
        "hidden_states": [part.clone() for part in parts],
        "layer_names": list(SHIFTED_LABELS),
        "generated_from": len(prompt),
    }
