"""How long the dashboard's pages take on 10,000 trials: `python benchmarks/dashboard_scale.py [FOLDER]`.

Makes the folder when it is not there. A fresh dashboard is asked as a browser would: the list, the run at once (from
its journal), the run when it was read, filters, figures. Prints milliseconds and the memory of the process.
"""

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))
from folders import large_run, store_quickly

from sweeper.present.dashboard.app import create_app
from sweeper.store.reader import find_runs

FILTERS = ("?topk=4", "?topk=4&steps=3&load=8", "?sort=speedup", "?sort=tok&page=7", "?find=-26", "?category=edit")
FIGURES = ("speedup", "pareto", "heatmap", "latency", "power")


async def visit(results: Path) -> None:
    app = create_app(results)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=300) as client:

        async def get(name: str, address: str) -> str:
            begin = time.perf_counter()
            answer = await client.get(address)
            print(f"{(time.perf_counter() - begin) * 1000:8.0f} ms {len(answer.content) / 1024:8.0f} KiB  {name}")
            assert answer.status_code in (200, 204), answer.status_code
            return answer.text

        run = find_runs(results)[0]
        url = f"/run/{run.parent.name}/{run.name}"
        await get("list of runs, first page", "/")
        await get("run, first page (from its journal)", url)
        begin, waits = time.perf_counter(), []
        reading = True
        while reading:
            asked = time.perf_counter()
            reading = "are being read" in (await client.get(url + FILTERS[len(waits) % len(FILTERS)])).text
            waits.append((time.perf_counter() - asked) * 1000)
            await asyncio.sleep(0.2)
        print(f"{(time.perf_counter() - begin) * 1000:8.0f} ms until 10,010 measurements were read and compared;")
        print(f"{max(waits):8.0f} ms the slowest of {len(waits)} filters meanwhile, {median(waits):.0f} ms the median")
        await get("run, read", url)
        for query in FILTERS:
            await get(f"filter {query}", url + query)
        for name in FIGURES:
            await get(f"figure {name}", f"{url}/figure/{name}?topk=4&load=8")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{peak:8.0f} MiB of memory at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    folder = parser.parse_args().folder or Path(tempfile.mkdtemp(prefix="sweeper-scale-"))
    if not find_runs(folder):
        store_quickly(large_run(), folder)
        print(f"made {folder}; give it as the argument to measure the memory of a dashboard alone")
    asyncio.run(visit(folder))


if __name__ == "__main__":
    main()
