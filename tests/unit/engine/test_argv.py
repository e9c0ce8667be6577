from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.core.launch import LaunchPlan
from sweeper.core.trial import ServerConfig, SpecConfig
from sweeper.engine.argv import Seat, flag_words, launch_plan, paste_line, rank_plans
from sweeper.errors import PreflightError

SPEC = SpecConfig(
    algorithm="EAGLE3",
    draft_model_path="/d",
    num_steps=3,
    eagle_topk=1,
    num_draft_tokens=4,
    args={"accept_threshold_single": 0.9, "enable_multi_layer_eagle": True},
)


def server(**more: Any) -> ServerConfig:
    given: dict[str, Any] = {"model_path": "/m", "device": "cuda", "args": {}, "env": {}, "spec": None, **more}
    return ServerConfig(**given)


def launch(config: ServerConfig, gpus: tuple[int, ...] = (), **more: Any) -> LaunchPlan:
    return launch_plan(
        config, launch_id="abc", gpu_ids=gpus, port=31000, log_path=Path("/l/server.log"), python="/py", **more
    )


def test_a_gpu_launch_is_complete() -> None:
    config = server(args={"tp_size": 2, "trust_remote_code": True}, env={"NCCL_DEBUG": "WARN"}, spec=SPEC)
    plan = launch(config, (6, 7))
    assert plan.argv == (
        *("/py", "-m", "sglang.launch_server", "--model-path", "/m", "--tp-size", "2", "--trust-remote-code"),
        *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/d", "--speculative-num-steps", "3"),
        *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"),
        *("--speculative-accept-threshold-single", "0.9", "--enable-multi-layer-eagle"),
        *("--host", "127.0.0.1", "--port", "31000", "--served-model-name", "sweeper-abc"),
        *("--nccl-port", "26000"),
    )
    assert plan.env == {"NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": "6,7", "SWEEPER_LAUNCH_ID": "abc"}
    assert (plan.base_url, plan.served_model_name) == ("http://127.0.0.1:31000", "sweeper-abc")


def test_a_cpu_launch_gets_the_stand_in_and_the_experiments_own_values_win() -> None:
    plan = launch(server(device="cpu", args={"max_total_tokens": 4096}), cpu_engine_dir=Path("/cpu"))
    words = " ".join(plan.argv)
    assert "--device cpu --attention-backend intel_amx --mem-fraction-static 0.3 --max-total-tokens 4096" in words
    assert "--sleep-on-idle" in words
    assert plan.env["PYTHONPATH"] == "/cpu"
    assert plan.env["SGLANG_USE_CPU_ENGINE"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in plan.env


def test_the_stand_in_comes_before_the_users_own_python_path() -> None:
    plan = launch(
        server(device="cpu", env={"PYTHONPATH": "/mine", "OMP_NUM_THREADS": "2"}), cpu_engine_dir=Path("/cpu")
    )
    assert plan.env["PYTHONPATH"] == "/cpu:/mine"
    assert plan.env["OMP_NUM_THREADS"] == "2"


def test_a_prefix_and_an_interpreter_of_the_experiment_are_used() -> None:
    plan = launch(server(python="/other/python", command_prefix=("docker", "run", "img")), (0,))
    assert plan.argv[:5] == ("docker", "run", "img", "/other/python", "-m")


def test_an_overlay_stands_in_for_the_draft() -> None:
    words = launch(server(spec=SPEC), (0,), draft_overlay=Path("/o")).argv
    assert words[words.index("--speculative-draft-model-path") + 1] == "/o"


def test_gpus_must_be_as_many_as_the_parallel_sizes_ask_for() -> None:
    with pytest.raises(PreflightError, match=r"needs 4 GPU\(s\).*3 given"):
        launch(server(args={"tp_size": 4}), (4, 5, 6))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--a-b"]),
        (False, []),
        (None, []),
        (3, ["--a-b", "3"]),
        (0, ["--a-b", "0"]),
        (0.5, ["--a-b", "0.5"]),
        ("x y", ["--a-b", "x y"]),
        (-1, ["--a-b=-1"]),
        ([1, 2], ["--a-b", "1", "2"]),
        ([{"k": 1}], ["--a-b", '{"k": 1}']),
        ({"k": [1]}, ["--a-b", '{"k":[1]}']),
    ],
)
def test_a_value_becomes_words(value: Any, words: list[str]) -> None:
    assert list(flag_words("a_b", value)) == words


def test_the_line_to_paste_has_none_of_sweepers_own_flags() -> None:
    line = paste_line(server(args={"tp_size": 8}, env={"A": "x y"}, spec=SPEC))
    assert line.startswith("A='x y' python -m sglang.launch_server --model-path /m --tp-size 8 --speculative-algorithm")
    assert "--port" not in line and "sweeper" not in line


def test_ranks_share_all_but_their_number_gpus_and_log() -> None:
    plan = launch(server(args={"tp_size": 16}), tuple(range(8)), nnodes=2)
    seats = [
        Seat(gpu_ids=tuple(range(8)), host="10.0.0.1", port=31000, log_path=Path("/l/0.log")),
        Seat(gpu_ids=tuple(range(8)), host="10.0.0.2", port=31777, log_path=Path("/l/1.log")),
    ]
    first, second = rank_plans(plan, seats, dist_port=31999)
    assert first.argv[-6:] == ("--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "10.0.0.1:31999")
    assert second.argv[-6:] == ("--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "10.0.0.1:31999")
    assert first.argv[:-6] == plan.argv
    assert [(a, b) for a, b in zip(plan.argv, second.argv, strict=False) if a != b] == [("31000", "31777")]
    assert (first.launch_id, second.launch_id) == (plan.launch_id, f"{plan.launch_id}-r1")
    assert second.env["SWEEPER_LAUNCH_ID"] == second.launch_id
    assert second.log_path == Path("/l/1.log")


def test_one_node_is_no_cluster() -> None:
    plan = launch(server(), (0,))
    assert rank_plans(plan, [Seat(gpu_ids=(0,), port=1, log_path=Path("l"))], dist_port=2) == (plan,)


@given(st.integers(2, 6))
def test_every_rank_appears_once_and_meets_at_the_first_node(nodes: int) -> None:
    plan = launch(server(args={"tp_size": nodes}), (0,), nnodes=nodes)
    seats = [Seat(gpu_ids=(0,), host=f"h{n}", port=1, log_path=Path(f"{n}")) for n in range(nodes)]
    ranks = rank_plans(plan, seats, dist_port=9)
    assert [r.argv[r.argv.index("--node-rank") + 1] for r in ranks] == [str(n) for n in range(nodes)]
    assert {r.argv[r.argv.index("--dist-init-addr") + 1] for r in ranks} == {"h0:9"}
