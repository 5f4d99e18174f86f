"""External weights are not opened, and locations outside of the model's folder are rejected."""

import contextlib
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from app.cli.main import run
from app.session import opening
from tmmu_core.base.errors import UnreadableInput

REFUSED = ("absolute", "parent", "behind a folder", "/dev/zero", "/proc/self/environ")
KINDS = (*REFUSED, "link", "pipe")
SECRET = b"\xabsecret bytes\xab" * 4


def laid(kind: str, folder: Path) -> str:
    """Return the location of the weights in the model, after creating the files that it refers to."""
    (folder.parent / "outside").mkdir()
    secret = folder.parent / "outside" / "secret.bin"
    secret.write_bytes(SECRET)
    beside = folder / "weights.bin"
    if kind == "absolute":
        return str(secret)
    if kind == "parent":
        return "../outside/secret.bin"
    if kind == "behind a folder":
        return "a/../../outside/secret.bin"
    if kind == "link":
        beside.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(beside)
    else:
        return kind
    return "weights.bin"


def model_with(location: str) -> bytes:
    """Return the model ``x + w → y`` with the weights in another file."""
    weight = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "16")):
        weight.external_data.add(key=key, value=value)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight])
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    data: bytes = model.SerializeToString()
    return data


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Yield a list that gets the name of every file that is opened."""
    seen: list[str] = []
    listening = True

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if listening and event == "open":
            seen.append(str(arguments[0]))

    sys.addaudithook(hook)  # a hook cannot be removed, only disabled
    yield seen  # type: ignore[misc]
    listening = False


@pytest.mark.parametrize("kind", KINDS)
def test_command_opens_only_the_model(
    kind: str, tmp_path: Path, opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    file = folder / "model.onnx"
    file.write_bytes(model_with(laid(kind, folder)))
    opened.clear()
    code = run(["plan", str(file)])
    inside = {Path(name).name for name in opened if name.startswith((str(tmp_path), "/dev/zero", "/proc/self/environ"))}
    assert inside <= {"model.onnx"}
    assert code == (2 if kind in REFUSED else 0)
    shown_text = "".join(capsys.readouterr())
    assert ("outside the model's folder" in shown_text) == (kind in REFUSED)
    assert "secret bytes" not in shown_text


@pytest.mark.parametrize("kind", KINDS)
def test_upload_opens_nothing(kind: str, tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    data = model_with(laid(kind, folder))
    monkeypatch.chdir(folder)  # as if the explorer had been started where the weights lie
    opened.clear()
    with pytest.raises(UnreadableInput) if kind in REFUSED else contextlib.nullcontext():
        assert opening.read_bytes(data, "model.onnx", "file:upload", lambda *_: True).graph is not None
    assert [name for name in opened if name.startswith((str(tmp_path), "/dev/zero", "/proc/self/environ"))] == []
