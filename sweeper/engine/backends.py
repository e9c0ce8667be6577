"""Attention backends: which page size they force, and where a draft tree can run (0.5.23)."""

from collections.abc import Iterator, Mapping
from typing import Any

from sweeper.engine.request import Refused, Request

TREE_WITH_PAGES = ("flashinfer", "fa3", "triton")
"""Backends that can verify a tree over pages of more than one token."""

FORCED_PAGES: Mapping[str, tuple[int, ...]] = {
    "flashmla": (64,),
    "trtllm_mla": (64, 32),
    "cutedsl_mla": (64, 32),
    "trtllm_mha": (64, 16, 32, 128),
    "hpc_ops": (64,),
}
"""Page sizes a backend accepts; the first is taken in place of any other (overrides.py, page constraints)."""


def phases(args: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """(prefill, decode) attention backend as asked; None: the engine chooses by GPU and model."""
    common = args.get("attention_backend")
    return args.get("prefill_attention_backend") or common, args.get("decode_attention_backend") or common


def page_size(args: Mapping[str, Any], draft_backend: str | None = None) -> int | None:
    """Tokens per page as it will be; None: not decided by what is given."""
    asked = int(args["page_size"]) if args.get("page_size") is not None else None
    for backend in (*phases(args), draft_backend if draft_backend == "trtllm_mha" else None):
        if backend is not None and backend in FORCED_PAGES and asked not in FORCED_PAGES[backend]:
            return FORCED_PAGES[backend][0]
    return asked


def tree_on_backend(request: Request) -> Iterator[str]:
    """Raises Refused for a draft tree that the asked backends cannot run."""
    topk = request.spec.eagle_topk or 1
    prefill, decode = phases(request.args)
    fallback = "intel_amx" if request.device == "cpu" else None
    draft_backend = request.spec.args.get("draft_attention_backend")
    pages = page_size(request.args, draft_backend)
    if pages is not None and request.args.get("page_size") not in (None, pages):
        yield f"page_size {request.args['page_size']} becomes {pages}: {decode or prefill} takes no other"
    if topk <= 1:
        return
    if "trtllm_mha" in (prefill, decode):
        raise Refused(f"trtllm_mha only supports eagle_topk 1, got {topk}; use a chain, or flashinfer, fa3 or triton")
    backend = request.args.get("attention_backend") or (prefill if prefill == decode else None) or fallback
    allowed = ("flashinfer",) if request.spec.algorithm == "NGRAM" else TREE_WITH_PAGES
    if pages is not None and pages > 1 and backend is not None and backend not in allowed:
        raise Refused(
            f"eagle_topk {topk} with page_size {pages} runs only on {', '.join(allowed)}, got {backend}; "
            "use page_size 1 or one of those"
        )
    if pages is not None and pages > 1 and backend is None:
        yield f"eagle_topk {topk} with page_size {pages} starts only if the engine picks {', '.join(allowed)}"
