"""The draft's head, its vocabulary, and the map from its ids to the target's."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from sweeper.core.finding import Finding
from sweeper.doctor.case import Case, Verdict, finding, some, verdict
from sweeper.doctor.manifest import Tensor
from sweeper.engine.version import release

ONE_VOCABULARY_SINCE = "0.5.15"
"""From here a STANDALONE draft must have the target's vocab_size. The engine compares no tokenizers: the draft's is
never loaded."""

MapKind = Literal["offsets", "absolute", "arange", "out-of-range", "repeated", "disagrees", "placeholder", "zeros"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapJudgement:
    """What a d2t tensor is, by evidence."""

    kind: MapKind
    evidence: str


def judge_d2t(d2t: Sequence[int], t2d: Sequence[int] | None, target_vocab: int | None) -> MapJudgement:
    """Decide the convention: the engine takes target id = i + d2t[i].

    `t2d` holds one truth value per target id; `target_vocab` bounds the ids.
    """
    mapped = [index + offset for index, offset in enumerate(d2t)]
    reachable = {index for index, flag in enumerate(t2d) if flag} if t2d is not None else None
    if not any(d2t) and reachable == set():
        return MapJudgement(kind="placeholder", evidence="d2t is all zero and t2d all false")
    absolute = _absolute(d2t, mapped, reachable, target_vocab)
    if absolute is not None:
        return absolute
    highest = max(mapped, default=0)
    if min(mapped, default=0) < 0 or (target_vocab is not None and highest >= target_vocab):
        bounds = (
            f"i + d2t[i] reaches from {min(mapped)} to {highest}; the target has ids 0 to {(target_vocab or 0) - 1}"
        )
        return MapJudgement(kind="out-of-range", evidence=bounds)
    if len(set(mapped)) != len(mapped):
        return MapJudgement(kind="repeated", evidence=f"only {len(set(mapped))} of {len(mapped)} target ids differ")
    return _against_t2d(d2t, mapped, reachable or None, target_vocab)


def _absolute(
    d2t: Sequence[int], mapped: Sequence[int], reachable: set[int] | None, target_vocab: int | None
) -> MapJudgement | None:
    if len(d2t) < 2:
        return None
    if list(d2t) == list(range(len(d2t))):
        return MapJudgement(kind="arange", evidence=f"d2t is 0, 1, 2, … {len(d2t) - 1}, which would map i to 2 i")
    if reachable and set(d2t) == reachable and set(mapped) != reachable:
        return MapJudgement(kind="absolute", evidence="the raw values are exactly the ids of t2d")
    if not reachable and all(later > earlier for earlier, later in pairwise(d2t)):
        return MapJudgement(kind="absolute", evidence="the raw values grow at every step, as ids do and offsets do not")
    in_range = target_vocab is None or max(d2t) < target_vocab
    if not reachable and in_range and len(set(d2t)) == len(d2t) and len(set(mapped)) != len(mapped):
        return MapJudgement(kind="absolute", evidence="the raw values are all different, i + d2t[i] are not")
    return None


def _against_t2d(
    d2t: Sequence[int], mapped: Sequence[int], reachable: set[int] | None, target_vocab: int | None
) -> MapJudgement:
    if reachable is not None and set(mapped) != reachable:
        missing = len(reachable - set(mapped))
        text = f"{missing} of the {len(reachable)} ids of t2d are not reached by i + d2t[i]"
        return MapJudgement(kind="disagrees", evidence=text)
    if reachable is None and not any(d2t) and target_vocab is not None and len(d2t) < target_vocab:
        return MapJudgement(
            kind="zeros", evidence=f"d2t is all zero: draft ids stand for target ids 0 to {len(d2t) - 1}"
        )
    proof = "agrees with t2d" if reachable is not None else "offsets, in range, all different"
    return MapJudgement(kind="offsets", evidence=f"d2t of {len(d2t)} entries: {proof}")


def check_d2t(case: Case) -> Verdict:
    if not case.eagle3_run or case.loading is None:
        return Verdict(unchecked="d2t: not read with this algorithm or without weights")
    reduced = case.config.reduced_vocab and not case.config.tied
    tensor = case.manifest.named("d2t")
    if tensor is not None and case.d2t is None:
        return Verdict(findings=(_dtype(tensor),))
    if case.d2t is None:
        return verdict([_absent(case) if reduced else None], "d2t: none, and none is needed with the full vocabulary")
    wrong_length = case.config.draft_vocab_size not in (None, len(case.d2t))
    if wrong_length:
        return Verdict(findings=(_length(case, len(case.d2t)),))
    judged = judge_d2t(case.d2t, case.t2d, case.target.vocab_size if case.target else case.config.vocab_size)
    found = _judged(judged)
    if found is not None and judged.kind == "placeholder":
        return Verdict(findings=(found,), unchecked="d2t: its values are not in this listing")
    return verdict([found], f"d2t: {judged.evidence}")


def _absent(case: Case) -> Finding:
    config = case.config
    return finding(
        "error",
        "d2t-missing",
        f"draft_vocab_size is {config.draft_vocab_size} of {config.vocab_size}, but there is no d2t: the engine would "
        "take the draft's ids as the target's.",
        "Add the tensor d2t (offsets: target id - draft id) from the training run.",
    )


def _dtype(tensor: Tensor) -> Finding:
    return finding(
        "error",
        "d2t-dtype",
        f"{tensor.name} is {tensor.dtype} {list(tensor.shape)}; the engine indexes with it and needs a list of I64.",
        "Store d2t as one dimension of int64 offsets.",
    )


def _length(case: Case, length: int) -> Finding:
    return finding(
        "error",
        "d2t-length",
        f"d2t has {length} entries, draft_vocab_size is {case.config.draft_vocab_size}.",
        "Use the d2t that was saved with this head.",
    )


def _judged(judged: MapJudgement) -> Finding | None:
    rule = "The engine computes target id = i + d2t[i]"
    convert = "Subtract arange from d2t (`sweeper doctor --fix` does it)."
    by_kind = {
        "absolute": ("error", "d2t-absolute-ids", f"d2t looks like absolute ids: {judged.evidence}. {rule}.", convert),
        "arange": ("error", "d2t-arange", f"{judged.evidence}. {rule}, so the identity is all zeros.", convert),
        "out-of-range": ("error", "d2t-out-of-range", f"{judged.evidence}.", _RETRAINED_MAP),
        "repeated": ("error", "d2t-repeated", f"{rule}: {judged.evidence}.", _RETRAINED_MAP),
        "disagrees": ("error", "d2t-disagrees", f"{judged.evidence}. {rule}.", _RETRAINED_MAP),
        "zeros": ("warning", "d2t-all-zero", f"{judged.evidence}.", _RETRAINED_MAP),
        "placeholder": (
            "note",
            "d2t-placeholder",
            f"{judged.evidence}: a listing without values; not judged.",
            "Give the checkpoint with its values to have the map judged.",
        ),
    }
    return finding(*by_kind[judged.kind]) if judged.kind in by_kind else None


_RETRAINED_MAP = "Take d2t from the training run of this head."


def check_head(case: Case) -> Verdict:
    if case.loading is None or not case.eagle3_draft:
        return Verdict(unchecked="output head")
    found = [_tied(case), _own_head(case), _borrowed_head(case), _key(case)]
    source = "the target's" if case.config.borrows_head else "tied to the embedding" if case.config.tied else "its own"
    return verdict(found, f"output head: {source}, complete")


def _head_tensor(case: Case) -> str | None:
    return next((name for name in case.manifest.tensors if name.endswith("lm_head.weight")), None)


def _tied(case: Case) -> Finding | None:
    config, head = case.config, _head_tensor(case)
    if not config.tied or not (head or config.reduced_vocab):
        return None
    shape = f"lm_head {list(case.manifest.tensors[head].shape)} in the file would be ignored, " if head else ""
    return finding(
        "error",
        "tied-head",
        f"tie_word_embeddings is true: {shape}the tied embedding has {config.vocab_size} rows while "
        f"draft_vocab_size is {config.draft_vocab_size}.",
        "Set tie_word_embeddings to false (`sweeper doctor --fix` does it).",
    )


def _own_head(case: Case) -> Finding | None:
    config = case.config
    if case.loading is None or "lm_head.weight" not in case.loading.unfilled:
        return None
    named = _head_tensor(case)
    held = f" ({named} is not read by that name)" if named else ""
    full = config.draft_vocab_size == config.vocab_size
    absent = "remove draft_vocab_size from" if case.kind == "eagle3-mla" else "set draft_vocab_size to null in"
    borrow = f", or {absent} config.json so that the target's head is borrowed (`--fix` does it)" if full else ""
    return finding(
        "error",
        "head-missing",
        f"The output head is neither in the checkpoint{held}, nor tied, nor borrowed: draft_vocab_size is "
        f"{config.draft_vocab_size}, so a fresh head is built and keeps uninitialised values. Expect accept length 1.",
        f"Add lm_head.weight{borrow}.",
    )


def _borrowed_head(case: Case) -> Finding | None:
    config = case.config
    if not config.borrows_head:
        return None
    if config.own_embedding:
        return finding(
            "error",
            "head-width",
            f"No draft_vocab_size, so the target's head is borrowed; it takes {config.target_hidden_size} values, the "
            f"draft gives {config.hidden_size}.",
            "Give the draft its own head: draft_vocab_size and lm_head.weight.",
        )
    if head := _head_tensor(case):
        return finding(
            "warning",
            "head-replaced",
            f"draft_vocab_size is not set, so the engine replaces the draft's own {head} by the target's.",
            f"Set draft_vocab_size to {config.vocab_size} if the draft was trained with its own head.",
        )
    return None


def _key(case: Case) -> Finding | None:
    config = case.config
    if case.kind != "eagle3-llama" or config.names_draft_vocab or config.tied:
        return None
    return finding(
        "error",
        "draft-vocab-key-missing",
        "config.json has no draft_vocab_size; this class reads the key without a default and fails at load.",
        "Add draft_vocab_size (`sweeper doctor --fix` does it); null borrows the target's head.",
    )


def check_vocabulary(case: Case) -> Verdict:
    if case.target is None or case.target.vocab_size is None or case.config.vocab_size is None:
        return Verdict(unchecked="vocabulary: the target's size is not known")
    draft, target = case.config.vocab_size, case.target.vocab_size
    found = [_sizes(case, draft, target), _tokens(case)]
    compared = ", tokenizers alike" if case.vocabularies else ""
    return verdict(found, f"vocabulary: {target} ids{compared}")


def _sizes(case: Case, draft: int, target: int) -> Finding | None:
    if draft == target:
        return None
    if case.standalone and release(case.version) >= release(ONE_VOCABULARY_SINCE):
        return finding(
            "error",
            "vocabulary-size",
            f"The draft's vocabulary has {draft} ids, the target's {target}; with STANDALONE the server refuses to "
            "start unless both config.json name one size, padding included.",
            f"Use a draft whose vocab_size is {target}.",
        )
    own_full_head = case.standalone or not (case.config.reduced_vocab or case.config.borrows_head)
    beyond = draft > target and own_full_head
    return finding(
        "error" if beyond else "warning" if own_full_head else "note",
        "vocabulary-size",
        f"The draft's vocabulary has {draft} ids, the target's {target}"
        + ("; the draft can propose ids that the target does not have." if beyond else "."),
        "Use a draft of this target; a difference that is only padding is harmless.",
    )


def _tokens(case: Case) -> Finding | None:
    if case.vocabularies is None:
        return None
    draft, target = case.vocabularies
    moved = [token for token, index in draft.items() if target.get(token, index) != index]
    lost = [token for token in draft if token not in target]
    if not moved and not lost:
        return None
    return finding(
        "error" if moved else "warning",
        "tokenizer-differs",
        f"{len(moved)} tokens have another id in the target's tokenizer, {len(lost)} do not exist there "
        f"({some([repr(token) for token in (moved or lost)], 3)}).",
        "Use a draft that was trained for this target's tokenizer.",
    )
