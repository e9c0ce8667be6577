from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.core.experiment import Experiment, SpecPoint
from sweeper.effects.engine_flags import shipped_table
from sweeper.effects.facts import beside
from sweeper.errors import ConfigError, SweeperError
from sweeper.planning.config import check_flags, parse_document, parse_experiment

GOOD = """\
name: demo
server:
  model_path: org/model
  args: {tp-size: 8, trust_remote_code: true}
speculative:
  draft-model-path: /d
  configs: ["3-1-4", 5-4-16, auto, {num_steps: 2, eagle_topk: 1, num_draft_tokens: auto}]
workload: {max-tokens: 64, concurrency: [1, 4]}
"""


def message(text: str, *, flags: bool = False) -> str:
    with pytest.raises(ConfigError) as caught:
        document = parse_document(text, Path("x.yaml"))
        if flags:
            check_flags(document, shipped_table())
    return str(caught.value)


def test_dashes_and_underscores_are_the_same_key() -> None:
    found = parse_experiment(GOOD, Path("x.yaml"))
    assert found.workload.max_tokens == 64
    assert found.server.args["tp_size"] == 8
    assert found.speculative.draft_model_path == "/d"
    assert isinstance(found.speculative.configs[3], SpecPoint)


def test_scalars_are_read_as_yaml_1_2_and_env_values_stay_text() -> None:
    text = "name: 'a'\nserver: {model_path: m, env: {A: 0, B: yes, C: 1e3}, args: {dist_x: 10:30, y: 1e-3, z: 012}}"
    server = parse_experiment(text, Path("x.yaml")).server
    assert server.env == {"A": "0", "B": "yes", "C": "1e3"}
    assert server.args == {"dist_x": "10:30", "y": 1e-3, "z": 12}


def test_keys_below_json_flags_and_env_are_the_users_own() -> None:
    text = "name: a\nserver: {model_path: m, args: {json-x: {a-b: 1}}, env: {MY-VAR: x}}"
    server = parse_experiment(text, Path("x.yaml")).server
    assert server.args == {"json_x": {"a-b": 1}}
    assert server.env == {"MY-VAR": "x"}


def test_paths_beside_the_file_become_absolute_and_hub_ids_stay(tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "t.json").write_text("{}")
    text = (
        "name: a\nserver: {model_path: org/model, target_config: t.json}\n"
        "speculative: {draft_model_path: draft, configs: [{draft_model_path: draft}]}\n"
        "sweep: {speculative.draft_model_path: [draft, org/draft]}\n"
    )
    found = parse_document(text, tmp_path / "x.yaml", place=beside(tmp_path)).experiment
    assert found.server.model_path == "org/model"
    assert found.server.target_config == tmp_path / "t.json"
    assert found.speculative.draft_model_path == str(tmp_path / "draft")
    assert found.sweep["speculative.draft_model_path"] == [str(tmp_path / "draft"), "org/draft"]


