"""A plan as a C project: built by C and C++ compilers, under the sanitizers, and run; an edited byte is detected."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.plans.test_helia import awkward, model
from tests.support.build import chain, graph, node, tensor
from tests.support.paths import DATA, ROOT, SAMPLES, read_graph_file
from tmmu_core.base.errors import InvalidIrShapes, UnwritableOutput
from tmmu_core.formats.c_project.c_export import MANIFEST, Blobs, c_project, write_project
from tmmu_core.formats.c_project.render_plan import RenderMemoryPlan, build_render_plan
from tmmu_core.formats.open_file import constants_of
from tmmu_core.graph.constants import Constants, sidecar_parts
from tmmu_core.graph.dtypes import tensor_bytes
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import native_file
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")
C11, CXX17 = ("cc", "-std=c11"), ("c++", "-std=c++17", "-x", "c++")
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
BOARD = {
    "memories": [{"name": "fast mem", "max_size": 64 << 10}, {"name": "fast_mem"}, {"name": "MRAM", "writable": False}],
    "rules": [
        {"role": "constant", "max_size": 4096, "memory": "MRAM", "constant_destination_memory": "fast mem"},
        {"role": "constant", "memory": "MRAM"},
    ],
}
W = {"w": bytes(range(256)) * 4}


def rendered(graph: Graph, constants: Any = None, *, prefix: str = "net", **options: Any) -> RenderMemoryPlan:
    plan = plan_graph(graph, planner="helia", options=options or BOARD).plan
    assert verify_plan(plan, graph).ok
    return build_render_plan(plan, constants, module_prefix=prefix)


def project(folder: Path, render: RenderMemoryPlan, blobs: Blobs = "auto") -> Path:
    write_project(folder, c_project(render, blobs))
    return folder


def built(folder: Path, *compiler: str) -> Path:
    sources = sorted(folder.glob("*.c"))
    sidecars = sorted(folder.glob("*.S"))
    assembled = ["-x", "assembler-with-cpp", *map(str, sidecars)] if sidecars else []
    command = [*compiler, *WARNINGS, "-I", str(folder), *map(str, sources), *assembled, "-o", str(folder / "it")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "it"


def ran(program: Path) -> tuple[int, list[str]]:
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def extents(render: RenderMemoryPlan) -> list[str]:
    return [f"region {arena.region_id}: {arena.size} bytes" for arena in render.all_arenas]


@pytest.mark.parametrize("compiler", [(*C11, *SANITIZED), (*CXX17, *SANITIZED)], ids=["c11", "c++17"])
def test_constants_are_hydrated_and_bounds_hold(tmp_path: Path, compiler: tuple[str, ...]) -> None:
    render = rendered(model(), W)
    assert render.has_staged_constants
    code, lines = ran(built(project(tmp_path, render), *compiler))
    assert (code, lines[-1]) == (0, "OK")
    assert lines[: len(render.all_arenas)] == extents(render)
    assert "constants: 1 checked" in lines


@pytest.mark.parametrize("compiler", [C11, CXX17], ids=["c11", "c++17"])
def test_names_of_any_kind_compile(tmp_path: Path, compiler: tuple[str, ...]) -> None:
    memories = [{"name": name, "max_size": 24} for name in ("a", "A_SIZE", "a size", "*/", "模型")]
    render = rendered(awkward(), prefix="*/ naïve", memories=memories)
    assert len(render.all_arenas) > 1
    assert ran(built(project(tmp_path, render), *compiler))[0] == 0


def test_memory_name_that_equals_a_template_placeholder_is_kept() -> None:
    memories = [{"name": f"@{name}@", "max_size": 24} for name in ("BUFFERS", "SOURCES", "FACTS", "prefix", "ROOM")]
    texts = [b"".join(piece()).decode() for piece in c_project(rendered(awkward(), memories=memories)).values()]
    (arenas,) = (text for text in texts if "sources[] = {" in text)
    assert "in @BUFFERS@ */" in arenas
    assert all(text.count("/*") == text.count("*/") for text in texts)


def counted(written: bool) -> Graph:
    """Return a model with a weight and a buffer in one arena; the buffer is read, or also written."""
    tensors = [tensor("x", role="input"), tensor("w", role="parameter"), tensor("b", role="buffer"), tensor("y")]
    nodes = [node("read", "x w b", "y", inplace="none")]
    if written:
        tensors.append(tensor("b1", role="buffer"))
        nodes.append(node("count", "b y", "b1", inplace="none", in_place_write=((0, 0),)))
    return graph(tensors, nodes, "x", "y")


BOTH = {"w": bytes(range(16)), "b": bytes(range(16, 32))}


@pytest.mark.parametrize("planner", ["slots", "portfolio"])
def test_read_only_buffers_are_stored_with_the_weights(tmp_path: Path, planner: str) -> None:
    plan = plan_graph(counted(written=False), planner=planner).plan
    render = build_render_plan(plan, BOTH, module_prefix="net")
    assert [arena.role for arena in render.all_arenas] == ["scratch", "constant"]
    code, lines = ran(built(project(tmp_path, render), *C11))
    assert (code, lines[-1]) == (0, "OK")
    assert "constants: 2 checked" in lines
    header = tmp_path / "net_memory.h"
    header.write_text(header.read_text().replace("NET_T_W_OFFSET UINT64_C", "NET_T_W_OFFSET NET_T_B_OFFSET //"))
    assert ran(built(tmp_path, *C11)) == (1, [*extents(render), "FAILED: constants after hydration 0"])
    assert [arena.role for arena in build_render_plan(plan).all_arenas] == ["scratch", "persistent"]


def test_written_buffer_in_an_arena_of_constants_is_rejected_with_a_hint() -> None:
    plan = plan_graph(counted(written=True)).plan
    with pytest.raises(InvalidIrShapes, match="'w'") as caught:
        build_render_plan(plan, BOTH)
    assert "--planner helia --to c-project" in caught.value.hint
    render = rendered(counted(written=True), {"w": BOTH["w"]}, memories=BOARD["memories"])
    assert {arena.role for arena in render.all_arenas} == {"scratch", "persistent", "constant"}


def test_an_empty_plan_compiles(tmp_path: Path) -> None:
    render = build_render_plan(plan_graph(Graph()).plan)
    assert ran(built(project(tmp_path, render), *C11))[0] == 0


@pytest.mark.parametrize("kind", ["staged", "cold"])
@pytest.mark.parametrize("blobs", ["inline", "sidecar"])
def test_edited_blob_is_detected_at_hydration(tmp_path: Path, kind: str, blobs: Blobs) -> None:
    rules = BOARD["rules"] if kind == "staged" else [{"role": "constant", "memory": "MRAM"}]
    render = rendered(model(), W, memories=BOARD["memories"], rules=rules)
    project(tmp_path, render, blobs)
    (blob,) = render.constant_blobs
    if blobs == "sidecar":
        file = tmp_path / blob.sidecar_filename
        file.write_bytes(b"\1" + file.read_bytes()[1:])
    else:
        file = tmp_path / "net_blobs.c"
        file.write_text(file.read_text().replace("0x00,0x01,", "0x01,0x01,", 1))
    code, lines = ran(built(tmp_path, *C11))
    assert (code, lines[-1]) == (1, "FAILED: hydration, status 4")
    assert "NET_ERROR_BLOB_HASH = 4" in (tmp_path / "net_memory.h").read_text()


def test_names_agree_between_c_and_json(tmp_path: Path) -> None:
    render = rendered(model(), W)
    project(tmp_path, render, "sidecar")
    residency = json.loads((tmp_path / "residency.json").read_text())
    symbols = subprocess.run(
        ["nm", str(built(tmp_path, *C11))], capture_output=True, text=True, check=True
    ).stdout.split()
    header = (tmp_path / "net_memory.h").read_text()
    for arena in residency["arenas"]:
        assert arena["symbol"] in symbols
        assert f" {arena['enumerator']} = {arena['region_id']}," in header
        if arena["role"] == "constant":
            assert arena["blob"] == f"{arena['blob_symbol']}.bin"
            assert arena["blob_symbol"] in symbols
            assert (tmp_path / arena["blob"]).is_file()
    for row in residency["tensors"]:
        assert f"#define {row['macro']}_OFFSET UINT64_C({row['offset']})" in header
    assert f"net_plan_{residency['plan_hash'][:16]}_{residency['tensor_layout_hash'][:16]}" in symbols


def summed(*constants: str) -> RenderMemoryPlan:
    """Return a model that adds two constants of one size to an input."""
    tensors = [tensor("x", role="input"), *(tensor(name, role="constant") for name in constants), tensor("y")]
    return rendered(graph(tensors, [node("n0", f"x {' '.join(constants)}", "y")], "x", "y"))


@pytest.mark.parametrize("why", ["other regions", "other places"])
def test_another_plan_of_the_same_name_does_not_link(tmp_path: Path, why: str) -> None:
    one, other = summed("a", "b"), summed("c", "b")
    assert (one.plan_hash == other.plan_hash, one.tensor_layout_hash == other.tensor_layout_hash) == (True, False)
    if why == "other regions":
        one, other = rendered(model(), W), rendered(model(), W, memories=[{"name": "fast mem"}])
        assert one.plan_hash != other.plan_hash
    project(tmp_path / "one", one)
    project(tmp_path / "other", other)
    shutil.copy(tmp_path / "other" / "net_memory.h", tmp_path / "own.h")
    main = tmp_path / "one" / "net_selftest.c"
    main.write_text(f'#include "{tmp_path}/own.h"\nint main(void) {{ return (int)NET_PLAN_SYMBOL; }}\n')
    with pytest.raises(AssertionError, match="undefined reference"):
        built(tmp_path / "one", *C11)


def test_plan_without_constant_bytes_leaves_them_to_the_program(tmp_path: Path) -> None:
    render = rendered(model())
    code, lines = ran(built(project(tmp_path, render), *C11))
    assert (code, lines[-1], "constants: 0 checked" in lines) == (0, "OK", True)
    assert not [file for file in tmp_path.iterdir() if "blob" in file.name]


def test_rendering_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        project(tmp_path / folder, rendered(model(), W), "sidecar")
        project(tmp_path / folder / "inline", rendered(model(), W), "inline")
    one, two = (
        {file.relative_to(tmp_path / folder): file.read_bytes() for file in (tmp_path / folder).rglob("*.*")
         if file.is_file()} for folder in ("one", "two")
    )  # fmt: skip
    assert one == two
    assert len(one) > 14


def test_constant_without_bytes_is_rejected_by_name() -> None:
    with pytest.raises(InvalidIrShapes, match="'w'"):
        rendered(model(), {"other": b""})


# --- a folder with other files -----------------------------------------------------------------------------------


def export(folder: Path, prefix: str, length: int = 2) -> None:
    write_project(folder, c_project(build_render_plan(plan_graph(chain(length)).plan, module_prefix=prefix)))


def test_another_model_removes_the_sources_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export(folder, "first")
    assert "first_memory.c" in {*os.listdir(folder)}
    export(folder, "second")
    assert not [name for name in {*os.listdir(folder)} if name.startswith("first")]
    assert "second_memory.c" in {*os.listdir(folder)}
    assert {*os.listdir(tmp_path)} == {"out"}


def test_files_of_the_user_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export(folder, "model")
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    (folder / "build").mkdir()
    (folder / "build" / "a.o").write_bytes(b"object")
    (folder / "link").symlink_to("main.c")
    export(folder, "other")
    assert (folder / "main.c").read_text().startswith("int main")
    assert (folder / "build" / "a.o").read_bytes() == b"object"
    assert (folder / "link").is_symlink()


@pytest.mark.parametrize("name", ["CMakeLists.txt", "model_memory.c", MANIFEST])
def test_file_with_the_name_of_an_exported_file_is_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"files": ["..", "", "a\\u0000b", 5]}')
    with pytest.raises(UnwritableOutput, match=name):
        export(tmp_path, "model")
    assert [(path.name, path.read_bytes()[:1]) for path in tmp_path.iterdir()] == [(name, b"{")]


def test_export_after_a_killed_one_removes_its_files(tmp_path: Path) -> None:
    def killed() -> list[bytes]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_project(tmp_path, {"first.c": list, "second.c": killed})
    write_project(tmp_path, {"second.c": list})
    assert sorted(os.listdir(tmp_path)) == ["second.c", MANIFEST]


# --- models -------------------------------------------------------------------------------------------------------

TWO_MEMORIES = {
    "memories": [
        {"name": "DTCM", "max_size": 64 << 10, "arena_alignment": 32, "origin": 0x20000000},
        {"name": "SRAM", "max_size": 1 << 20, "origin": 0x21000000},
        {"name": "FLASH", "writable": False, "max_size": 32 << 20, "origin": 0},
    ],
    "rules": [
        {"role": "constant", "max_size": 2048, "memory": "FLASH", "constant_destination_memory": "SRAM"},
        {"role": "constant", "memory": "FLASH"},
        {"name": "*", "memory": "SRAM", "min_size": 1 << 15},
    ],
}


def person_detect() -> RenderMemoryPlan:
    path = DATA / "tflite" / "person_detect.tflite"
    graph = read_graph_file(path)
    return rendered(graph, constants_of(path, graph), prefix="person_detect", **TWO_MEMORIES)


def mobilenet(folder: Path) -> RenderMemoryPlan:
    """Return the sample with generated weights in a sidecar that its file names."""
    graph = read_graph_file(SAMPLES / "mobilenet_v1.tmmu.json")
    sizes = {t.id: tensor_bytes([int(d) for d in t.shape], t.dtype) for t in graph.tensors if t.persistent}
    made = Constants.of({name: bytes([k & 255]) * size for k, (name, size) in enumerate(sizes.items())})
    graph = msgspec.structs.replace(graph, sidecar="w.safetensors")
    (folder / "w.safetensors").write_bytes(b"".join(sidecar_parts(graph, made)))
    path = folder / "mobilenet.tmmu.json"
    path.write_bytes(native_file.encode_json(graph))
    memories = [{**TWO_MEMORIES["memories"][0]}, {"name": "SRAM"}, {"name": "FLASH", "writable": False}]
    return rendered(
        graph, constants_of(path, graph), prefix="mobilenet", memories=memories, rules=TWO_MEMORIES["rules"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["person_detect", "mobilenet"])
def test_model_over_two_memories_builds_with_cmake_and_passes_its_self_test(tmp_path: Path, name: str) -> None:
    render = person_detect() if name == "person_detect" else mobilenet(tmp_path)
    folder = project(tmp_path / "c", render)
    assert (folder / f"{name}_blobs.{'c' if name == 'person_detect' else 'S'}").is_file()
    build, flags = str(tmp_path / "build"), f"-DCMAKE_C_FLAGS={' '.join(WARNINGS)}"
    for command in (
        ["cmake", "-S", str(folder), "-B", build, "-DCMAKE_BUILD_TYPE=Release", flags],
        ["cmake", "--build", build],
        ["ctest", "--test-dir", build, "--output-on-failure"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    code, lines = ran(tmp_path / "build" / f"{name}_selftest")
    assert (code, lines[-1]) == (0, "OK")
    assert lines[: len(render.all_arenas)] == extents(render)
    parts = [part for blob in render.constant_blobs for part in blob.parts]
    assert f"constants: {len(parts)} checked" in lines


# --- a microcontroller --------------------------------------------------------------------------------------------

BOARD_FILES = ROOT / "tests" / "formats" / "c_project" / "board"
CROSS = ("arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb", "-Os", "-std=c11", *WARNINGS, "--specs=rdimon.specs")
QEMU = ("qemu-system-arm", "-M", "mps2-an385", "-semihosting-config", "enable=on,target=native")


NEEDS_BOARD = pytest.mark.skipif(
    not shutil.which(CROSS[0]) or not shutil.which(QEMU[0]),
    reason="needs Debian's gcc-arm-none-eabi, libnewlib-arm-none-eabi and qemu-system-arm (.ci/run installs them)",
)


@pytest.mark.slow
@NEEDS_BOARD
@pytest.mark.parametrize("blobs", ["inline", "sidecar"])
def test_model_runs_on_a_cortex_m_in_the_memories_of_its_plan(tmp_path: Path, blobs: Blobs) -> None:
    render = person_detect()
    folder = project(tmp_path, render, blobs)
    sources = [str(file) for file in (BOARD_FILES / "startup.c", *folder.glob("*.c"), *folder.glob("*.S"))]
    script = ["-nostartfiles", "-L", str(folder), "-I", str(folder), "-T", str(BOARD_FILES / "board.ld")]
    done = subprocess.run(
        [*CROSS, *script, *sources, "-o", "it.elf"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    sizes = subprocess.run(
        ["arm-none-eabi-size", "-A", "it.elf"], cwd=folder, capture_output=True, text=True, check=True
    )
    taken = {row.split()[0]: (int(row.split()[1]), int(row.split()[2])) for row in sizes.stdout.splitlines()[2:-3]}
    held = {arena.memory: 0 for arena in render.all_arenas}
    for arena in render.all_arenas:
        if arena.role != "constant" or arena.is_staged:
            held[arena.memory] = -(-held[arena.memory] // arena.alignment) * arena.alignment + arena.size
    assert taken[".tmmu_DTCM"] == (held["DTCM"], 0x20000000)
    assert taken[".tmmu_SRAM"] == (held["SRAM"], 0x21000000)
    assert taken[".tmmu_FLASH_constants"][0] >= sum(blob.size for blob in render.constant_blobs)
    run = [*QEMU, "-nographic", "-monitor", "none", "-serial", "none", "-kernel", "it.elf"]
    ended = subprocess.run(run, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "OK")
    assert ended.stdout.splitlines()[: len(render.all_arenas)] == extents(render)


# --- a model that runs in its plan --------------------------------------------------------------------------------

EXAMPLE = ROOT / "docs" / "examples" / "firmware"
INT8_MODELS = ("hello_world_int8", "kws_ref_model", "person_detect", "vww_96_int8")
OUTPUTS = BOARD_FILES / "outputs.json"
"""Model → outputs of TensorFlow Lite Micro for the four inputs of ``main.c``."""


def example_sources(folder: Path, name: str) -> list[Path]:
    """Export the model, write its calls, and return the sources of the program."""
    path = DATA / "tflite" / f"{name}.tflite"
    graph = read_graph_file(path)
    project(folder, rendered(graph, constants_of(path, graph), prefix=name, **TWO_MEMORIES), "inline")
    (folder / f"{name}_selftest.c").unlink()
    write = [sys.executable, str(EXAMPLE / "write_run.py"), str(path), str(folder)]
    done = subprocess.run(write, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)})
    (folder / "run.c").write_text(done.stdout)
    return [*sorted(folder.glob("*.c")), *sorted(EXAMPLE.glob("*.c"))]


def compile_and_run(folder: Path, compiler: tuple[str, ...], sources: list[Path], runner: tuple[str, ...] = ()) -> str:
    includes = [f"-I{folder}", f"-I{EXAMPLE}"]
    build = [*compiler, *includes, *map(str, sources), "-o", str(folder / "it")]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*runner, str(folder / "it")], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


def outputs_of(text: str) -> list[list[int]]:
    return [[int(value) for value in line.split()] for line in text.splitlines()]


@pytest.mark.parametrize(
    "name", [INT8_MODELS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in INT8_MODELS[1:])]
)
def test_kernels_in_the_planned_arenas_return_the_outputs_of_tensorflow_lite_micro(tmp_path: Path, name: str) -> None:
    text = compile_and_run(tmp_path, (*C11, *WARNINGS, "-O1", *SANITIZED), example_sources(tmp_path, name))
    assert outputs_of(text) == json.loads(OUTPUTS.read_text())[name]


@pytest.mark.slow
@NEEDS_BOARD
@pytest.mark.parametrize("name", INT8_MODELS)
def test_cortex_m_returns_the_outputs_of_tensorflow_lite_micro(tmp_path: Path, name: str) -> None:
    sources = [BOARD_FILES / "startup.c", *example_sources(tmp_path, name)]
    script = ("-nostartfiles", "-L", str(tmp_path), "-T", str(BOARD_FILES / "board.ld"))
    text = compile_and_run(tmp_path, (*CROSS, *script), sources, (*QEMU, "-nographic", "-kernel"))
    assert outputs_of(text) == json.loads(OUTPUTS.read_text())[name]


@pytest.mark.runtimes
@pytest.mark.parametrize("name", INT8_MODELS)
def test_recorded_outputs_are_those_of_the_runtime(name: str) -> None:
    pytest.importorskip("tflite_micro", reason="tflite-micro is not installed: pip install '.[tflm]'")
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_file(str(DATA / "tflite" / f"{name}.tflite"))
    shape = interpreter.get_input_details(0)["shape"]
    found = []
    for n in range(4):
        values = np.arange(np.prod(shape)) * (2 * n + 37) + n
        interpreter.set_input(values.astype(np.uint8).view(np.int8).reshape(shape), 0)
        interpreter.invoke()
        found.append(interpreter.get_output(0).ravel().tolist())
    assert found == json.loads(OUTPUTS.read_text())[name]
