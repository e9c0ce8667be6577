import pytest

from sweeper.effects.engine_flags import shipped_table
from sweeper.engine.flags import FlagTable, parse_help, size_of, wrong_value

TABLE = shipped_table()


def flag(name: str) -> str | None:
    found = TABLE.find(name)
    return found.key if found else None


def test_every_spelling_finds_its_flag() -> None:
    for name in ("tp_size", "--tp-size", "tensor_parallel_size", "tp", "tp-size"):
        assert flag(name) == "tp_size"
    assert flag("speculative_draft_model") == "speculative_draft_model_path"


def test_an_ambiguous_beginning_finds_nothing_and_names_its_candidates() -> None:
    assert flag("cuda_graph_max") is None
    said = TABLE.unknown("cuda_graph_max")
    assert "cuda_graph_max_bs_decode" in said and "cuda_graph_max_bs_prefill" in said


def test_a_removed_flag_names_its_successors() -> None:
    assert TABLE.unknown("--cuda-graph-max-bs") == (
        "SGLang 0.5.23 has no flag --cuda-graph-max-bs; it is now cuda_graph_max_bs_decode or cuda_graph_max_bs_prefill"
    )


def test_a_typo_gets_the_nearest_name_and_nonsense_gets_help() -> None:
    assert TABLE.unknown("mem_fracton_static").endswith("did you mean mem_fraction_static?")
    assert "--help" in TABLE.unknown("zzqqxx")


def test_deprecated_spellings_are_known_as_such() -> None:
    found = TABLE.find("enable_dp_attention")
    assert found is not None and found.deprecated is not None and "attn-dp-size" in found.deprecated


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("tp_size", 8, True),
        ("tp_size", "8", True),
        ("tp_size", 8.5, False),
        ("tp_size", True, False),
        ("tp_size", False, True),
        ("tp_size", None, True),
        ("tp_size", [1, 2], False),
        ("mem_fraction_static", 0.85, True),
        ("mem_fraction_static", "much", False),
        ("mem_fraction_static", "nan", False),
        ("mem_fraction_static", "inf", False),
        ("context_length", 8192, True),
        ("context_length", "25.6k", True),
        ("context_length", "8Ki", True),
        ("context_length", "8.5Ki", False),
        ("context_length", "8K", False),
        ("context_length", "nan", False),
        ("attention_backend", "fa3", True),
        ("attention_backend", "fa33", False),
        ("trust_remote_code", True, True),
        ("trust_remote_code", "yes", False),
        ("cuda_graph_bs_decode", [1, 2, 4], True),
        ("cuda_graph_bs_decode", [1, "two"], False),
        ("cuda_graph_config", {"decode": {"max_bs": 8}}, True),
        ("json_model_override_args", {"a": 1}, True),
    ],
)
def test_values_are_judged_as_the_engines_parser_would(name: str, value: object, right: bool) -> None:
    found = TABLE.find(name)
    assert found is not None
    assert (wrong_value(found, value) is None) is right


HELP = """\
usage: launch_server.py [-h] --model-path MODEL_PATH [--tp-size TP_SIZE]

options:
  -h, --help            show this help message and exit
  --model-path MODEL_PATH, --model MODEL_PATH
                        The path of the model weights. See --tp-size for more.
  --trust-remote-code   Whether to allow custom models.
  --load-format {auto,pt,safetensors}
                        The format.
  --cuda-graph-bs CUDA_GRAPH_BS [CUDA_GRAPH_BS ...]
                        Batch sizes.
  --lora-target-modules [{all,q_proj} ...]
                        Modules.
  --sidecar [SIDECAR]   A sidecar.
  --tensor-parallel-size TENSOR_PARALLEL_SIZE, --tp-size TENSOR_PARALLEL_SIZE
                        The tensor parallelism size.
  --stream-output, --no-stream-output
                        Whether to stream.
"""


def test_another_release_is_read_from_its_help() -> None:
    table = parse_help(HELP, "0.5.5")
    shapes = {flag.key: (flag.shape, flag.aliases, flag.choices) for flag in table.flags}
    assert shapes == {
        "model_path": ("value", ("--model",), ()),
        "trust_remote_code": ("switch", (), ()),
        "load_format": ("value", (), ("auto", "pt", "safetensors")),
        "cuda_graph_bs": ("list", (), ()),
        "lora_target_modules": ("list", (), ("all", "q_proj")),
        "sidecar": ("optional", (), ()),
        "tp_size": ("value", ("--tensor-parallel-size",), ()),
        "stream_output": ("toggle", (), ()),
    }
    assert table.find("cuda_graph_bs_decode") is None
    assert table.version == "0.5.5"


def test_numbers_that_plans_are_made_from_are_numbers_in_every_release() -> None:
    """A `--help` shows no types; `tp_size: many` must not get as far as the counting of GPUs."""
    found = parse_help(HELP, "0.5.5").find("tp_size")
    assert found is not None and found.key == "tp_size" and found.type == "text"
    assert wrong_value(found, "many") == "tp_size must be a whole number, got 'many'; write one"


@pytest.mark.parametrize(
    ("text", "tokens"), [("8k", 8000), ("25.6k", 25600), ("8Ki", 8192), (4096, 4096), ("1M", 10**6), ("k", None)]
)
def test_sizes_are_read_as_the_engine_reads_them(text: object, tokens: int | None) -> None:
    assert size_of(text) == tokens


def test_an_empty_table_refuses_every_name() -> None:
    assert "has no flag --tp-size" in FlagTable("1.0.0", ()).unknown("tp_size")
