"""``tmmu mcp`` driven by the protocol's own client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import DATA, ROOT

mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")

SAMPLES = ROOT / "sample_graphs"
Call = Callable[..., Awaitable[dict[str, Any]]]

FAILING = {
    "mixed_sizes.tmmu.json": "512KiB",
    "squeezenet.tmmu.json.gz": "10MiB",
    "shufflenet.tmmu.json.gz": "9000000",
    "mobilenet_v2.tmmu.json": "20MiB",
    "inception_v1.tmmu.json.gz": "32MiB",
    "vww_96_int8.tflite": "280000",
    "linear_chain_none.tmmu.json": "100KiB",
    "residual_block.tmmu.json": "2MiB",
    "gpt2_small_train_b1_s1024.tmmu.cbor.gz": "3.2GiB",
    "bert_base_train_b8_s512.tmmu.cbor.gz": "6.5GiB",
}
"""Model → a capacity that its default plan exceeds; the last four also exceed it with the best plan."""


def with_server(folder: Path, talk: Callable[[Any, Call], Awaitable[None]]) -> None:
    """Run ``talk(client, call)`` with a server on ``folder``; ``call`` returns the JSON of a tool."""
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def session() -> None:
        arguments = ["-m", "tmmu_core", "mcp", str(folder)]
        server = StdioServerParameters(command=sys.executable, args=arguments, env={"PYTHONPATH": str(ROOT)})
        async with mcp.Client(stdio_client(server)) as client:

            async def call(tool: str, **given: Any) -> dict[str, Any]:
                result = await client.call_tool(tool, given)
                (text,) = [content.text for content in result.content]
                assert len(text) < 32_000
                return {"error": text} if result.is_error else json.loads(text)

            await talk(client, call)

    with ThreadPoolExecutor(1) as pool:  # browser tests leave a running event loop in the main thread
        pool.submit(asyncio.run, session()).result()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FAILING:
        shutil.copy((DATA / "tflite" if name.endswith(".tflite") else SAMPLES) / name, tmp_path)
    return tmp_path


def test_server_offers_six_described_tools(folder: Path) -> None:
    async def talk(client: Any, call: Call) -> None:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["plan", "explain", "fit", "compare", "verify", "gate"]
        assert all(tool.description for tool in tools)

    with_server(folder, talk)


def test_files_outside_of_the_folders_are_refused(folder: Path) -> None:
    (folder / "link.json").symlink_to("/etc/hostname")
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "up").symlink_to("..")
    os.mkfifo(folder / "pipe.json")

    async def talk(client: Any, call: Call) -> None:
        for path in (".", "pipe.json", "loop.json", "mixed_sizes.tmmu.json\0"):
            assert set(await call("plan", path=path)) == {"error"}
        for path in ("/etc/hostname", "../../etc/hostname", "link.json", "up/x.json", f"../{folder.name}-2/x.json"):
            assert "outside of the folders" in (await call("verify", path=path))["error"]
        for path in ("../out.json", "up/out.json", "link.json"):
            answer = await call("plan", path="mixed_sizes.tmmu.json", output=path)
            assert "outside of the folders" in answer["error"]

    with_server(folder, talk)


def test_explanations_and_differences_are_bounded(folder: Path) -> None:
    async def talk(client: Any, call: Call) -> None:
        found = await call("explain", path="inception_v1.tmmu.json.gz")
        assert found["peak"]["largest"][-1].endswith("more")
        largest = found["peak"]["largest"][0]["tensor"]
        assert (await call("explain", path="inception_v1.tmmu.json.gz", tensor=largest))["offset_bytes"] >= 0
        assert "explain lists" in (await call("explain", path="inception_v1.tmmu.json.gz", tensor="none"))["error"]
        found = await call("compare", baseline="squeezenet.tmmu.json.gz", candidate="shufflenet.tmmu.json.gz")
        assert found["result"] == "not comparable"
        assert (await call("gate", path="squeezenet.tmmu.json.gz", max_extent="1MiB"))["ok"] is False
        assert "never be red" in (await call("gate", path="squeezenet.tmmu.json.gz"))["error"]

    with_server(folder, talk)


@pytest.mark.slow
def test_agent_brings_ten_failing_models_under_their_capacity(folder: Path) -> None:
    """The steps of an agent: a failing plan, the best plan, else the cheapest changes; then the checks."""

    async def talk(client: Any, call: Call) -> None:
        for model, capacity in FAILING.items():
            assert (await call("plan", path=model, planner="slots", capacity=capacity))["fits"] is False
            source = model
            found = await call("plan", path=source, capacity=capacity, output="plan.json")
            if not found["fits"]:
                source = "fitted.tmmu.json"
                fitted = await call("fit", path=model, capacity=capacity, output=source)
                assert fitted["answer"] == "fits"
                assert fitted["moves"]
                found = await call("plan", path=source, capacity=capacity, output="plan.json")
            assert found["fits"] is True
            assert (await call("verify", path="plan.json", graph=source)) == {
                "ok": True,
                "checked": "graph",
                "findings": [],
            }
            assert (await call("gate", path="plan.json", max_extent=f"memory={capacity}"))["ok"] is True

    with_server(folder, talk)
