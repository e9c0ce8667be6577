"""Is there room on the disk for what `make test` is about to write? One line and exit code 1 when there is not.

Needs no package: it runs before anything is installed.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

GIB = 1 << 30
ENVIRONMENT_GIB = 10.5  # SGLang, torch and CUDA's libraries, as installed
LINKED_GIB = 0.5  # an environment that uv links to its cache: bytecode and scripts; and what the checks cache
TESTS_GIB = 1.0  # the largest test of all, its servers' logs and the browser


def existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def needs(root: Path, cache: Path, temporary: Path, *, copies: bool) -> Iterator[tuple[Path, float]]:
    """Folders, and the GiB that will be written below each. `copies`: uv was told not to link.

    A test installs the image of the CPU engine in a temporary folder: linked where the cache lies on the same disk.
    """
    cache_device = existing(cache).stat().st_dev
    image_gib = 0.0 if existing(temporary).stat().st_dev == cache_device else ENVIRONMENT_GIB
    yield existing(temporary), TESTS_GIB + image_gib
    if (root / ".venv" / ".ready").exists():
        yield root, LINKED_GIB
        return
    yield root, ENVIRONMENT_GIB if copies or cache_device != root.stat().st_dev else LINKED_GIB
    if not any(cache.glob("archive-v0/*/torch/__init__.py")):
        yield existing(cache), ENVIRONMENT_GIB


def shortages(wanted: list[tuple[Path, float]]) -> Iterator[str]:
    """One sentence for each disk that is too small."""
    for device in dict.fromkeys(path.stat().st_dev for path, _ in wanted):
        here = [(path, gib) for path, gib in wanted if path.stat().st_dev == device]
        needed, free = sum(gib for _, gib in here), shutil.disk_usage(here[0][0]).free / GIB
        if free < needed:
            places = ", ".join(f"{path} {gib:g}" for path, gib in here)
            yield f"not enough room: {needed:g} GiB are needed ({places}), {free:.1f} GiB are free"


def main() -> int:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = Path(os.environ.get("UV_CACHE_DIR") or home / "uv")
    copies = os.environ.get("UV_LINK_MODE") == "copy"
    missing = list(shortages(list(needs(Path.cwd(), cache, Path(tempfile.gettempdir()), copies=copies))))
    for sentence in missing:
        print(sentence, file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
