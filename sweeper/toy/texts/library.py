"""Real Python text: top-level definitions of modules of the standard library.

The text depends on the Python version that runs the recipe; the corpus hash in the report says which
text a pair was trained on.
"""

import ast
import functools
import sysconfig
from pathlib import Path

from sweeper.toy.texts.words import words_of

MODULES = words_of(
    "abc argparse ast asyncio/base_events asyncio/events asyncio/locks asyncio/queues asyncio/streams "
    "asyncio/tasks base64 bdb bisect calendar cmd code codecs collections/__init__ compileall "
    "concurrent/futures/_base concurrent/futures/process concurrent/futures/thread configparser contextlib "
    "copy csv dataclasses datetime decimal difflib dis doctest email/header email/message email/utils enum "
    "filecmp fileinput fnmatch fractions ftplib functools getopt getpass gettext glob graphlib gzip hashlib "
    "heapq hmac html/parser http/client http/cookiejar http/cookies http/server imaplib importlib/util "
    "inspect io ipaddress json/decoder json/encoder json/tool keyword linecache locale logging/__init__ "
    "logging/config logging/handlers lzma mailbox mimetypes multiprocessing/connection "
    "multiprocessing/managers multiprocessing/pool multiprocessing/queues netrc ntpath numbers opcode "
    "operator optparse os pathlib pdb pickle pickletools pkgutil platform plistlib poplib posixpath pprint "
    "profile pstats pty py_compile pyclbr queue quopri random reprlib rlcompleter runpy sched secrets "
    "selectors shelve shlex shutil signal site smtplib socket socketserver statistics string stringprep "
    "struct subprocess symtable tabnanny tarfile tempfile textwrap threading timeit token tokenize trace "
    "traceback tracemalloc types typing unittest/case unittest/loader unittest/mock urllib/parse "
    "urllib/request uuid wave weakref webbrowser xml/dom/minidom xml/etree/ElementTree xmlrpc/client zipapp zipfile"
)
HELD_OUT_MODULES = frozenset(("calendar", "configparser", "fractions", "heapq", "queue", "shlex", "textwrap"))
SHORTEST_CHARS = 300
LONGEST_CHARS = 1600


@functools.cache
def definitions(*, held_out: bool) -> tuple[str, ...]:
    """Top-level classes and functions, and the methods of large classes, of the modules of one side."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found: list[str] = []
    for module in MODULES:
        if (module in HELD_OUT_MODULES) != held_out:
            continue
        path = root / f"{module}.py"
        if path.exists():  # a module may have become a package in another version
            found += _split(path.read_text(encoding="utf-8"))
    return tuple(found)


def _split(source: str) -> list[str]:
    lines, pieces = source.splitlines(), []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        whole = _text(lines, node)
        if isinstance(node, ast.ClassDef) and len(whole) > LONGEST_CHARS:
            methods = (child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))
            pieces += [f"{lines[node.lineno - 1]}\n{_text(lines, method)}" for method in methods]
        else:
            pieces.append(whole)
    return [piece[:LONGEST_CHARS] for piece in pieces if len(piece) >= SHORTEST_CHARS and piece.isascii()]


def _text(lines: list[str], node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return "\n".join(lines[first - 1 : node.end_lineno])
