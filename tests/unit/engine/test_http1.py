import pytest

from sweeper.engine.http1 import FramingError, ResponseEnd, parse_head, unframe

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def ends_at(pieces: list[bytes]) -> int | None:
    """Index of the piece with which the response is whole."""
    end = ResponseEnd()
    for index, piece in enumerate(pieces):
        if end.add(index, piece):
            return index
    return None


def test_a_chunked_response_ends_with_its_last_chunk():
    assert ends_at([HEAD, chunk(b"data: a\n\n"), chunk(b"data: b\n\n"), b"0\r\n\r\n"]) == 3


@pytest.mark.parametrize("cut", range(1, 5))
def test_the_end_is_seen_however_its_bytes_are_cut(cut):
    last = b"0\r\n\r\n"
    assert ends_at([HEAD + chunk(b"x"), last[:cut], last[cut:]]) == 2


def test_every_split_of_a_whole_response_into_two_reads_ends_it():
    whole = HEAD + chunk(b"data: 1\n\n") + chunk(b"data: 2\r\n\r\n") + b"0\r\n\r\n"
    for cut in range(1, len(whole)):
        assert ends_at([whole[:cut], whole[cut:]]) == 1, cut


def test_a_body_that_looks_like_the_end_is_not_the_end():
    lying = chunk(b"text 0\r\n")  # with its chunk's CRLF: "0\r\n\r\n"
    assert lying.endswith(b"0\r\n\r\n")
    assert ends_at([HEAD, lying]) is None
    assert ends_at([HEAD, lying, b"0\r\n\r\n"]) == 2


def test_a_chunk_extension_and_a_trailer_are_legal():
    assert ends_at([HEAD + b"5;x=y\r\nhello\r\n", b"0\r\nServer-Timing: total\r\n\r\n"]) == 1


def test_a_content_length_ends_a_response():
    assert ends_at([b"HTTP/1.1 500 No\r\ncontent-length: 4\r\n\r\nab", b"cd"]) == 1


def test_an_interim_response_is_skipped():
    head = parse_head(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
    assert head is not None
    assert (head.status, head.length, head.keep_alive) == (503, 0, False)


@pytest.mark.parametrize("junk", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\x00" * 20])
def test_what_is_no_http_is_refused(junk):
    with pytest.raises(FramingError):
        parse_head(junk)


def test_a_broken_chunk_size_is_refused():
    with pytest.raises(FramingError):
        unframe([(1, HEAD + b"zz\r\nhello\r\n")])


def test_each_part_of_the_body_keeps_the_time_at_which_it_came():
    first, second = chunk(b"abcd"), chunk(b"efgh")
    pieces = [(10, HEAD + first[:5]), (20, first[5:] + second), (30, b"0\r\n\r\n")]
    response = unframe(pieces)
    assert response.whole
    assert response.head is not None and response.head.status == 200
    assert response.body == ((10, b"ab"), (20, b"cd"), (20, b"efgh"))


def test_a_response_without_its_last_chunk_is_not_whole():
    response = unframe([(1, HEAD + chunk(b"abc"))])
    assert (response.whole, response.body) == (False, ((1, b"abc"),))
