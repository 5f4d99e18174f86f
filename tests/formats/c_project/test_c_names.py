"""Names in C are legal in C11 and C++17 and unique for any names of memories and tensors."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from tmmu_core.formats.c_project.c_export import comment
from tmmu_core.formats.c_project.render_plan import region_names, tensor_stems

LEGAL = re.compile(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")
FREE = st.text(max_size=12) | st.sampled_from(
    ["fast mem", "fast_mem", "Fast-Mem", "A", "A_SIZE", "a_alignment", "", "9"]
)


def test_memories_with_equal_c_names_get_a_suffix() -> None:
    one, two = region_names("net", [("scratch", "fast mem", False), ("scratch", "fast_mem", False)])
    assert (one.stem, two.stem) == ("NET_REGION_SCRATCH_FAST_MEM", "NET_REGION_SCRATCH_FAST_MEM_1")
    assert (one.symbol, two.symbol) == ("net_scratch_fast_mem", "net_scratch_fast_mem_1")


def test_memory_name_does_not_collide_with_the_size_macro_of_another() -> None:
    names = region_names("net", [("scratch", "A", False), ("scratch", "A_SIZE", False)])
    assert names[1].stem == "NET_REGION_SCRATCH_A_SIZE_1"


def test_symbol_of_a_constant_region_names_its_content() -> None:
    cold, staged = region_names("net", [("constant", "MRAM", False), ("constant", "TCM", True)])
    assert (cold.symbol, cold.blob) == ("net_constant_mram__blob", "net_constant_mram__blob")
    assert (staged.symbol, staged.blob) == ("net_constant_tcm", "net_constant_tcm__source")


@given(st.lists(FREE | st.text("aA_. 9é", max_size=4), max_size=8, unique=True))
def test_tensor_names_are_unique(ids: list[str]) -> None:
    stems = tensor_stems("net", ids)
    macros = [stem + suffix for stem in stems.values() for suffix in ("_REGION", "_OFFSET", "_SIZE")]
    assert len({*macros}) == len(macros) == len(ids) * 3
    assert all(map(LEGAL.fullmatch, macros))


@given(st.text("*/\\?\n x", max_size=8) | st.text(max_size=20))
@example("*\\ int evil; /\\*")
@example("???/")
def test_name_in_a_comment_cannot_end_it(name: str) -> None:
    text = f"/* {comment(name)} */"
    assert text.index("*/") == len(text) - 2
    assert text.count("/*") == 1
    assert not {"\n", "\\"} & set(text)
    assert "??" not in text
