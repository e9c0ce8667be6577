"""How long a plan will take, and what it refuses to run side by side."""

from collections.abc import Callable

import pytest

from sweeper.core.trial import Plan
from sweeper.errors import ConfigError

SPEC = "speculative: {draft_model_path: /m/draft, configs: [3-1-4]}\n"


def test_every_turn_of_a_conversation_counts_in_the_estimate(plan: Callable[..., Plan]) -> None:
    text = SPEC + "workload: {num_prompts: 200, max_tokens: 700, concurrency: [1], temperature: 0.7}"
    one, three = (plan(text, turns=turns) for turns in (1.0, 3.0))
    assert one.estimate_s is not None and three.estimate_s is not None
    measured = 200 * 700 / 70 * 4.3
    assert three.estimate_s - one.estimate_s == pytest.approx(len(one.schedule) * measured * 2)
    times = [[group.estimate_s or 0 for group in made.launch_groups] for made in (one, three)]
    assert [late - early for early, late in zip(*times, strict=True)] == pytest.approx([measured * 2] * 2)


def test_servers_side_by_side_cannot_share_a_port_that_the_experiment_fixed(plan: Callable[..., Plan]) -> None:
    fixed = "name: t\nserver: {model_path: /m/target, args: {nccl_port: 29431}}\n" + SPEC
    assert plan(fixed).arms
    with pytest.raises(ConfigError, match=r"nccl_port: 3-1-4 and baseline would both open port 29431; remove it"):
        plan(fixed + "run: {parallel: packed}\n")
