"""The house is as ARCHITECTURE.md says, and keeps its own rules."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "sweeper"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "data" not in path.relative_to(PACKAGE).parts)


def named_paths(text: str) -> set[str]:
    """Every path that the page names, from the root: in a row of the table names are relative to the row's folder."""
    found: set[str] = set()
    for line in text.splitlines():
        folders = re.findall(r"`(sweeper/[a-z_]+)`", line) if line.startswith("|") else []
        for name in re.findall(r"`([a-z_0-9/]+(?:\.py|/))`", line):
            if name.startswith(("sweeper/", "tests/")):
                found.add(name)
            else:
                found.add(f"{folders[0] if folders else 'sweeper'}/{name}")
        found.update(re.findall(r"`(sweeper/[a-z_/]+)`", line))
        words = re.findall(r"\b(execution|effects|planning|engine|analysis|store|present)\.([a-z_]+)\b", line)
        found.update(f"sweeper/{layer}/{module}.py" for layer, module in words)
    return found


def test_every_module_named_in_architecture_exists() -> None:
    named = named_paths((ROOT / "ARCHITECTURE.md").read_text())
    assert len(named) > 25
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_module_says_what_it_is() -> None:
    assert [str(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_shell_no_pickle_no_yaml_load(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert keywords.get("shell", "False") == "False", f"{path}:{node.lineno}"
            assert not name.startswith(("pickle.", "os.system", "yaml.load")), f"{path}:{node.lineno}"
            if name.startswith("marshal."):  # compares the engine's own bytecode with its source, never runs it
                assert path.name == "fingerprint.py", f"{path}:{node.lineno}"
            if name == "torch.load":
                assert keywords.get("weights_only") == "True", f"{path}:{node.lineno}"


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom sweeper.cli import run_cli\nrun_cli(['--help'])\n"
        "heavy = {'pydantic', 'ray', 'torch', 'pandas', 'numpy', 'plotly', 'httpx', 'rich', 'sglang'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_listed_in_help_exists() -> None:
    script = (
        "import importlib, click\nfrom sweeper.cli import COMMANDS, module_of\n"
        "for name in COMMANDS:\n"
        "    assert isinstance(importlib.import_module(module_of(name)).command, click.Command), name"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_says_where_decisions_are_made() -> None:
    named = named_paths((ROOT / "ARCHITECTURE.md").read_text())
    assert named >= {
        "sweeper/nightly",
        "sweeper/analysis/nightly/decide.py",
        "sweeper/analysis/nightly/verdict.py",
        "sweeper/analysis/versus.py",
        "sweeper/effects/suite_tasks.py",
        "sweeper/effects/suite_words.py",
        "sweeper/engine/checkpoints.py",
        "sweeper/engine/failures.py",
        "sweeper/execution/dominance.py",
        "sweeper/present/dashboard/",
    }


def test_no_two_test_files_share_a_name() -> None:
    """pytest imports them by their bare names."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(name for name in names if names.count(name) > 1) == []
