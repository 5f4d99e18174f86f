"""Measure a server with several visitors: ``python -m benchmarks.crowd`` prints waiting times and memory.

First, small samples are opened in a new tab, without other work and while four other tabs search 10^15 nodes each.
Then eight tabs upload a graph of 100,000 tensors each and are closed. All tabs except those with searches are tabs of
a browser.
"""

import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

from benchmarks.opening import _PAINTED
from benchmarks.serving import chromium
from tests.support.served import Served, Tab, descendants, resident, served, until
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.graph.native import native_file

HEAVY = {"planner": "exact", "options": '{"budget":1000000000000000}'}
SEARCHES = 4
SMALL = ("linear_chain", "views", "in_place", "fan_out_fan_in", "resnet50")
UPLOADS, TENSORS = 8, 100_000


def chain(length: int, name: str) -> Graph:
    """Return a graph that is a chain of tensors."""
    tensors = tuple(Tensor(id=f"{name}.tensor.{k}", shape=(64 * (1 + k % 7),)) for k in range(length))
    nodes = tuple(
        Node(f"n{k}", "OP", (tensors[k - 1].id,) if k else (), (tensors[k].id,), inplace="none") for k in range(length)
    )
    return Graph(tensors=tensors, nodes=nodes, outputs=(tensors[-1].id,), name=name)


def first_pictures(server: Served, searches: int) -> list[float]:
    """Return the seconds from opening a link in a new tab to its painted plan, while ``searches`` searches run."""
    tabs = [Tab(server, None, graph="sample:D", seed=str(k), **HEAVY) for k in range(searches)]
    assert until(lambda: len(descendants(server.process.pid)) == 1 + searches)
    found = []
    with chromium() as browser:
        for name in SMALL:
            page = browser.new_page()
            page.goto(f"{server.address}/_stcore/health")
            began = time.perf_counter()
            page.goto(f"{server.address}/?{urlencode({'graph': f'sample:{name}'})}")
            page.wait_for_function(_PAINTED, arg="", timeout=120_000)
            found.append(time.perf_counter() - began)
            page.close()
    assert len(descendants(server.process.pid)) == 1 + searches, "the searches did not last"
    for tab in tabs:
        tab.close()
    began = time.perf_counter()
    assert until(lambda: len(descendants(server.process.pid)) == 1)
    print(f"the searches ended {time.perf_counter() - began:.1f} s after their tabs were closed")
    return found


def left(server: Served, folder: Path) -> tuple[int, int, int]:
    """Return ``(before, highest, after)``: bytes of memory of the server around eight uploads whose tabs are closed."""
    before = highest = resident(server.process.pid)
    with chromium() as browser:
        for k in range(UPLOADS):
            file = folder / f"g{k}.tmmu.json"
            file.write_bytes(native_file.encode_json(chain(TENSORS, f"g{k}")))
            page = browser.new_page()
            page.goto(f"{server.address}/?graph=sample:linear_chain")
            page.wait_for_function(_PAINTED, arg="", timeout=120_000)
            page.locator(".st-key-open button").first.click()
            page.locator('input[type="file"]').first.set_input_files(str(file))
            page.get_by_text(f"g{k} needs").first.wait_for(timeout=300_000)
            highest = max(highest, resident(server.process.pid))
            page.close()
            print(f"upload {k + 1}: {resident(server.process.pid) / 2**20:.0f} MiB", flush=True)
    time.sleep(90)  # the server drops closed tabs after a minute
    return before, highest, resident(server.process.pid)


def main(parts: list[str]) -> None:
    """Measure and print the results."""
    with tempfile.TemporaryDirectory() as name, served(Path(name)) as server:
        Tab(server, graph="sample:linear_chain").drawn()
        if "pictures" in parts or not parts:
            for searches in (0, SEARCHES):
                times = zip(SMALL, first_pictures(server, searches), strict=True)
                text = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in times)
                print(f"first pictures beside {searches} searches: {text}", flush=True)
        if "memory" in parts or not parts:
            before, highest, after = (n / 2**20 for n in left(server, Path(name)))
            print(f"memory: {before:.0f} MiB before, {highest:.0f} at most, {after:.0f} after {UPLOADS} uploads")


if __name__ == "__main__":
    main(sys.argv[1:])
