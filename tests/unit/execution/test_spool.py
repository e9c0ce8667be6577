from sweeper.effects.transport import Capture
from sweeper.execution.spool import Spool


def capture(*pieces: tuple[int, bytes]) -> Capture:
    return Capture(due_ns=1, send_ns=2, end_ns=3, pieces=pieces, failure=None)


def test_what_does_not_fit_into_memory_comes_back_from_disk_as_it_was():
    spool = Spool(memory_bytes=10)
    captures = [capture((5, b"x" * 8)), capture((6, b"long" * 9), (7, b""), (8, b"\x00\xff")), capture((9, b"y" * 20))]
    for index, one in enumerate(captures):
        spool.add(index, one)
    assert [spool.take(index) for index in (2, 0, 1)] == [captures[2], captures[0], captures[1]]
    spool.close()


def test_a_capture_is_given_back_once_and_an_unknown_one_never():
    spool = Spool()
    spool.add(4, capture((1, b"a")))
    assert spool.take(4) is not None
    assert spool.take(4) is None
    assert spool.take(9) is None
