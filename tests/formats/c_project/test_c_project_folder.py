"""A C project replaces the files of an earlier one; the user's files stay."""

from pathlib import Path

from tests.support.build import chain
from tmmu_core.formats.c_project.c_export import MANIFEST, c_project, write_project
from tmmu_core.formats.c_project.render_plan import build_render_plan
from tmmu_core.plans.making.engine import plan_graph


def export(folder: Path, prefix: str, length: int = 2) -> None:
    write_project(folder, c_project(build_render_plan(plan_graph(chain(length)).plan, module_prefix=prefix)))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_another_model_removes_the_sources_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export(folder, "first")
    assert "first_memory.c" in names(folder)
    export(folder, "second")
    assert not [name for name in names(folder) if name.startswith("first")]
    assert "second_memory.c" in names(folder)
    assert names(tmp_path) == {"out"}


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


def test_damaged_manifest_removes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export(folder, "model")
    (folder / MANIFEST).write_text('{"files": 5}')
    export(folder, "other")
    assert {"model_memory.c", "other_memory.c"} <= names(folder)
