import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.engine.sse import events


def datas(body: bytes) -> list[bytes]:
    return [data for _, data in events([(1, body)])]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_all_three_line_ends_end_an_event(end):
    assert datas(b"data: a" + end + b"data: b" + end) == [b"a", b"b"]


def test_comments_ids_retries_pings_and_blank_events_are_no_events():
    noise = b": keep-alive\n\nid: 7\nretry: 100\n\nevent: ping\n\n\r\n\r\ndata:\n\n\n\n:\r\n\r\n"
    assert datas(noise + b"data: x\n\n" + noise + b"data: y\n\n") == [b"x", b"y"]


def test_several_data_lines_are_one_event():
    assert datas(b"event: token\ndata: a\ndata:b\nid: 1\n\n") == [b"a\nb"]


def test_an_event_arrives_with_its_last_byte():
    pieces = [(10, b"data: he"), (20, b"llo\n"), (30, b"\ndata: you\n\n")]
    assert list(events(pieces)) == [(30, b"hello"), (30, b"you")]


def test_an_event_that_was_cut_is_left_out():
    assert datas(b"data: a\n\ndata: b") == [b"a"]


@given(st.lists(st.sampled_from([b"data: ", b"a", b":", b"\n", b"\n\n"]), max_size=12).map(b"".join))
def test_line_feeds_alone_end_events_where_mixed_line_ends_do(body):
    mixed = b"event: ping\r\n\r\n"
    assert datas(mixed + body) == datas(body)