CASES = {
    "empty file": ("", "x.yaml:1: the file is empty; start from experiments/quickstart.yaml"),
    "not a map": ("- a", "x.yaml:1: an experiment is a map of keys; start with `name: …` and `server: …`"),
    "missing key": ("name: a", "x.yaml:1: server: missing; add it"),
    "wrong key": (GOOD + "wrokload: {}\n", "x.yaml:9: wrokload: unknown key; did you mean workload?"),
    "wrong key inside": (
        GOOD + "run:\n  repeat: 3\n",
        "x.yaml:10: run.repeat: unknown key; did you mean repeats?",
    ),
    "flag in the wrong place": (
        "name: a\nserver:\n  model_path: m\n  quantization: fp8\n",
        "x.yaml:4: server.quantization: unknown key; flags of the engine go below server.args, keys here are "
        "model_path, args, env, target_config",
    ),
    "key of another section": (
        GOOD + "run: {concurrency: [1]}\n",
        "x.yaml:9: run.concurrency: unknown key here; it belongs below workload",
    ),
    "wrong type": (
        GOOD + "run:\n  starts: two\n",
        "x.yaml:10: run.starts: must be a whole number, got 'two'; write digits",
    ),
    "number as text": (
        GOOD + "run: {repeats: '4'}\n",
        "x.yaml:9: run.repeats: must be a whole number, got '4'; write it without quotes",
    ),
    "half a number": (
        GOOD + "run: {repeats: 1.5}\n",
        "x.yaml:9: run.repeats: must be a whole number, got 1.5; change it",
    ),
    "old boolean": (
        GOOD.replace("max-tokens: 64", "ignore_eos: yes"),
        "x.yaml:8: workload.ignore_eos: must be true or false, got 'yes'; write true or false",
    ),
    "scalar for a list": (
        GOOD.replace("[1, 4]", "4"),
        "x.yaml:8: workload.concurrency: must be a list, got 4; put it in [ ]",
    ),
    "empty list": (GOOD.replace("[1, 4]", "[]"), "x.yaml:8: workload.concurrency: must not be empty; add a value"),
    "out of bounds": (
        GOOD.replace("[1, 4]", "[1, 0]"),
        "x.yaml:8: workload.concurrency.1: should be greater than or equal to 1, got 0; change it",
    ),
    "wrong word": (
        GOOD + "engine: {device: cudda}\n",
        "x.yaml:9: engine.device: cannot be 'cudda'; did you mean cuda?",
    ),
    "bad name": (
        GOOD.replace("demo", "a/b"),
        "x.yaml:1: name: 'a/b' cannot name a folder; use letters, digits, '.', '_' and '-', at most 80",
    ),
    "key twice": (
        GOOD + "workload: {}\n",
        "x.yaml:9: workload: given twice, first on line 8; remove one of the two",
    ),
    "key twice in two spellings": (
        "name: a\nserver:\n  model-path: m\n  model_path: n\n",
        "x.yaml:4: server.model_path: given twice, first on line 3; remove one of the two",
    ),
    "bad triple": (
        GOOD.replace('"3-1-4"', "3-1"),
        "x.yaml:7: speculative.configs.0: must be num_steps-eagle_topk-num_draft_tokens, got '3-1'; "
        'write it like "3-1-4"',
    ),
    "triple of zero": (
        GOOD.replace('"3-1-4"', "0-1-1"),
        "x.yaml:7: speculative.configs.0: num_steps and eagle_topk are at least 1, got '0-1-1'; "
        'write it like "3-1-4"',
    ),
    "arm of a wrong kind": (
        GOOD.replace('"3-1-4"', "[3]"),
        'x.yaml:7: speculative.configs.0: must be text like "3-1-4" or a map like '
        "{num_steps: 3, eagle_topk: 1, num_draft_tokens: 4}, got a list",
    ),
    "wrong key in an arm": (
        GOOD.replace("num_steps: 2", "num_stpes: 2"),
        "x.yaml:7: speculative.configs.3.num_stpes: unknown key; did you mean num_steps?",
    ),
    "wrong type in an arm": (
        GOOD.replace("num_steps: 2", "num_steps: two"),
        "x.yaml:7: speculative.configs.3.num_steps: must be a whole number, got 'two'; write digits",
    ),
    "broken yaml": (
        "name: [a\nserver: {}\n",
        "x.yaml:2: not valid YAML: expected ',' or ']', but got ':'; check quotes, brackets and indentation",
    ),
    "tag": ("name: !!python/object:os.system x", "x.yaml:1: name: the tag"),
    "workload axis": (
        GOOD + "sweep: {workload.max_tokens: [1]}\n",
        "x.yaml:9: sweep.workload.max_tokens: cannot be an axis; axes lie in server, speculative, baseline, engine; "
        "for another workload write another experiment",
    ),
    "misspelt failure class": (
        GOOD.replace("num_steps: 2", "expect: oom_captur, num_steps: 2"),
        "x.yaml:7: speculative.configs.3.expect: no such failure class; did you mean oom_capture?",
    ),
    "name twice": (
        "name: a\nserver: {model_path: m}\nspeculative:\n  configs:\n    - {name: A}\n    - {name: A}\n",
        "x.yaml:6: speculative.configs.1.name: 'A' is the name of configs.0 too; choose another",
    ),
    "key of no point": (
        GOOD.replace("speculative:", "speculative:\n  exclude: [{eagle_top: 1}]"),
        "x.yaml:6: speculative.exclude.0.eagle_top: no such key of a point; did you mean eagle_topk?",
    ),
    "control characters": (
        GOOD.replace("demo", '"a\\e[2J"'),
        "x.yaml:1: name: holds control characters; remove them",
    ),
    "control characters in a key": ('"a\\0b": 1\n', "x.yaml:1: a key holds control characters; remove them"),
    "more starts than anybody waits for": (
        GOOD + "run: {starts: 99999999999999}\n",
        "x.yaml:9: run.starts: should be less than or equal to 1000, got 99999999999999; change it",
    ),
    "a number that is infinite": (
        GOOD + "engine: {ready_timeout_s: 1e999}\n",
        "x.yaml:9: engine.ready_timeout_s: 1e999 is too large for a number; write a finite one",
    ),
    "an infinite number among the flags": (
        GOOD.replace("trust_remote_code: true", "mem_fraction_static: -1e400"),
        "x.yaml:4: server.args.mem_fraction_static: -1e400 is too large for a number; write a finite one",
    ),
    "an infinite value of an axis": (
        GOOD + "sweep: {server.args.mem_fraction_static: [0.8, 1e999]}\n",
        "x.yaml:9: sweep.server.args.mem_fraction_static.1: 1e999 is too large for a number; write a finite one",
    ),
    "a time-out of longer than a week": (
        GOOD.replace("max-tokens: 64", "stall_timeout_s: 1e300"),
        "x.yaml:8: workload.stall_timeout_s: should be less than or equal to 604800, got 1e+300; change it",
    ),
    "a budget without end": (
        GOOD + "run: {budget_min: 1e9}\n",
        "x.yaml:9: run.budget_min: should be less than or equal to 525600, got 1000000000.0; change it",
    ),
    "a grid without end": (
        GOOD + f"sweep: {{server.args.tp_size: {list(range(500))}, server.args.context_length: {list(range(500))}}}\n",
        "x.yaml:9: sweep: the file stands for 1,000,000 points, at most 200,000 are planned; give shorter lists",
    ),
    "a secret as an axis": (
        GOOD + "sweep: {server.args.api_key: [a, b]}\n",
        "x.yaml:9: sweep.server.args.api_key: a secret cannot be an axis, its values name the arms; give it once, "
        "below server",
    ),
    "a password in a path": (
        GOOD.replace("org/model", "https://me:hunter2@host/x"),
        "x.yaml:3: server.model_path: holds a password, and paths are shown; take it out of the URL",
    ),
    "a very long value": (
        GOOD.replace("demo", "x" * 1000),
        f"x.yaml:1: name: '{'x' * 199}… cannot name a folder; use letters, digits, '.', '_' and '-', at most 80",
    ),
    "unknown axis": (
        GOOD + "sweep: {speculative.draft_path: [a]}\n",
        "x.yaml:9: sweep.speculative.draft_path: no such key; did you mean speculative.draft_model_path?",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_line_with_place_and_remedy(case: str) -> None:
    text, expected = CASES[case]
    found = message(text)
    assert found == expected if case != "tag" else found.startswith(expected)
    assert "\n" not in found


FLAGS = {
    "unknown flag": (
        "server: {model_path: m, args: {mem_fraction_statik: 0.8}}",
        "server.args.mem_fraction_statik: SGLang 0.5.23 has no flag --mem-fraction-statik; "
        "did you mean mem_fraction_static?",
    ),
    "removed flag": (
        "server: {model_path: m, args: {cuda-graph-max-bs: 16}}",
        "server.args.cuda_graph_max_bs: SGLang 0.5.23 has no flag --cuda-graph-max-bs; "
        "it is now cuda_graph_max_bs_decode or cuda_graph_max_bs_prefill",
    ),
    "wrong value": (
        "server: {model_path: m, args: {tp_size: many}}",
        "server.args.tp_size: tp_size must be a whole number, got 'many'; write one",
    ),
    "wrong choice": (
        "server: {model_path: m, args: {attention_backend: tritn}}",
        "server.args.attention_backend: attention_backend cannot be 'tritn'; did you mean triton?",
    ),
    "value for a switch": (
        "server: {model_path: m, args: {trust_remote_code: 1}}",
        "server.args.trust_remote_code: trust_remote_code takes no value, got 1; write true or false",
    ),
    "switch without its value": (
        "server: {model_path: m, args: {tp_size: true}}",
        "server.args.tp_size: tp_size needs a value, got true; write a whole number",
    ),
    "a flag of Sweeper's": (
        "server: {model_path: m, args: {port: 30000}}",
        "server.args.port: not a flag of yours; Sweeper chooses it; remove it",
    ),
    "the rank of a node": (
        "server: {model_path: m, args: {nnodes: 2, tp_size: 2, node-rank: 1}}",
        "server.args.node_rank: not a flag of yours; Sweeper sets it for each node; remove it",
    ),
    "where the nodes meet": (
        'server: {model_path: m, args: {nnodes: 2, tp_size: 2, dist_init_addr: "10.0.0.1:5000"}}',
        "server.args.dist_init_addr: not a flag of yours; Sweeper sets it for each node; remove it",
    ),
    "where the nodes meet, for the baseline, by its other name": (
        'server: {model_path: m}\nbaseline: {args: {nccl_init_addr: "10.0.0.1:5000"}}',
        "baseline.args.nccl_init_addr: not a flag of yours; Sweeper sets it for each node; remove it",
    ),
    "nodes that cannot share the ranks": (
        "server: {model_path: m, args: {nnodes: 3, tp_size: 4}}",
        "server.args.nnodes: 3 nodes cannot share tp_size × pp_size = 4 equally; make one a multiple",
    ),
    "nodes without ranks": (
        "server: {model_path: m, args: {nnode: 2}}",
        "server.args.nnode: 2 nodes cannot share tp_size × pp_size = 1 equally; make one a multiple",
    ),
    "an axis of nodes that cannot share the ranks": (
        "server: {model_path: m, args: {tp_size: 4}}\nsweep: {server.args.nnodes: [1, 2, 8]}",
        "sweep.server.args.nnodes: 8 nodes cannot share tp_size × pp_size = 4 equally; make one a multiple",
    ),
    "replicas over nodes": (
        "server: {model_path: m, args: {nnodes: 2, tp_size: 2, dp_size: 2}}",
        "server.args.nnodes: SGLang runs no dp_size 2 over 2 nodes; use attn_dp_size, or remove nnodes",
    ),
    "speculation in the server": (
        "server: {model_path: m, args: {speculative_num_steps: 3}}",
        "server.args.speculative_num_steps: speculation is not part of the baseline; write it as "
        "speculative.args.num_steps",
    ),
    "triple among the speculative flags": (
        "server: {model_path: m}\nspeculative: {args: {num_steps: 3}}",
        "speculative.args.num_steps: has a key of its own; write it in speculative.configs",
    ),
    "unknown speculative flag": (
        "server: {model_path: m}\nspeculative: {args: {accept_treshold_single: 0.9}}",
        "speculative.args.accept_treshold_single: SGLang 0.5.23 has no flag --speculative-accept-treshold-single; "
        "did you mean speculative_accept_threshold_single?",
    ),
    "unknown flag in an axis": (
        "server: {model_path: m}\nsweep: {server.args.atention_backend: [fa3]}",
        "sweep.server.args.atention_backend: SGLang 0.5.23 has no flag --atention-backend; "
        "did you mean attention_backend?",
    ),
}


@pytest.mark.parametrize("case", FLAGS)
def test_a_flag_that_the_engine_would_refuse_is_named_with_its_line(case: str) -> None:
    text, expected = FLAGS[case]
    found = message("name: a\n" + text, flags=True)
    line = 3 if "\n" in text else 2
    assert found == f"x.yaml:{line}: {expected}"


def test_each_of_several_mistakes_has_its_line() -> None:
    found = message("name: a\nserver: {model_path: m}\nrun: {start: 1}\nworkload: {seed: x}\n").splitlines()
    assert [line.split(": ")[0] for line in found] == ["x.yaml:3", "x.yaml:4"]


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "too large once its aliases are written out" in message("\n".join(lines))


def test_an_alias_of_itself_is_refused() -> None:
    assert message("a: &a [*a]").startswith("x.yaml:1: ")


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_any_text_parses_or_is_a_clear_error(text: str) -> None:
    try:
        parse_experiment(text, Path("x.yaml"))
    except ConfigError as error:
        assert str(error).startswith("x.yaml:")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([*Experiment.model_fields]), VALUES))
