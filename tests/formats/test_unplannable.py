"""Formats that are recognised and cannot be planned: the error names the format and what to convert it to."""

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import run
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.open_file import read_any


def archive(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name in names:
            packed.writestr(name, b"x")
    return out.getvalue()


def safetensors(length_byte: int) -> bytes:
    """Return a file that begins with ``length_byte``: 0xA8 could begin a CBOR map."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    header += b" " * ((length_byte - len(header)) % 256)
    return struct.pack("<Q", len(header)) + header + bytes(4)


COREML = b"\x08\x08\x12\x04\x0a\x02ab" + b"\xa2\x1f\x02\x08\x01"
SAVED_MODEL = b"\x08\x01\x12\x20" + b"\x0a\x1e\x1a\x05serve*\x0atensorflow" + bytes(12)
KERAS_H5 = b"\x89HDF\r\n\x1a\n" + bytes(64) + b"keras_version"

FILES: dict[str, tuple[bytes, str, str]] = {
    "llama.gguf": (b"GGUF\x03\0\0\0" + bytes(64), "GGUF", "ONNX"),
    "weights.safetensors": (safetensors(0x50), "safetensors", "ONNX"),
    "cbor_like.safetensors": (safetensors(0xA8), "safetensors", "ONNX"),
    "renamed.bin": (safetensors(0x7B), "safetensors", "ONNX"),
    "script.pt": (archive("m/data.pkl", "m/code/__torch__.py", "m/constants.pkl"), "TorchScript", "torch.export"),
    "weights.pt": (archive("m/data.pkl", "m/version"), "PyTorch checkpoint", "torch.export"),
    "legacy.pth": (pickle.dumps({"torch": 1}, protocol=2), "PyTorch checkpoint", "torch.export"),
    "model.engine": (b"ftrt" + bytes(64), "TensorRT", ".onnx"),
    "unknown_magic.trt": (b"\xfe\xfd" + bytes(64), "TensorRT", ".onnx"),
    "model.mlmodel": (COREML, "Core ML", "ONNX"),
    "package.zip": (archive("m.mlpackage/Manifest.json", "m.mlpackage/Data/x"), "Core ML", "ONNX"),
    "model.keras": (archive("config.json", "model.weights.h5"), "Keras", ".tflite"),
    "model.h5": (KERAS_H5, "Keras", ".tflite"),
    "step.mlir.txt": (
        b"module @jit_f {\n  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>)",
        "MLIR",
        "XLA",
    ),
    "step.mlirbc": (b"ML\xefR" + bytes(64), "StableHLO", "--xla_dump_to"),
    "step.before_optimizations.txt": (b"HloModule jit_f, entry={()}\n\nENTRY main {\n", "HLO", "buffer-assignment"),
    "saved_model.pb": (SAVED_MODEL, "SavedModel", ".tflite"),
}


@pytest.mark.parametrize("name", FILES)
def test_recognised_format_is_named_with_what_to_convert_it_to(name: str) -> None:
    data, title, target = FILES[name]
    with pytest.raises(UnreadableInput, match=title) as refused:
        read_any(data, name)
    assert refused.value.message.count(". ") == 0
    assert target in refused.value.hint


@pytest.mark.parametrize(
    ("folder", "member", "title"),
    [
        ("model", "saved_model.pb", "SavedModel"),
        ("m.mlpackage", "Manifest.json", "Core ML"),
        ("hf", "model.safetensors", "safetensors"),
    ],
)
def test_recognised_folder_is_named(tmp_path: Path, capsys: Any, folder: str, member: str, title: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / member).write_bytes(b"x")
    assert run(["plan", str(tmp_path / folder)]) == 2
    assert title in capsys.readouterr().err


@pytest.mark.parametrize("name", ["notes.md", "model.onnx"])
def test_reasons_of_all_readers_are_behind_v(tmp_path: Path, capsys: Any, name: str) -> None:
    (tmp_path / name).write_text("no model\n")
    assert run(["plan", str(tmp_path / name)]) == 2
    short = capsys.readouterr().err
    assert "Unrecognised file format." in short
    assert "-v" in short
    assert len(short.splitlines()) == 2
    assert ("Closest: onnx" in short) == name.endswith(".onnx")
    assert run(["plan", "-v", str(tmp_path / name)]) == 2
    assert "executorch: bytes 4 to 7 are not ET and two digits" in capsys.readouterr().err
