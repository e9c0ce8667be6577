import os
import py_compile
import sys
from pathlib import Path

import pytest

from sweeper.effects.fingerprint import engine_fingerprint


@pytest.fixture
def engine(tmp_path: Path, state: Path) -> tuple[Path, dict[str, str]]:
    """A site folder with an sglang of two files, and the environment under which it is found."""
    site = tmp_path / "site"
    (site / "sglang/srt/speculative").mkdir(parents=True)
    (site / "sglang/srt/models").mkdir()
    (site / "sglang/__init__.py").write_text("raise SystemExit('it must not be imported')\n")
    (site / "sglang/srt/speculative/eagle.py").write_text("STEPS = 3\n")
    (site / "sglang/srt/models/llama.py").write_text("OFFSET = 1\n")
    metadata = site / "sglang-0.9.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.9.1\n")
    return site, {"PYTHONPATH": str(site)}


def test_the_version_is_read_without_importing(engine: tuple[Path, dict[str, str]]) -> None:
    _, env = engine
    found = engine_fingerprint(sys.executable, env)
    assert found.version == "0.9.1"
    assert found.files_sha256 is not None and len(found.files_sha256) == 64
    assert found.stale_bytecode == ()


def test_a_patch_by_hand_changes_the_hash_and_not_the_version(engine: tuple[Path, dict[str, str]]) -> None:
    site, env = engine
    before = engine_fingerprint(sys.executable, env)
    (site / "sglang/srt/models/llama.py").write_text("OFFSET = 0\n")
    after = engine_fingerprint(sys.executable, env)
    assert after.version == before.version
    assert after.files_sha256 != before.files_sha256


def test_the_cached_answer_is_the_same(engine: tuple[Path, dict[str, str]], state: Path) -> None:
    _, env = engine
    assert engine_fingerprint(sys.executable, env) == engine_fingerprint(sys.executable, env)
    assert len(list((state / "fingerprints").iterdir())) == 1


def test_a_cache_that_cannot_be_written_only_costs_time(engine: tuple[Path, dict[str, str]], state: Path) -> None:
    _, env = engine
    known = engine_fingerprint(sys.executable, env)
    (cached,) = (state / "fingerprints").iterdir()
    cached.unlink()
    cached.mkdir()  # renaming a file over a folder fails as a full disk does
    assert engine_fingerprint(sys.executable, env) == known


def compiled(site: Path, name: str, **more: object) -> Path:
    path = site / name
    py_compile.compile(str(path), **more)  # type: ignore[arg-type]
    return path


def test_an_edit_that_keeps_size_and_time_leaves_stale_bytecode_that_is_seen(
    engine: tuple[Path, dict[str, str]],
) -> None:
    site, env = engine
    source = compiled(site, "sglang/srt/models/llama.py")
    times = source.stat()
    source.write_text("OFFSET = 0\n")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert engine_fingerprint(sys.executable, env).stale_bytecode == ("srt/models/llama.py",)


def test_a_touched_but_equal_source_is_not_stale(engine: tuple[Path, dict[str, str]]) -> None:
    site, env = engine
    source = compiled(site, "sglang/srt/models/llama.py")
    times = source.stat()
    source.write_text("OFFSET = 1\n")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert engine_fingerprint(sys.executable, env).stale_bytecode == ()


def test_an_ordinary_edit_is_recompiled_by_python_and_not_stale(engine: tuple[Path, dict[str, str]]) -> None:
    site, env = engine
    source = compiled(site, "sglang/srt/speculative/eagle.py")
    source.write_text("STEPS = 33333\n")
    assert engine_fingerprint(sys.executable, env).stale_bytecode == ()


def test_unchecked_bytecode_of_another_source_is_stale(engine: tuple[Path, dict[str, str]]) -> None:
    site, env = engine
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    source = compiled(site, "sglang/srt/speculative/eagle.py", invalidation_mode=mode)
    assert engine_fingerprint(sys.executable, env).stale_bytecode == ()
    source.write_text("STEPS = 5\n")
    assert engine_fingerprint(sys.executable, env).stale_bytecode == ("srt/speculative/eagle.py",)


def test_bytecode_without_a_source_shadows_and_is_named(engine: tuple[Path, dict[str, str]]) -> None:
    site, env = engine
    (site / "sglang/srt/models/old.pyc").write_bytes(b"\0" * 32)
    assert engine_fingerprint(sys.executable, env).stale_bytecode == ("srt/models/old.pyc",)


def test_an_interpreter_without_an_engine_has_no_fingerprint(state: Path) -> None:
    assert engine_fingerprint("/no/such/python").version is None
