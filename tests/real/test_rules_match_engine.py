"""What the planner predicts, against the argument resolution of the installed engine itself; no server is started."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from sweeper.core.trial import ServerConfig, SpecConfig
from sweeper.effects.engine_flags import SHIPPED, help_table, installed_version, shipped_table
from sweeper.effects.hub import local_checkpoint, read_config
from sweeper.engine.argv import server_words
from sweeper.engine.request import Request
from sweeper.engine.rules import MIXED_CHUNK, RUNNING_CAP, Resolution, resolve

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(installed_version(None) != SHIPPED, reason=f"the rules were read in SGLang {SHIPPED}"),
]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TARGET, DRAFT = local_checkpoint("toy:target"), local_checkpoint("toy:draft")

LATER = ("candidates, so num_draft_tokens is at most", "num_draft_tokens missing", "no room for a draft")
"""Refusals of ours where the engine accepts the arguments and dies when it drafts."""


def case(
    algorithm: str, steps: int | None = None, topk: int | None = None, tokens: int | None = None, **more: Any
) -> ServerConfig:
    spec_args = more.pop("spec_args", {})
    spec = SpecConfig(
        algorithm=algorithm,
        draft_model_path=None if algorithm == "NGRAM" else str(DRAFT),
        num_steps=steps,
        eagle_topk=topk,
        num_draft_tokens=tokens,
        args=spec_args,
    )
    return ServerConfig(model_path=str(TARGET), device="cpu", args=more, env={}, spec=spec)


TRIPLES = [
    case("EAGLE3", steps, topk, tokens)
    for steps, topk, tokens in itertools.product((None, 1, 3, 6), (None, 1, 2, 4), (None, 1, 4, 16))
]
OTHERS = [
    case("eagle3", 3, 1, 4),
    case("NEXTN", 3, 1, 9),
    case("EAGLE", 5, 4, 16),
    case("STANDALONE"),
    case("NGRAM"),
    case("NGRAM", None, None, 8),
    case("NGRAM", 2, 3, 8, enable_mixed_chunk=True),
    case("NGRAM", spec_args={"ngram_max_bfs_breadth": 4}),
    case("NGRAM", page_size=16),
    case("DFLASH", None, None, 8),
    case("MINE", 3, 1, 4),
    case("EAGLE3", 5, 4, 16, page_size=16),
    case("EAGLE3", 3, 1, 4, page_size=16),
    case("EAGLE3", 3, 1, 4, enable_mixed_chunk=True),
    case("EAGLE3", 3, 1, 4, max_running_requests=7),
    case("EAGLE3", 3, 1, 4, pp_size=2),
    case("EAGLE3", spec_args={"adaptive": True}),
    case("EAGLE3", 5, 4, 16, spec_args={"adaptive": True}),
    case("EAGLE3", 4, 1, 5, spec_args={"adaptive": True}),
    case("EAGLE3", 5, 4, 16, spec_args={"use_rejection_sampling": True}),
    case("STANDALONE", 3, 1, 4, spec_args={"use_rejection_sampling": True}),
    case("EAGLE3", 3, 1, 4, spec_args={"use_block_verification": True}),
    case("EAGLE3", 3, 1, 4, spec_args={"use_rejection_sampling": True, "accept_threshold_acc": 0.5}),
    case("EAGLE3", 3, 1, 4, spec_args={"draft_sink_size": 4}),
]


def asked_of_the_engine(servers: Sequence[ServerConfig]) -> list[dict[str, Any]]:
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")},
        "PYTHONPATH": str(files("sweeper") / "data" / "cpu_engine"),
        "SGLANG_USE_CPU_ENGINE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "resolve_arguments.py")],
        input=json.dumps([server_words(server) for server in servers]),
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(answers, list)
    return answers


def predicted(server: ServerConfig) -> Resolution:
    assert server.spec is not None
    target, draft = read_config(TARGET / "config.json"), read_config(DRAFT / "config.json")
    return resolve(Request(spec=server.spec, args=server.args, device="cpu", target=target, draft=draft))


def disagreement(server: ServerConfig, answer: dict[str, Any]) -> str | None:
    ours = predicted(server)
    spec = ours.spec
    if "error" in answer:
        unknown = "a plugin must register it" in " ".join(ours.notes)
        return None if ours.illegal or unknown else f"the engine refuses: {answer['error']}"
    if ours.illegal is not None:
        return None if any(sign in ours.illegal for sign in LATER) else f"the engine accepts, we say: {ours.illegal}"
    theirs = [answer[f"speculative_{key}"] for key in ("algorithm", "num_steps", "eagle_topk", "num_draft_tokens")]
    mine = [spec.algorithm, spec.num_steps, spec.eagle_topk, spec.num_draft_tokens]
    return None if mine == theirs else f"predicted {mine}, the engine resolves {theirs}"


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    return asked_of_the_engine([*TRIPLES, *OTHERS])


def test_the_engine_resolves_every_request_as_predicted(answers: list[dict[str, Any]]) -> None:
    wrong = [
        f"{' '.join(server_words(server)[12:])}: {found}"
        for server, answer in zip([*TRIPLES, *OTHERS], answers, strict=True)
        if (found := disagreement(server, answer)) is not None
    ]
    assert not wrong, "\n".join(wrong)


def test_the_engine_caps_and_switches_what_the_planner_says_it_does(answers: list[dict[str, Any]]) -> None:
    for server, answer in zip([*TRIPLES, *OTHERS], answers, strict=True):
        if "error" in answer or server.spec is None:
            continue
        assert answer["max_running_requests"] == server.args.get("max_running_requests", RUNNING_CAP)
        assert answer["disable_overlap_schedule"] is True
        kept = bool(server.args.get("enable_mixed_chunk")) and server.spec.algorithm in MIXED_CHUNK
        assert answer["enable_mixed_chunk"] is kept


def test_the_shipped_flag_table_is_that_of_the_engine(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "dump_engine_flags.py"), str(tmp_path)],
        check=True,
        capture_output=True,
        timeout=300,
    )
    name = f"flags-{SHIPPED}.json"
    shipped = Path(str(files("sweeper"))) / "data" / "engine" / name
    assert json.loads((tmp_path / name).read_text()) == json.loads(shipped.read_text())


def test_reading_the_help_of_a_release_finds_the_flags_that_its_parser_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    read, exact = help_table(SHIPPED, None), shipped_table()
    assert read is not None
    shown = {flag.option: flag for flag in read.flags}
    hidden = [flag.option for flag in exact.flags if flag.option not in shown]
    assert len(hidden) < 5
    for flag in exact.flags:
        if flag.option in shown:
            assert shown[flag.option].shape == flag.shape
            assert shown[flag.option].aliases == flag.aliases
            assert set(shown[flag.option].choices) == set(flag.choices)
