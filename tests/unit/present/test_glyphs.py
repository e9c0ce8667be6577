"""Pictures made of characters, on terminals that hold them and on others."""

import io

import pytest
from rich.console import Console

from sweeper.analysis.compare import compare
from sweeper.present.glyphs import bar, make_printable, spark
from sweeper.present.overview import overview
from sweeper.present.terminal import WIDTH, print_run
from sweeper.testing.runs import model_run


def test_a_spark_rises_with_its_values_and_leaves_gaps_where_there_is_none() -> None:
    assert spark([0.0, 1.0, 2.0, None, 4.0], 4.0) == "▁▂▄ █"
    assert spark([1.0], 0.0) == "▁"
    assert bar(3.0, 4.0) == "██████" and bar(0.0, 4.0) == ""


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", "▂█ 1.4× → ?"), ("latin-1", ".# 1.4× > ?"), ("ascii", ".# 1.4x > ?")]
)
def test_what_an_encoding_does_not_hold_has_a_stand_in_of_the_same_width(encoding: str, expected: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    make_printable(stream)
    stream.write("▂█ 1.4× → \udcff")
    stream.flush()
    assert raw.getvalue().decode(encoding) == expected


def test_the_overview_has_a_line_for_each_configuration_fastest_first_and_shows_where_it_sinks() -> None:
    table = overview(compare(model_run(("3-1-4", "5-4-16"), concurrency=(1, 32))))
    assert table is not None
    out = io.StringIO()
    Console(file=out, width=WIDTH).print(table)
    first, second = out.getvalue().splitlines()[1:]
    assert first.split()[0] == "3-1-4" and second.split()[0] == "5-4-16"
    assert second.split()[1][0] > second.split()[1][1]
    assert first.split()[1][-1] > second.split()[1][-1]


def test_one_configuration_at_one_load_needs_no_overview() -> None:
    assert overview(compare(model_run(("3-1-4",), concurrency=(1,)))) is None


def test_no_number_is_cut_for_a_picture() -> None:
    out = io.StringIO()
    print_run(model_run(aux_layer_ids=[(2, 30, 58), (3, 31, 59)], concurrency=(1,)), file=out)
    table = out.getvalue().partition("\n\n")[2].partition("To run")[0]
    assert "5-4-16 ids=3,31,59" in table and "even at" in table and "…" not in table
    assert max(map(len, table.splitlines())) <= WIDTH
