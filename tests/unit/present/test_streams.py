import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.present.streams import Unfailing


def test_what_cannot_be_told_is_lost_without_an_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with Unfailing(writing, "w") as pipe:
        assert pipe.write(b"heard") == 5
        assert os.read(reading, 100) == b"heard"
        os.close(reading)
        assert pipe.write(b"lost") == 4
    with Unfailing("/dev/full", "w") as full:
        told = io.TextIOWrapper(full, "utf-8", write_through=True)
        assert told.write("lost\n") == 5
        told.detach()


def test_more_than_a_pipe_takes_at_once_is_written_whole(tmp_path: Path) -> None:
    data = os.urandom(1 << 20)
    with Unfailing(tmp_path / "told", "w") as file:
        assert file.write(memoryview(data)) == len(data)
    assert (tmp_path / "told").read_bytes() == data


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_ends_as_it_would_have_whatever_becomes_of_its_standard_files(redirection: str) -> None:
    command = f'"{sys.executable}" -m sweeper toy nowhere/of/all --json {redirection}'
    known = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert known.returncode == 2, known


def test_closed_standard_files_are_given_to_nobody_else(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    script = tmp_path / "show.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "from sweeper.present.streams import keep_standard_files\n"
        "keep_standard_files()\n"
        "files = [os.readlink(f'/proc/self/fd/{number}') for number in range(3)]\n"
        "pathlib.Path(sys.argv[1]).write_text(' '.join(files))\n"
    )
    command = f'"{sys.executable}" "{script}" "{shown}" <&- >&- 2>&-'
    env = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    assert subprocess.run(["sh", "-c", command], env=env, check=False).returncode == 0
    assert shown.read_text().split() == [os.devnull] * 3
