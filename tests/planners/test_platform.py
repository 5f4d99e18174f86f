"""Platform options: valid ones, rejected ones with the reason, and the boards that come with the planner."""

from typing import Any

import pytest

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.planners.helia import BOARDS, options_of, read_platform

RAM, ROM = {"name": "RAM"}, {"name": "ROM", "writable": False}


def rules(*shown_text: dict[str, Any]) -> dict[str, Any]:
    return {"memories": [RAM, ROM, {"name": "TCM"}], "rules": list(shown_text)}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"memories": None},
        {"memories": [{"name": "A", "max_size": 1, "origin": 0, "arena_alignment": 1}], "min_alignment": 1},
        {"memories": [{"name": "A", "arena_alignment": 4096}], "min_alignment": 64},
        rules({"memory": "ROM", "role": "constant"}),
        rules({"memory": "ROM", "role": "parameter"}),
        rules({"memory": "ROM"}),
        rules({"memory": "ROM", "constant_destination_memory": "RAM", "role": "constant"}),
        rules({"memory": "ROM", "constant_destination_memory": "RAM"}),
        rules({"memory": "RAM", "role": "scratch"}),
        rules({"memory": "RAM", "min_size": 8, "max_size": 8}),
        rules({"memory": "RAM", "name": "a"}, {"memory": "RAM", "name": "a"}),
        rules({"memory": "RAM", "name": "a"}, {"memory": "TCM", "name": "a", "min_size": 1}),
    ],
)
def test_valid_platform_is_read(options: dict[str, Any]) -> None:
    found = read_platform(options)
    assert [memory.name for memory in found.memories] == [
        m["name"] for m in options.get("memories") or [{"name": "SRAM"}]
    ]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"memories": []}, "there must be at least one memory, and all names must differ: []"),
        ({"memories": [RAM, RAM]}, "there must be at least one memory, and all names must differ: ['RAM', 'RAM']"),
        ({"memories": [{"name": "A", "max_size": 0}]}, "$.memories[0].max_size"),
        ({"memories": [{"name": "A", "origin": -1}]}, "$.memories[0].origin"),
        ({"memories": [{"name": "A", "arena_alignment": 3}]}, "an alignment of 3 B is not a power of two"),
        ({"memories": [{"name": "A", "arena_alignment": 0}]}, "an alignment of 0 B is not a power of two"),
        ({"min_alignment": 0}, "an alignment of 0 B is not a power of two"),
        ({"min_alignment": 24}, "an alignment of 24 B is not a power of two"),
        ({"memories": [{"name": "A", "size": 1}]}, "unknown field"),
        (rules({"memory": "ROM"}, {"memory": "X"}), "memory 'X' is not declared. Choose from: "),
        (
            rules({"memory": "RAM", "constant_destination_memory": "X"}),
            "memory 'X' is not declared. Choose from: RAM, ROM, TCM.",
        ),
        (
            rules({"memory": "RAM", "constant_destination_memory": "ROM"}),
            "rule 1 copies constants into ROM, which cannot be written",
        ),
        (
            rules({"memory": "RAM", "constant_destination_memory": "TCM", "role": "scratch"}),
            "rule 1 names a constant_destination_memory for scratch, which is never a constant",
        ),
        (rules({"memory": "ROM", "role": "gradient"}), "rule 1 sends gradient to ROM, which cannot be written"),
        (
            rules({"memory": "RAM", "min_size": 9, "max_size": 8}),
            "rule 1 matches nothing: its min_size of 9 B is over its max_size",
        ),
        (
            rules({"memory": "RAM"}, {"memory": "RAM", "name": "a"}, {"memory": "TCM"}),
            "rules 1 and 3 contradict each other: equal conditions, but different memories",
        ),
        (
            rules(
                {"memory": "ROM", "role": "constant"},
                {"memory": "ROM", "constant_destination_memory": "RAM", "role": "constant"},
            ),
            "rules 1 and 2 contradict each other",
        ),
    ],
)
def test_invalid_platform_is_rejected_with_the_reason(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        read_platform(options)
    assert why in str(caught.value)
    assert caught.value.diagnostics["reason"] == "planner_option"


@pytest.mark.parametrize("board", BOARDS)
def test_constants_of_a_board_stay_in_flash(board: str) -> None:
    platform = read_platform(options_of(board))
    assert [(rule.role, rule.memory) for rule in platform.rules] == [("constant", "FLASH")]
    assert [memory.name for memory in platform.memories if not memory.writable] == ["FLASH"]