def test_any_value_in_any_section_parses_or_is_a_clear_error(value: dict[str, object]) -> None:
    import yaml

    try:
        document = parse_document(yaml.safe_dump(value, allow_unicode=True), Path("x.yaml"))
        check_flags(document, shipped_table())
    except SweeperError as error:
        assert str(error).startswith("x.yaml:")


SPEC_HEAD = "name: a\nserver: {model_path: m}\n"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("speculative: {algorithm: eaglez, configs: [3-1-4]}\n", "x.yaml:3: speculative.algorithm: "),
        ("speculative: {configs: [{algorithm: eaglez, num_steps: 3}]}\n", "speculative.configs.0.algorithm: "),
        ("sweep: {speculative.algorithm: [EAGLE3, eaglez]}\n", "sweep.speculative.algorithm: "),
    ],
)
def test_an_algorithm_that_this_release_does_not_have(text: str, where: str) -> None:
    said = message(SPEC_HEAD + text, flags=True)
    assert where in said
    assert "SGLang 0.5.23 has no algorithm 'eaglez'; did you mean EAGLE?" in said


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("speculative: {algorithm: eagle3}\n", "0.5.23"),
        ("speculative: {algorithm: mine}\n", "0.9.9"),
        ("speculative: {configs: [{algorithm: mine, expect: bad_argument}]}\n", "0.5.23"),
    ],
)
def test_an_algorithm_that_the_engine_may_have_passes(text: str, version: str) -> None:
    check_flags(parse_document(SPEC_HEAD + text, Path("x.yaml")), shipped_table(), version=version)


def test_an_algorithm_of_a_named_plugin_passes() -> None:
    text = "name: a\nserver: {model_path: m, env: {SGLANG_PLUGINS: mine}}\nspeculative: {algorithm: mine}\n"
    check_flags(parse_document(text, Path("x.yaml")), shipped_table())


def test_a_count_below_one() -> None:
    text = "name: a\nserver: {model_path: m, args: {tp_size: -4}}\nsweep: {server.args.nnodes: [0]}\n"
    said = message(text, flags=True)
    assert "x.yaml:2: server.args.tp_size: tp_size must be at least 1, got -4" in said
    assert "nnodes must be at least 1, got 0" in said


@pytest.mark.parametrize(
    "args",
    [
        "nnodes: 2, tp_size: 4",
        "nnodes: 2, tp_size: 1, pp_size: 2",
        "nnodes: 1",
        "nnodes: 2, tp_size: 8, attn_dp_size: 8",
    ],
)
def test_nodes_that_can_share_the_ranks_are_honoured(args: str) -> None:
    document = parse_document(f"name: a\nserver: {{model_path: m, args: {{{args}}}}}\n", Path("x.yaml"))
    check_flags(document, shipped_table())
