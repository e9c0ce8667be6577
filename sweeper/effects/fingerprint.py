"""The engine as it stands on disk, never imported: version, hash of its files, bytecode that is not its source's."""

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from sweeper.core.launch import EngineFingerprint
from sweeper.effects.ledger import state_folder

HASHED_FOLDERS = ("srt/speculative", "srt/models", "srt/layers", "srt/model_executor", "srt/managers", "srt/arg_groups")
"""Where speculative decoding, the models and what runs them live; a patch by hand is made there."""
_FIND = (
    "import importlib.util,sys;spec=importlib.util.find_spec('sglang');"
    "print((list(spec.submodule_search_locations or [''])[0] if spec else ''));print(sys.implementation.cache_tag)"
)


def engine_fingerprint(python: str | None = None, env: Mapping[str, str] | None = None) -> EngineFingerprint:
    """Of the SGLang that this interpreter would import under `env`; all None when it has none.

    Hashing is cached under the state folder by path, size and change time, so that the second call costs a few ms.
    """
    found = _locate(python or sys.executable, env)
    if found is None:
        return EngineFingerprint(version=None, files_sha256=None)
    root, cache_tag = found
    sources = sorted(_sources(root))
    stamps = [(str(path.relative_to(root)), *_stamp(path), *_stamp(_bytecode(path, cache_tag))) for path in sources]
    key = hashlib.sha256(json.dumps([str(root), cache_tag, stamps]).encode()).hexdigest()[:24]
    cached = _read_cache(key)
    if cached is not None:
        return cached
    digest = hashlib.sha256()
    for path in sources:
        digest.update(str(path.relative_to(root)).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    fingerprint = EngineFingerprint(
        version=_version(root), files_sha256=digest.hexdigest(), stale_bytecode=_stale(root, sources, cache_tag)
    )
    _write_cache(key, fingerprint)
    return fingerprint


def engine_root(python: str | None = None, env: Mapping[str, str] | None = None) -> Path | None:
    """The folder of the sglang package that this interpreter would import."""
    found = _locate(python or sys.executable, env)
    return found[0] if found else None


def _locate(python: str, env: Mapping[str, str] | None) -> tuple[Path, str] | None:
    extra = (env or {}).get("PYTHONPATH")
    if python == sys.executable and not extra:
        spec = importlib.util.find_spec("sglang")
        places = list(spec.submodule_search_locations or []) if spec else []
        return (Path(places[0]), str(sys.implementation.cache_tag)) if places else None
    try:
        done = subprocess.run(
            [python, "-c", _FIND],
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        root, cache_tag = done.stdout.splitlines()[-2:]
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return (Path(root), cache_tag) if root else None


def _sources(root: Path) -> Iterator[Path]:
    for folder in HASHED_FOLDERS:
        yield from (root / folder).rglob("*.py")


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _bytecode(source: Path, cache_tag: str) -> Path:
    return source.parent / "__pycache__" / f"{source.stem}.{cache_tag}.pyc"


def _version(root: Path) -> str | None:
    """From the installed metadata beside the package; a source checkout has none there but a version file."""
    for metadata in sorted(root.parent.glob("sglang-*.dist-info/METADATA")):
        match = re.search(r"^Version: (.+)$", metadata.read_text(errors="replace"), re.MULTILINE)
        if match:
            return match.group(1).strip()
    for name in ("_version.py", "version.py"):
        path = root / name
        match = re.search(r"version\s*=\s*['\"]([^'\"]+)", path.read_text(errors="replace")) if path.is_file() else None
        if match:
            return match.group(1)
    return None


def _stale(root: Path, sources: list[Path], cache_tag: str) -> tuple[str, ...]:
    """Modules whose compiled file Python would run although it was not made from the source that lies there."""
    stale = [path for path in sources if _is_stale(path, _bytecode(path, cache_tag), cache_tag)]
    shadows = [
        path
        for folder in HASHED_FOLDERS
        for path in (root / folder).rglob("*.pyc")
        if path.parent.name != "__pycache__"
    ]
    return tuple(sorted(str(path.relative_to(root)) for path in [*stale, *shadows]))


def _is_stale(source: Path, compiled: Path, cache_tag: str) -> bool:
    """Python trusts a compiled file whose header names the source's mtime and size, or that says `unchecked`.

    An edit that keeps both (a copy with `cp -p`, an image layer) leaves stale code behind. Only sources changed after
    their compiled file was written are compiled again to compare: the change time cannot be set back.
    """
    try:
        with compiled.open("rb") as file:
            header = file.read(16)
            body = file.read()
        status = source.stat()
    except OSError:
        return False
    flags = int.from_bytes(header[4:8], "little")
    if flags & 1:
        by_hash = header[8:16] != importlib.util.source_hash(source.read_bytes())
        return by_hash and not flags & 2
    trusted = header[8:12] == _low32(int(status.st_mtime)) and header[12:16] == _low32(status.st_size)
    if not trusted or status.st_ctime_ns <= compiled.stat().st_mtime_ns or cache_tag != sys.implementation.cache_tag:
        return False
    return _constants(source, body)


def _constants(source: Path, body: bytes) -> bool:
    import marshal

    try:
        fresh = compile(source.read_bytes(), str(source), "exec", dont_inherit=True)
        return marshal.loads(body) != fresh and not _same_code(marshal.loads(body), fresh)  # noqa: S302  the engine's own bytecode, loaded as data, never run
    except (ValueError, EOFError, TypeError, SyntaxError):
        return True


def _same_code(left: object, right: object) -> bool:
    """Equal but for the file name that the compiler wrote into it."""
    from types import CodeType

    if not isinstance(left, CodeType) or not isinstance(right, CodeType):
        return left == right
    return (
        left.co_code == right.co_code
        and left.co_names == right.co_names
        and len(left.co_consts) == len(right.co_consts)
        and all(_same_code(a, b) for a, b in zip(left.co_consts, right.co_consts, strict=True))
    )


def _low32(value: int) -> bytes:
    return (value & 0xFFFFFFFF).to_bytes(4, "little")


def _cache_path(key: str) -> Path:
    return state_folder("fingerprints") / f"{key}.json"


def _read_cache(key: str) -> EngineFingerprint | None:
    try:
        data = json.loads(_cache_path(key).read_text())
        return EngineFingerprint(
            version=data["version"], files_sha256=data["files_sha256"], stale_bytecode=tuple(data["stale_bytecode"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_cache(key: str, fingerprint: EngineFingerprint) -> None:
    path = _cache_path(key)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
        temporary.write_text(
            json.dumps(
                {
                    "version": fingerprint.version,
                    "files_sha256": fingerprint.files_sha256,
                    "stale_bytecode": list(fingerprint.stale_bytecode),
                }
            )
        )
        temporary.replace(path)
