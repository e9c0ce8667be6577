from sweeper.core.trial import Arm, Plan, ServerConfig, SpecConfig

SERVER = ServerConfig(
    model_path="/m",
    device="cuda",
    args={"api_key": "hush", "tp_size": 8, "max_total_tokens": 9},
    env={"HF_TOKEN": "hush", "NCCL_DEBUG": "WARN"},
    spec=SpecConfig(algorithm="EAGLE3", args={"accept_threshold_acc": 0.9}),
)
PLAN = Plan(
    experiment="e",
    arms=(Arm(arm_id="a", label="x", server=SERVER, baseline_id="a", axes={"server.args.api_key": "hush"}),),
    trials=(),
    launch_groups=(),
    schedule=(),
    repeats=1,
)


def test_a_redacted_plan_is_the_same_plan_without_its_secrets() -> None:
    shown = PLAN.redacted()
    assert "hush" not in repr(shown)
    assert shown.plan_id == PLAN.plan_id
    assert shown.arms[0].server.args["tp_size"] == 8 and shown.arms[0].server.args["max_total_tokens"] == 9
    assert shown.arms[0].server.env["NCCL_DEBUG"] == "WARN"
    assert shown.arms[0].server.spec == SERVER.spec


def test_gpus_are_the_product_of_the_parallel_sizes_and_attention_ranks_share_them() -> None:
    def gpus(**args: object) -> int:
        return ServerConfig(model_path="m", device="cuda", args=args, env={}, spec=None).gpus

    assert gpus() == 1
    assert gpus(tp_size=4, pp_size=2) == 8
    assert gpus(tp_size=2, dp_size=4) == 8
    assert gpus(tp_size=8, dp_size=8, enable_dp_attention=True) == 8
    assert gpus(tp_size=8, attn_dp_size=8) == 8
