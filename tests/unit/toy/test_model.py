"""The models on a tiny instance: causal where they must be, and the draft unrolls as the engine decodes."""

import pytest

torch = pytest.importorskip("torch")

from sweeper.toy.draft import Draft  # noqa: E402
from sweeper.toy.export import vocabulary_maps  # noqa: E402
from sweeper.toy.learn import DraftStep, chain_agreement, draft_loss, target_loss, unrolled  # noqa: E402
from sweeper.toy.model import Target  # noqa: E402
from sweeper.toy.recipe import Shape  # noqa: E402

SHAPE = Shape(
    vocab_size=48,
    draft_vocab_size=32,
    hidden_size=32,
    layers=4,
    intermediate_size=48,
    draft_intermediate_size=48,
    aux_layer_ids=(0, 1, 2),
)
KEPT = torch.arange(0, 48, 3).repeat_interleave(2)[:32] + torch.tensor([0, 1] * 16)
ROWS, STEPS = 9, 3


@pytest.fixture
def target() -> Target:
    torch.manual_seed(1)
    return Target(SHAPE)


@pytest.fixture
def draft() -> Draft:
    torch.manual_seed(2)
    return Draft(SHAPE)


def tokens(seed: int = 3, batch: int = 2) -> "torch.Tensor":
    return torch.randint(SHAPE.vocab_size, (batch, ROWS + STEPS), generator=torch.Generator().manual_seed(seed))


def test_target_logits_do_not_depend_on_later_tokens(target: Target) -> None:
    one, other = tokens(), tokens()
    other[:, 6:] = (other[:, 6:] + 1) % SHAPE.vocab_size
    assert torch.allclose(target(one)[:, :6], target(other)[:, :6], atol=1e-5)
    assert not torch.allclose(target(one)[:, 6:], target(other)[:, 6:], atol=1e-3)


def test_layer_minus_one_is_the_embedding_and_aux_states_stand_in_layer_order(target: Target) -> None:
    batch = tokens()
    _, aux = target.with_aux(batch, (-1, 0, 2))
    _, turned = target.with_aux(batch, (2, 0, -1))
    assert torch.equal(aux[..., : SHAPE.hidden_size], target.model.embed_tokens(batch))
    assert torch.equal(aux, turned)


def test_draft_step_i_of_row_t_sees_the_tokens_up_to_t_plus_1_plus_i(target: Target, draft: Draft) -> None:
    batch, row = tokens(), 4
    with torch.no_grad():
        _, aux = target.with_aux(batch, SHAPE.aux_layer_ids)
        embeddings = target.model.embed_tokens(batch)
        before = list(draft.unroll(aux[:, :ROWS], embeddings, STEPS))
        for seen in range(row, ROWS + STEPS):
            changed = embeddings.clone()
            changed[:, seen] += 1.0
            after = list(draft.unroll(aux[:, :ROWS], changed, STEPS))
            for step in range(STEPS):
                differs = not torch.allclose(before[step][:, row], after[step][:, row], atol=1e-6)
                assert differs == (0 < seen <= row + 1 + step), (seen, step)


def test_draft_rows_see_no_later_target_states(target: Target, draft: Draft) -> None:
    batch = tokens()
    with torch.no_grad():
        _, aux = target.with_aux(batch, SHAPE.aux_layer_ids)
        embeddings = target.model.embed_tokens(batch)
        changed = aux.clone()
        changed[:, 5:] += 1.0
        for one, other in zip(
            draft.unroll(aux[:, :ROWS], embeddings, STEPS),
            draft.unroll(changed[:, :ROWS], embeddings, STEPS),
            strict=True,
        ):
            assert torch.allclose(one[:, :5], other[:, :5], atol=1e-6)
            assert not torch.allclose(one[:, 5:], other[:, 5:], atol=1e-4)


def test_the_unroll_is_what_decoding_one_row_at_a_time_gives(target: Target, draft: Draft) -> None:
    """The engine drafts from the end of a prefix: its rows are the first `length` rows of the unroll."""
    batch, length = tokens(), 5
    with torch.no_grad():
        _, aux = target.with_aux(batch, SHAPE.aux_layer_ids)
        embeddings = target.model.embed_tokens(batch)
        whole = list(draft.unroll(aux[:, :ROWS], embeddings, STEPS))
        prefix = list(draft.unroll(aux[:, :length], embeddings[:, : length + STEPS], STEPS))
    for step in range(STEPS):
        assert torch.allclose(whole[step][:, length - 1], prefix[step][:, -1], atol=1e-5)


def test_training_on_one_batch_lowers_both_losses(target: Target, draft: Draft) -> None:
    batch = tokens()
    known = torch.zeros(SHAPE.vocab_size, dtype=torch.bool)
    known[KEPT] = True

    def loss_of_draft() -> "torch.Tensor":
        return draft_loss(unrolled(target, draft, batch, KEPT, STEPS, SHAPE.aux_layer_ids), known, 0.9)

    for module, loss_of in ((target, lambda: target_loss(target, batch)), (draft, loss_of_draft)):
        optimiser = torch.optim.AdamW(module.parameters(), lr=1e-2)
        first = float(loss_of().detach())
        for _ in range(40):
            optimiser.zero_grad()
            loss_of().backward()
            optimiser.step()
        assert float(loss_of().detach()) < 0.8 * first


def test_tokens_outside_the_draft_vocabulary_do_not_count_in_its_loss() -> None:
    known = torch.tensor([True, True, False])
    logits = torch.tensor([[[4.0, 0.0], [0.0, 4.0]]])
    inside = DraftStep(draft_logits=logits, target_logits=logits, target_choice=torch.tensor([[0, 1]]))
    half = DraftStep(draft_logits=logits, target_logits=logits, target_choice=torch.tensor([[0, 2]]))
    wrong = DraftStep(draft_logits=logits.flip(-1), target_logits=logits, target_choice=torch.tensor([[0, 1]]))
    assert draft_loss(iter([half]), known, 1.0) == pytest.approx(float(draft_loss(iter([inside]), known, 1.0)))
    assert draft_loss(iter([wrong]), known, 1.0) > 10 * draft_loss(iter([inside]), known, 1.0)


def test_a_chain_ends_at_its_first_wrong_token() -> None:
    kept = torch.tensor([1, 3])

    def step(draft_ids: list[int], target_ids: list[int]) -> DraftStep:
        logits = torch.nn.functional.one_hot(torch.tensor([draft_ids]), 2).float()
        return DraftStep(draft_logits=logits, target_logits=logits, target_choice=torch.tensor([target_ids]))

    first, second, third = step([0, 1], [1, 1]), step([0, 1], [1, 3]), step([0, 0], [3, 1])
    assert chain_agreement(iter([first, second, third]), kept) == [0.5, 0.5, 0.0]


def test_vocabulary_maps_are_offsets_and_membership() -> None:
    maps = vocabulary_maps(torch.tensor([0, 2, 5]), 7)
    assert maps["d2t"].tolist() == [0, 1, 3]
    assert maps["t2d"].nonzero().flatten().tolist() == [0, 2, 5]
