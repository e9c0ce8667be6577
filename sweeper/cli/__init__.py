"""One module per command: parse → call → render → exit code. Modules are imported when their command runs."""

import errno
import importlib
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from sweeper import __version__
from sweeper.core.plain import plain
from sweeper.core.redaction import redact_text, redact_urls
from sweeper.errors import SweeperError
from sweeper.present.glyphs import make_printable

COMMANDS = {
    "run": "Measure every configuration of an experiment; resumes what was cut.",
    "plan": "Show what an experiment would do; starts nothing.",
    "check": "Check an experiment, its paths, the machine and the draft; starts nothing.",
    "report": "Write the report of a run, or print its tables.",
    "compare": "Compare two runs, or refuse to.",
    "dashboard": "Show runs in the browser, also while they run.",
    "export": "Write a run in another tool's shape, or its winner ready to deploy.",
    "import": "Read results of other tools into the same table.",
    "bench": "Drive load at a running server and report what it did.",
    "doctor": "Say what is wrong with a draft checkpoint, from its files alone.",
    "diagnose": "Ask training data, a live engine or a finished run why acceptance is low.",
    "gpus": "Show the GPUs and who holds them.",
    "clean": "End what Sweeper left behind; never what is others'.",
    "schema": "Print the JSON Schema of experiment files.",
    "nightly": "Measure the same every night; say what got worse, since when and why.",
    "bisect": "Find the first bad engine version or draft revision.",
    "toy": "Unpack the tiny trained target and draft.",
}
"""Command name (module in this package) to its one line of help; kept here so that --help imports nothing."""


def module_of(name: str) -> str:
    """Module of a command; `import` is a word of Python, so its module is `import_`."""
    return f"sweeper.cli.{name}_" if name == "import" else f"sweeper.cli.{name}"


class LazyGroup(click.Group):
    """Imports a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(module_of(cmd_name)).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sweeper")
def root() -> None:
    """Which speculative-decoding configuration makes your model faster under SGLang, by how much, and if none, why."""


def run_cli(argv: Sequence[str]) -> int:
    """Run one command; returns the exit code: 0 fine, 1 failed trial or regression, 2 input, 3 bug, 130 interrupted."""
    make_printable(sys.stdout, sys.stderr)
    try:
        result = root.main(args=list(argv), prog_name="sweeper", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except click.ClickException as error:
        told = io.StringIO()
        error.show(file=told)
        print(_shown(told.getvalue()), end="", file=sys.stderr)  # noqa: T201
        return 2
    except SweeperError as error:
        for line in _shown(str(error)).splitlines():
            print(f"sweeper: {line}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EIO):  # EIO: a terminal that is gone
            return _crashed(error, argv)
        where = f"{_shown(str(error.filename))}: " if error.filename is not None else ""
        print(f"sweeper: {where}{error.strerror}; correct the path, its permissions or the disk", file=sys.stderr)  # noqa: T201
        return 2
    except Exception as error:  # noqa: BLE001  the last line of defence: a bug is one line to the user and a file to us
        return _crashed(error, argv)
    return result if isinstance(result, int) else 0


def _shown(message: str) -> str:
    """What a message repeats of the command line or a file: no password of a URL, nothing that drives a terminal."""
    return redact_urls(plain(message))


def _crashed(error: Exception, argv: Sequence[str]) -> int:
    try:
        handle, name = tempfile.mkstemp(prefix="sweeper-crash-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"sweeper {__version__}, Python {sys.version}\ncommand: {argv[0] if argv else ''}\n\n")
            file.write(redact_text("".join(traceback.format_exception(error))))
        told = f"the traceback is in {Path(name)}"
    except OSError as full:
        told = f"its traceback could not be kept ({full.strerror}); free the disk and try again"
    print(f"sweeper: a bug: {type(error).__name__}; {told}", file=sys.stderr)  # noqa: T201
    return 3
