"""Downloads of the page Report, each made on request."""

import base64
import io
import json
import re
import time
import zipfile

import pytest
from streamlit.testing.v1 import AppTest

from app.cli.commands.export import EXPORTERS
from app.kit import downloads
from app.session import opening, planning
from app.session.view_state import Choice
from tests.app.pages.run_page import html, opened
from tests.support.paths import DATA
from tmmu_core.formats.planfile import plan_file


def made(shown: planning.Shown) -> dict[str, bytes]:
    """Return file name → bytes of all downloads."""
    found = {}
    for listed in downloads.entries(shown, "it").values():
        for _, name, _, make in listed:
            data = make()
            found[name] = data.encode() if isinstance(data, str) else data
    return found


def test_downloads_have_the_bytes_of_their_formats() -> None:
    shown = planning.make_plan(Choice(source="sample:training_step"))
    offered = set(made(shown).values())
    assert offered >= {EXPORTERS[name](shown.plan) for name in ("json", "cbor", "csv", "trace")}


def test_nothing_is_made_before_it_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> bytes:
        raise AssertionError

    for module, names in ((plan_file, ("to_json", "to_cbor")), (downloads, ("c_project",))):
        for name in names:
            monkeypatch.setattr(module, name, never)
    assert "Export resnet50" in html(opened("report"))


# --- the link ------------------------------------------------------------------------------------------------------


def test_c_project_is_an_archive_with_the_constants_of_the_file() -> None:
    model = DATA / "tflite" / "hello_world_int8.tflite"
    plan = planning.make_plan(Choice(source=opening.shelf().put("m.tflite", model.read_bytes())))
    (packed,) = (data for name, data in made(plan).items() if name.endswith("_c.zip"))
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        residency = json.loads(archive.read("residency.json"))
        assert any(member.endswith("_blobs.c") for member in archive.namelist())
    assert [arena["blob_sha256"] is not None for arena in residency["arenas"] if arena["role"] == "constant"] == [True]


def test_picture_has_the_chosen_kind_and_size() -> None:
    at = opened("report", graph="sample:mixed_sizes")
    assert 'aria-label="Arena map of activations' in drawing(at)
    at.selectbox(key="w.picture.kind").select("lifetimes").run()
    at.number_input(key="w.picture.width").set_value(800).run()
    assert 'width="800" height="460"' in drawing(at)
    assert "Lifetimes in activations" in drawing(at)


def drawing(at: AppTest) -> str:
    """Return the SVG on the page."""
    (coded,) = re.findall(r'<img class="tm-picture" alt="[^"]+" src="data:image/svg\+xml;base64,([^"]*)">', html(at))
    return base64.b64decode(coded).decode()


def test_tensorflow_lite_model_with_its_plan_is_offered() -> None:
    data = (DATA / "tflite" / "vww_96_int8.tflite").read_bytes()
    shown = planning.make_plan(Choice(source=opening.shelf().put("m.tflite", data), planner="auto"))
    written = made(shown)["it.tflm.tflite"]
    assert written.endswith(data[8:])
    assert b"OfflineMemoryAllocation" in written


@pytest.mark.runtimes
def test_page_measures_this_plan_in_the_runtime() -> None:
    pytest.importorskip("tflite_micro", reason="tflite-micro is not installed: pip install '.[tflm]'")
    wake_words = opening.shelf().put("m.tflite", (DATA / "tflite" / "vww_96_int8.tflite").read_bytes())
    at = opened("report", graph=wake_words, planner="auto")
    at.toggle(key="measure-tflm").set_value(True).run()
    ends = time.monotonic() + 90
    while not any("TensorArena" in each.value for each in at.code) and time.monotonic() < ends:
        time.sleep(0.5)
        at.run()
    assert any("TensorArena[85248];  // 103680" in each.value for each in at.code)


def test_command_for_ci_compares_with_the_exported_plan_with_an_option_per_line() -> None:
    at = opened("export", graph="sample:linear_chain")
    options = ("--mode inference", "--preset inference", "--planner slots", "--baseline linear_chain.plan.json")
    lines = ("tmmu gate sample_graphs/linear_chain.tmmu.json", *options)
    assert " \\\n  ".join(lines) in [code.value for code in at.code]
