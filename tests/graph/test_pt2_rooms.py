"""The rooms behind the reader of saved PyTorch programs, each by itself: sizes, names, operators, values, members."""

from __future__ import annotations

import io
import json
import zipfile
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tmmu_core import limits
from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.importers import pt2_bytes, pt2_names, pt2_program, pt2_sizes
from tmmu_core.graph.importers.pt2_graph import as_saved, storages_of
from tmmu_core.graph.importers.pt2_operators import Operator, operator
from tmmu_core.graph.importers.pt2_program import (
    Argument,
    Body,
    Given,
    Left,
    Meta,
    Module,
    Operation,
    Program,
    Signature,
    read_program,
)
from tmmu_core.graph.importers.pt2_sizes import LARGEST, Formula, Hint, Size, SizeUnknown, evaluated, number
from tmmu_core.graph.model import Dim, Graph, Origin, View
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.making.engine import plan_graph

HALF = LARGEST // 2

# -- sizes -----------------------------------------------------------------------------------------------------------


def size(formula: str = "s", hint: int | None = None, stated: bool = True) -> Size:
    """A size that is a formula; ``stated`` says whether anything stands beside it."""
    return Size(as_expr=Formula(formula, Hint(hint) if stated else None))


@pytest.mark.parametrize(
    ("asked", "elsewhere", "found"),
    [
        *((Size(as_int=0), False, 0), (Size(as_int=LARGEST), True, LARGEST), (Size(as_int=7), True, 7)),
        *((size(hint=4), False, 4), (size(hint=4), True, 5), (size(hint=0), False, 0), (size(), False, 5)),
        *((size(stated=False), False, 5), (size(stated=False), True, 5), (size("s - 5"), False, 0)),
        *((Size(as_int=-1), False, None), (Size(as_int=LARGEST + 1), False, None), (Size(), False, None)),
        *((size(hint=-1), False, None), (size("s - 6"), False, None), (size("s / 2"), False, None)),
    ],
)
def test_a_size_is_its_number_else_what_stands_beside_its_formula_else_the_formula(
    asked: Size, elsewhere: bool, found: int | None
) -> None:
    if found is None:
        with pytest.raises(SizeUnknown):
            number(asked, {"s": 5}, elsewhere)
    else:
        assert number(asked, {"s": 5}, elsewhere) == found


@pytest.mark.parametrize(
    ("asked", "symbol", "by_data"),
    [
        *((Size(as_int=4), None, []), (size("s77", 4), ("s77", 4), []), (size("Symbol('s', x=1)", 4), ("s", 4), [])),
        *((size("s + 1", 4), None, []), (size("u0"), None, ["u0"]), (size("u0", stated=False), None, ["u0"])),
        *((size("u0", 3), ("u0", 3), []), (size("2*u10 + u1 + xu2"), None, ["u10", "u1"])),
        (size(" " * (pt2_sizes.LONGEST_FORMULA - 2) + "u0"), None, ["u0"]),
        (size(" " * (pt2_sizes.LONGEST_FORMULA - 1) + "u0"), None, []),
    ],
)
def test_a_symbol_has_a_number_beside_it_or_hangs_on_data(
    asked: Size, symbol: tuple[str, int] | None, by_data: list[str]
) -> None:
    assert pt2_sizes.symbol_in(asked) == symbol
    assert pt2_sizes.hanging_on_data(asked) == by_data


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        # what stands between: the first first, powers before products before sums, a sign before nothing but a power
        *(
            ("2 + 3 * 4 - 5", 9),
            ("2 - 3 - 4", -5),
            ("24 / 4 / 2", 3),
            ("7 // 2 * 2", 6),
            ("-7 // 2", -4),
            ("-7 % 3", 2),
        ),
        *(("2 * 3 ** 2", 18), ("-2 ** 2", -4), ("--3", 3), ("2 ** 3 % 5", 3), ("( 2 + 3 ) * 4", 20), ("0 * 0", 0)),
        *(("0 / 3", 0), ("0 ** 0", 1), ("0 ** 64", 0), ("s * s", 25), ("8 ** 2 / 64", 1), (" 7 ", 7), ("s_1", 11)),
        *(("1 ** 64", 1), ("Pow(1, -64)", 1), ("Pow(2, -1) * 2", 1), ("Pow(0, 1)", 0), ("2 ** (1 + 1)", 4)),
        # of every function
        *(("Integer(3)", 3), ("Rational(6, 3)", 2), ("Add(1, 2, 3)", 6), ("Mul(2, 3, 4)", 24), ("Pow(2, 5)", 32)),
        *(("Max(1, 3, 2)", 3), ("Min(3, 1, 2)", 1), ("Abs(-3)", 3), ("floor(-1/2)", -1), ("ceiling(-1/2)", 0)),
        *(("floor(3/2)", 1), ("ceiling(3/2)", 2), ("FloorToInt(-1/2)", -1), ("CeilToInt(1/2)", 1)),
        *(("TruncToInt(-3/2)", -1), ("TruncToInt(3/2)", 1), ("FloorDiv(-7, 2)", -4), ("CleanDiv(6, 3)", 2)),
        *(("CleanDiv(7, 3)", 2), ("CeilDiv(7, 2)", 4), ("CeilDiv(-7, 2)", -3), ("CeilDiv(6, 2)", 3), ("Mod(-1, 3)", 2)),
        *(
            ("PythonMod(-1, 3)", 2),
            ("Mod(7, 4)", 3),
            ("IntTrueDiv(3, 2) * 2", 3),
            ("ToFloat(3)", 3),
            ("Identity(3)", 3),
        ),
        # symbols, with what is said of them
        *(
            ("Symbol('s',)", 5),
            ("Symbol('s')", 5),
            ("Symbol('s', positive=True, integer=True) + 1", 6),
            ("Symbol(s)", 5),
        ),
        # the largest, at each of the places where it is asked for
        *((f"{LARGEST}", LARGEST), (f"{HALF} + {HALF} + 1", LARGEST), (f"-{LARGEST} + 1", 1 - LARGEST)),
        *((f"{LARGEST} * 1", LARGEST), (f"1 / {LARGEST} * {LARGEST}", 1), (f"Mul({LARGEST}, 1)", LARGEST)),
        *((f"Mul(1/{LARGEST}, {LARGEST})", 1), (f"0 - {LARGEST}", -LARGEST), (f"Mul(-1, {LARGEST})", -LARGEST)),
    ],
)
def test_a_formula_comes_to_what_it_says(formula: str, value: int) -> None:
    assert evaluated(formula, {"s": 5, "s_1": 11}) == value


@pytest.mark.parametrize(
    ("formula", "why"),
    [
        *(
            ("1 / 0", "divides by 0"),
            ("1 // 0", "divides by 0"),
            ("1 % 0", "divides by 0"),
            ("3 / 2", "no whole number"),
        ),
        *(("2 ** 65", "power"), ("1 ** 65", "power"), ("Pow(1, -65)", "power"), ("Pow(0, -1)", "power")),
        *(("2 ** (1/2)", "power"), (f"{LARGEST + 1}", "passes"), (f"{HALF} + {HALF} + 2", "passes")),
        *((f"0 - {HALF} - {HALF} - 2", "passes"), (f"1 / {LARGEST + 1}", "passes"), ("2 ** 63", "passes")),
        *((f"1 / {LARGEST} / 2 * {LARGEST}", "passes"), (f"{HALF} * 3 / 3", "passes"), ("Pow(2, 63) / 2", "passes")),
        *((f"Mul({HALF}, 3, 1/3)", "product in it"), (f"Mul(1/{LARGEST}, 1/2, {LARGEST})", "product in it")),
        *((f"Mul(-3, {HALF}, 1/3)", "product in it"), ("Add(1", "holds “Add”"), ("Nothing(1)", "holds “Nothing”")),
        *(("Max(1, 2", "holds “Max”"), ("Rational(1)", "what it does not take"), ("FloorDiv(1, 0)", "does not take")),
        *(("Mod(1, 0)", "does not take"), ("Rational(1, 0)", "does not take"), ("t", "stands open")),
        *(("Symbol('t')", "stands open"), ("Symbol('s'", "an end"), ("(1", "an end"), ("(1 ,", "“,”"), ("1 2", "“2”")),
        *(("1 + ", "an end"), ("2 ** -1", "which sizes do not"), ("Symbol", "stands open"), ("1 + !", "no formula")),
        *(("Integer()", "which sizes do not"), ("s(1)", "holds “s”"), ("'s'", "which sizes do not"), ("", "an end")),
    ],
)
def test_what_a_formula_may_not_hold_is_said(formula: str, why: str) -> None:
    with pytest.raises(SizeUnknown, match=why):
        evaluated(formula, {"s": 5})


def test_a_formula_is_so_deep_and_so_long_and_no_more() -> None:
    deep, long = pt2_sizes.DEEPEST_FORMULA - 1, pt2_sizes.LONGEST_FORMULA
    assert evaluated("(" * deep + "1" + ")" * deep, {}) == 1
    assert evaluated("+".join(["(1)"] * (deep + 3)), {}) == deep + 3  # side by side is not deep
    assert evaluated("1".rjust(long), {}) == 1
    with pytest.raises(SizeUnknown, match="nested more than 40 deep"):
        evaluated("(" * (deep + 1) + "1" + ")" * (deep + 1), {})
    with pytest.raises(SizeUnknown, match="nested more than 40 deep"):
        evaluated("(1) + " * 5 + "(" * (deep + 1) + "1" + ")" * (deep + 1), {})
    with pytest.raises(SizeUnknown, match="longer than 2000"):
        evaluated("1".rjust(long + 1), {})


# -- operators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "parts", "title", "writes"),
    [
        ("torch.ops.aten.add_.Tensor", ("aten", "add_", "Tensor"), "add_.Tensor", True),
        ("torch.ops.aten.relu.default", ("aten", "relu", "default"), "relu", False),
        ("aten::relu", ("aten", "relu", "default"), "relu", False),
        ("torch.ops.aten.__iand__.Scalar", ("aten", "__iand__", "Scalar"), "__iand__.Scalar", False),
        ("torch.ops.quantized.mul.default", ("quantized", "mul", "default"), "quantized.mul", False),
        ("torch.ops.higher_order.cond", ("higher_order", "cond", "default"), "cond", False),
        ("_operator.mul", ("_operator", "mul", "default"), "_operator.mul", False),
        ("a b", ("", "a b", "default"), "a b", False),
        ("aten_max_dim", ("aten", "max", "dim"), "max.dim", False),
        ("aten_sum_dim_IntList", ("aten", "sum", "dim_IntList"), "sum.dim_IntList", False),  # the longest overload
        ("aten_pow_Tensor_Scalar", ("aten", "pow", "Tensor_Scalar"), "pow.Tensor_Scalar", False),
        ("aten_split_with_sizes", ("aten", "split_with", "sizes"), "split_with.sizes", False),
        ("aten_relu", ("aten", "relu", "default"), "relu", False),
        ("prims_view_of", ("prims", "view_of", "default"), "prims.view_of", False),
    ],
)
def test_an_operator_is_its_space_its_name_and_its_overload(
    target: str, parts: tuple[str, str, str], title: str, writes: bool
) -> None:
    found = operator(target)
    assert (found, found.title, found.writes_first) == (Operator(*parts), title, writes)


# -- values ----------------------------------------------------------------------------------------------------------


def meta(sizes: list[int], strides: list[int] | None = None, offset: int = 0, dtype: int = 7) -> Meta:
    """What a program says of a tensor; in order where no strides are given."""
    if strides is None:
        strides = [1] * len(sizes)
        for k in range(len(sizes) - 2, -1, -1):
            strides[k] = strides[k + 1] * sizes[k + 1]
    of = [[Size(as_int=each) for each in some] for some in (sizes, strides)]
    return Meta(dtype, tuple(of[0]), tuple(of[1]), Size(as_int=offset))


def t(name: str) -> dict[str, Any]:
    """A tensor as an argument."""
    return {"as_tensor": {"name": name}}


def call(target: str, read: list[Any], made: list[str], name: str | None = None, **more: Any) -> Operation:
    """One call; what is read is a name, or an argument as it is written."""
    args = [Argument(t(each) if isinstance(each, str) else each) for each in read]
    args += [Argument(arg, called) for called, arg in more.items()]
    return Operation(f"torch.ops.aten.{target}", tuple(args), tuple(t(each) for each in made), name)


def graph_of(
    values: dict[str, Meta],
    inputs: dict[str, Given | None],
    nodes: list[Operation],
    left: tuple[Left, ...] = (),
    weights: dict[str, str] | None = None,
) -> tuple[Program, Graph]:
    """A program, and the graph of it."""
    specs = tuple(spec for spec in inputs.values() if spec is not None)
    body = Body(tuple(t(name) for name in inputs), (), tuple(nodes), values)
    program = Program(Module(body, Signature(specs, left)), {}, {}, weights or {})
    return program, as_saved(program, "g")


USER = Given(user_input={})


def parameter(name: str) -> Given:
    """An input that is the parameter of this name."""
    return Given(parameter={"parameter_name": name})


def lies(graph: Graph, name: str) -> tuple[tuple[int | str, ...], View | None]:
    """Shape and view of a tensor."""
    tensor = next(each for each in graph.tensors if each.id == name)
    return tensor.shape, tensor.view


@pytest.mark.parametrize(
    ("target", "made", "more", "shares"),
    [
        *(("view.default", meta([6, 4]), {}, True), ("relu_.default", meta([4, 6]), {}, True)),
        *(("relu.default", meta([4, 6]), {}, False), ("reshape.default", meta([24]), {}, True)),
        *(("dropout.default", meta([4, 6]), {"train": {"as_bool": False}}, True), ("sin.out", meta([4, 6]), {}, False)),
        *(("dropout.default", meta([4, 6]), {"train": {"as_bool": True}}, False),),
        *(("dropout.default", meta([4, 6]), {}, False),),
        *(("dropout.default", meta([4, 6], [1, 4]), {"train": {"as_bool": False}}, False),),
        *(("to.dtype", meta([4, 6]), {}, True), ("to.dtype", meta([4, 6], [1, 4]), {}, False)),
        *(("to.dtype", meta([4, 6], dtype=3), {}, False), ("to.dtype", meta([4, 6], dtype=5), {}, False)),
        *(("to.dtype", meta([4, 6]), {"copy": {"as_bool": True}}, False),),
        *(
            ("to.dtype", meta([4, 6]), {"copy": {"as_bool": False}}, True),
            ("contiguous.default", meta([4, 6]), {}, True),
        ),
    ],
)
def test_a_result_lies_in_its_first_argument_as_its_operator_says(
    target: str, made: Meta, more: dict[str, Any], shares: bool
) -> None:
    _, graph = graph_of({"x": meta([4, 6]), "y": made}, {"x": USER}, [call(target, ["x"], ["y"], **more)])
    view = lies(graph, "y")[1]
    assert (view is not None and view.base_tensor_uid == "x") is shares
    assert verify_plan(plan_graph(graph).plan, graph).ok


def test_only_pytorchs_own_operators_hand_out_what_they_read() -> None:
    values = {"x": meta([4]), "y": meta([4]), "z": meta([4])}
    own = Operation("torch.ops.mine.view.default", (Argument(t("x")),), (t("y"),))
    prims = Operation("torch.ops.prims.view.default", (Argument(t("x")),), (t("z"),))
    _, graph = graph_of(values, {"x": USER}, [own, prims])
    assert [lies(graph, name)[1] for name in "yz"] == [None, View("x", 0)]


def test_what_decompositions_leave_behind_is_a_view_and_so_is_each_tensor_that_is_spread() -> None:
    values = {"x": meta([4, 1]), "b": meta([1, 4]), "v": meta([4, 1])}
    values |= {"e": meta([4, 4], [1, 0]), "f": meta([4, 4], [0, 1]), "y": meta([4, 4])}
    of = Operation("torch.ops.prims.view_of.default", (Argument(t("x")),), (t("v"),))
    both: tuple[dict[str, Any], dict[str, Any]] = (
        {"as_tensors": [{"name": "v"}, {"name": "b"}]},
        {"as_tensors": [{"name": "e"}, {"name": "f"}]},
    )
    spread = Operation("torch.ops.aten.broadcast_tensors.default", (Argument(both[0]),), (both[1],))
    _, graph = graph_of(values, {"x": USER, "b": USER}, [of, spread, call("add.Tensor", ["e", "f"], ["y"])])
    assert [lies(graph, name)[1] for name in "vef"] == [
        View("x", 0),
        View("x", 0, 16, (1, 0)),
        View("b", 0, 16, (0, 1)),
    ]
    assert plan_graph(graph).plan.arena_of["activations"].peak_live_bytes == 16 + 16 + 64


def test_a_reshape_of_what_lies_apart_is_a_copy_where_an_element_would_move() -> None:
    values = {"x": meta([4, 6], [1, 4]), "y": meta([24]), "z": meta([2, 2, 6], [1, 2, 4])}
    nodes = [call("reshape.default", ["x"], ["y"]), call("reshape.default", ["x"], ["z"])]
    _, graph = graph_of(values, {"x": USER}, nodes)
    assert lies(graph, "y")[1] is None
    assert lies(graph, "z")[1] == View(
        "x.storage" if "x.storage" in {e.id for e in graph.tensors} else "x", 0, None, (1, 2, 4)
    )


def test_an_argument_before_the_first_tensor_is_nothing_to_be_converted_from() -> None:
    """``to`` of what is no tensor, with a tensor behind it; and results of which the first is none."""
    nodes = [
        Operation("torch.ops.aten.to.dtype", (Argument({"as_int": 3}), Argument(t("x"))), ({"as_none": True}, t("y")))
    ]
    _, graph = graph_of({"x": meta([4]), "y": meta([4])}, {"x": USER}, nodes)
    assert lies(graph, "y")[1] == View("x", 0)


@pytest.mark.parametrize(("offset", "ends"), [(0, True), (20, True), (21, False)])
def test_a_view_ends_with_its_storage(offset: int, ends: bool) -> None:
    values, nodes = {"x": meta([24]), "y": meta([4], offset=offset)}, [call("slice.Tensor", ["x"], ["y"])]
    if ends:
        assert lies(graph_of(values, {"x": USER}, nodes)[1], "y") == ((4,), View("x", 4 * offset))
    else:
        with pytest.raises(UnreadableInput, match='"y" reaches past the storage of "x"'):
            graph_of(values, {"x": USER}, nodes)


def test_what_comes_in_from_the_middle_of_a_storage_begins_there() -> None:
    """``x`` begins at element 8 of what is not in the file: a view of it may begin there, and no element before."""
    values = {"x": meta([12], offset=8), "y": meta([4], offset=8), "z": meta([2], offset=18), "w": meta([2], offset=9)}
    nodes = [call("slice.Tensor", ["x"], ["y"]), call("slice.Tensor", ["x"], ["z"]), call("slice.Tensor", ["y"], ["w"])]
    program, graph = graph_of(values, {"x": parameter("p")}, nodes)
    assert [lies(graph, name)[1] for name in "pyzw"] == [None, View("p", 0), View("p", 40), View("p", 4)]
    assert storages_of(program) == {"p": ("p", 32, 48)}
    values["y"] = meta([4], offset=7)
    with pytest.raises(UnreadableInput, match="reaches past"):
        graph_of(values, {"x": parameter("p")}, nodes)


def test_what_is_written_back_lies_where_what_it_is_written_over_does() -> None:
    """Also where that one begins in the middle of a storage, or lies apart; nothing is written over itself."""
    values = {
        "x": meta([4], offset=8),
        "s": meta([2, 2], [4, 1], 4),
        "y": meta([4]),
        "z": meta([2, 2]),
        "v": meta([4], offset=8),
    }
    nodes = [call("relu.default", ["x"], ["y"]), call("relu.default", ["s"], ["z"]), call("view.default", ["x"], ["v"])]
    left = tuple(
        Left(**{f"{kind}_mutation": {"arg": {"name": new}, f"{kind}_name": called}})
        for kind, new, called in (
            ("user_input", "y", "x"),
            ("buffer", "z", "b"),
            ("user_input", "v", "x"),
            ("user_input", "y", "v"),
        )
    )
    _, graph = graph_of(values, {"x": USER, "s": Given(buffer={"buffer_name": "b"})}, nodes, left)
    assert [(node.node_id, node.inputs, node.outputs) for node in graph.nodes[3:]] == [
        ("copy_to_x", ("x", "y"), ("x.updated",)),
        ("copy_to_b", ("b", "z"), ("b.updated",)),
        ("copy_to_v", ("v", "y"), ("v.updated",)),
    ]
    assert [lies(graph, name) for name in ("x.updated", "b.updated", "v.updated")] == [
        ((4,), View("x", 0)),
        ((2, 2), View("b.storage", 0, None, (4, 1))),
        ((4,), View("x", 0)),
    ]
    assert verify_plan(plan_graph(graph).plan, graph).ok


def test_what_does_not_fill_its_storage_lies_in_one_that_is_a_tensor_too() -> None:
    values = {
        "gaps": meta([2, 2], [4, 1], 3),
        "same": meta([2, 2], [0, 3]),  # covers four elements and has two rows that are one
        "turned": meta([2, 3], [1, 2]),
        "made": meta([2, 2], [4, 1]),
        "none": meta([0, 4]),
    }
    inputs: dict[str, Given | None] = {"gaps": parameter("g"), "same": USER, "turned": USER, "none": USER}
    _, graph = graph_of(values, inputs, [call("mm.default", ["turned"], ["made"])])
    rows = [(each.id, each.shape, each.dtype, each.role, each.view) for each in graph.tensors]
    assert rows == [
        ("g.storage", (24,), "uint8", "parameter", None),
        ("g", (2, 2), "float32", "parameter", View("g.storage", 0, None, (4, 1))),
        ("same.storage", (16,), "uint8", "input", None),
        ("same", (2, 2), "float32", "activation", View("same.storage", 0, 16, (0, 3))),
        ("turned", (2, 3), "float32", "input", None),
        ("none", (0, 4), "float32", "input", None),
        ("made.storage", (24,), "uint8", "activation", None),
        ("made", (2, 2), "float32", "activation", View("made.storage", 0, None, (4, 1))),
    ]
    assert graph.inputs == ("same.storage", "turned", "none")
    assert graph.nodes[0].outputs == ("made.storage", "made")


@pytest.mark.parametrize(
    ("target", "read", "made", "permits"),
    [
        *(("relu.default", ["x"], meta([4]), ((0, 0),)), ("add.Tensor", ["x", "w"], meta([4]), ((0, 0), (1, 0)))),
        *(("mm.default", ["x"], meta([4]), "none"), ("max.dim", ["x"], meta([4]), "none")),
        *(("add.Tensor", ["h", "x"], meta([4]), ((1, 0),)), ("relu.default", ["h"], meta([4]), "none")),
        *(("fill.Scalar", ["x", "w"], meta([4]), ((0, 0),)), ("relu_.default", ["x"], meta([4]), "none")),
        *(("relu.default", ["x"], meta([4], [2]), "none"), ("relu.default", ["g"], meta([4], [2]), "none")),
        *(("add.Tensor", ["o", "x"], meta([4], offset=2), ((0, 0),)),),
    ],
)
def test_what_an_operator_may_write_over_lies_as_its_result_does_and_fills_its_storage(
    target: str, read: list[Any], made: Meta, permits: Any
) -> None:
    values = {
        "x": meta([4]),
        "w": meta([4]),
        "h": meta([4], dtype=6),
        "g": meta([4], [2]),
        "o": meta([4], offset=2),
        "y": made,
    }
    _, graph = graph_of(values, dict.fromkeys("xwhgo", USER), [call(target, read, ["y"])])
    assert graph.nodes[0].inplace == permits


def test_nothing_may_write_over_a_part_of_a_storage_nor_over_windows() -> None:
    """``windows`` are places 0, 1, 1, 2, 2, 3 of as many bytes as they would take one by one."""
    values = {"x": meta([6]), "part": meta([4]), "y": meta([4]), "windows": meta([3, 2], [1, 1])}
    values |= {"z": meta([3, 2], [1, 1]), "whole": meta([2, 3]), "w": meta([2, 3])}
    nodes = [
        *(call("slice.Tensor", ["x"], ["part"]), call("relu.default", ["part"], ["y"])),
        *(call("as_strided.default", ["x"], ["windows"]), call("relu.default", ["windows"], ["z"])),
        *(call("view.default", ["x"], ["whole"]), call("relu.default", ["whole"], ["w"])),
    ]
    _, graph = graph_of(values, {"x": USER}, nodes)
    assert [node.inplace for node in graph.nodes[1::2]] == ["none", "none", ((0, 0),)]


def test_a_node_keeps_what_is_said_of_where_it_comes_from() -> None:
    values = {"x": meta([4]), "y": meta([4]), "z": meta([4])}
    said = {"nn_module_stack": "a,L['self'].b.c,d", "stack_trace": 'File "/p/q/r.py", line 7'}
    known = Operation("torch.ops.aten.relu.default", (Argument(t("x")),), (t("y"),), "told", said)
    _, graph = graph_of(values, {"x": USER}, [known, call("relu.default", ["x"], ["z"], "not_told")])
    assert graph.origins == {"told": Origin(("b", "c"), "q/r.py:7")}


def test_what_makes_two_results_or_is_not_pytorchs_permits_nothing() -> None:
    values = {name: meta([4]) for name in "xyzw"}
    own = Operation("torch.ops.mine.relu.default", (Argument(t("x")),), (t("w"),))
    _, graph = graph_of(values, {"x": USER}, [call("relu.default", ["x"], ["y", "z"]), own])
    assert [node.inplace for node in graph.nodes] == ["none", "none"]


def test_weights_of_one_member_that_lie_alike_are_one_tensor_and_an_input_never_is() -> None:
    values = {
        "a": meta([4]),
        "b": meta([4]),
        "c": meta([2]),
        "d": meta([4]),
        "x": meta([4]),
        "e": meta([4]),
        "y": meta([4]),
    }
    inputs = {name: parameter(name.upper()) for name in "abcd"} | {"x": USER, "e": parameter("E")}
    weights = {"A": "m", "B": "m", "C": "m", "D": "n", "x": "m"}
    _, graph = graph_of(values, dict(inputs), [call("add.Tensor", ["b", "x"], ["y"])], weights=weights)
    assert [each.id for each in graph.tensors] == ["A", "C", "D", "x", "E", "y"]
    assert graph.nodes[0].inputs == ("A", "x")
    _, apart = graph_of(values, {"e": parameter("E"), "a": parameter("F")}, [])
    assert [each.id for each in apart.tensors] == ["E", "F"]  # of no member that is known: each by itself


def buffer(name: str) -> Given:
    return Given(buffer={"buffer_name": name})


@pytest.mark.parametrize(
    ("order", "named"),
    [
        (("w", "t", "s"), {"w": None, "t": View("w", 0, None, (1, 4)), "s": View("w", 32)}),
        (
            ("s", "t", "w"),
            {
                "s.storage": None,
                "s": View("s.storage", 32),
                "t": View("s.storage", 0, None, (1, 4)),
                "w": View("s.storage", 0),
            },
        ),
    ],
)
@pytest.mark.parametrize("table", ["weights", "lifted"])
def test_weights_that_are_parts_of_one_member_lie_in_one_storage(
    order: tuple[str, ...], named: dict[str, View | None], table: str
) -> None:
    """A transpose and a row of a matrix, which are kept beside it: the archive has the bytes once."""
    values = {"w": meta([4, 4]), "t": meta([4, 4], [1, 4]), "s": meta([4], None, 8), "z": meta([0]), "y": meta([4, 4])}
    inputs: dict[str, Given | None] = {name: buffer(name) for name in (*order, "z")}
    program, _ = graph_of(values, inputs, [call("addmm.default", ["s", "t", "w"], ["y"])])
    program = msgspec.structs.replace(program, **{table: dict.fromkeys("wtsz", "m")})
    graph = as_saved(program, "g")
    assert {each.id: each.view for each in graph.tensors} == named | {"z": None, "y": None}
    assert plan_graph(graph).plan.arena_of["parameters"].peak_live_bytes == 64
    whole = next(iter(named))
    assert storages_of(program) == {"w": (whole, 0, 64), "t": (whole, 0, 64), "s": (whole, 0, 64), "z": ("z", 0, 0)}


def test_constants_have_members_of_their_own() -> None:
    weights, lifted = (
        {"config": {"w": {"path_name": "0"}}},
        {"config": {"c": {"path_name": "0"}, "w": {"path_name": "1"}}},
    )
    program = read_program(
        archive(
            **{"a__models__model.json": {"graph_module": {"graph": {}}}},
            **{"a__weights__model_weights_config.json": weights, "a__constants__model_constants_config.json": lifted},
        )
    )
    members = [program.member_of(name) for name in "wcx"]
    assert len(set(members)) == 3
    assert members[2] == ""


def test_inputs_without_a_word_of_them_are_handed_in() -> None:
    values = {"a": meta([4]), "b": meta([4]), "c": meta([4])}
    inputs: dict[str, Given | None] = {"a": Given(tensor_constant={}), "b": Given(), "c": None}
    _, graph = graph_of(values, inputs, [])
    assert [(each.id, each.role) for each in graph.tensors] == [("a", "constant"), ("b", "input"), ("c", "input")]


@pytest.mark.parametrize(
    ("arg", "given_out"),
    [
        *(({"name": "y"}, True), ({"as_tensor": {"name": "y"}}, True), ({"as_tensor": 4}, False), (None, False)),
        *(({"name": "p"}, False), ({"name": "nothing"}, False), ([], False), ({}, False), ({"name": ["y"]}, False)),
    ],
)
@pytest.mark.parametrize("kind", ["user_output", "loss_output", "gradient_to_parameter", "gradient_to_user_input"])
def test_what_is_given_out_is_a_value_that_does_not_stay(arg: Any, given_out: bool, kind: str) -> None:
    values = {"p": meta([4]), "y": meta([4])}
    left = (Left(**{kind: {"arg": arg}}), Left(**{kind: {"arg": arg}}), Left())
    _, graph = graph_of(values, {"p": parameter("p")}, [call("relu.default", ["p"], ["y"])], left)
    assert graph.outputs == (("y",) if given_out else ())


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        *((t("x"), ("x",)), ({"as_optional_tensor": t("x")}, ("x",)), ({"as_optional_tensor": {"as_none": True}}, ())),
        *(
            ({"as_optional_tensor": "x"}, ()),
            ({"as_optional_tensor": "as_tensor"}, ()),
            ({"as_what": t("x")}, ()),
            ({"as_tensors": [{"name": "x"}, {"name": "w"}]}, ("x", "w")),
        ),
        *(({"as_tensors": {"name": "x"}}, ()), ({"as_nested_tensors": [[{"name": "w"}], [{"name": "x"}]]}, ("w", "x"))),
        ({"as_optional_tensors": [t("x"), {"as_none": True}, t("w")]}, ("x", "w")),
        *(({"as_int": 4}, ()), ({"as_ints": [4]}, ()), ({"as_graph": {"name": "body"}}, ())),
        *(
            (
                {"as_string_to_argument": {"out": t("x"), "n": {"as_int": 4}, "w": {"as_tensors": [{"name": "w"}]}}},
                ("x", "w"),
            ),
            ({"as_string_to_argument": {"a": {"as_string_to_argument": {"b": t("x")}}, "c": 4}}, ()),
            ({"as_string_to_argument": [t("x")]}, ()),
        ),
    ],
)
def test_an_argument_names_tensors_in_order(argument: dict[str, Any], named: tuple[str, ...]) -> None:
    values = {"x": meta([4]), "w": meta([4]), "y": meta([4])}
    _, graph = graph_of(values, {"x": USER, "w": USER}, [call("cat.default", [argument], ["y"])])
    assert graph.nodes[0].inputs == named
    bodies = {"subgraphs_not_planned": ["body"]} if "as_graph" in argument else {}
    assert graph.nodes[0].params == bodies


@pytest.mark.parametrize(
    "argument", [{"as_tensors": [4]}, {"as_tensors": [{}]}, {"as_tensor": 4}, {"as_tensor": {"name": 4}}]
)
def test_a_tensor_without_a_name_is_refused(argument: dict[str, Any]) -> None:
    with pytest.raises(UnreadableInput, match="a tensor without a name"):
        graph_of({"y": meta([4])}, {}, [call("cat.default", [argument], ["y"])])


def test_names_that_are_taken_are_told_apart_in_order() -> None:
    """A parameter and an operator may be called alike, nodes too; what touches no tensor is left out."""
    values = {name: meta([4]) for name in ("x", "relu", "b", "c", "d", "e")}
    nodes = [
        *(call("relu.default", ["x"], [name], "again") for name in ("relu", "b", "c", "d")),
        *(call("relu.default", ["x"], ["e"]), call("sym_size.int", ["x"], [], "left_out")),
        *(call("item.default", ["x"], []), call("zeros.default", [], [], "left_out")),
    ]
    _, graph = graph_of(values, {"x": parameter("relu")}, nodes)
    assert [each.id for each in graph.tensors] == ["relu", "relu_", "b", "c", "d", "e"]
    assert [node.node_id for node in graph.nodes] == ["again", "again_", "again_1", "again_2", "e", "item"]


def test_a_name_that_is_taken_is_passed_over() -> None:
    values = {name: meta([4]) for name in ("a", "b", "relu", "relu_")}
    inputs: dict[str, Given | None] = {"a": parameter("relu"), "b": parameter("relu_")}
    nodes = [call("relu.default", ["a"], ["relu"]), call("relu.default", ["a"], ["relu_"])]
    _, graph = graph_of(values, inputs, nodes)
    assert [each.id for each in graph.tensors] == ["relu", "relu_", "relu_1", "relu__"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        *(
            ({"y": Meta(99)}, "the dtype number 99"),
            ({"y": Meta(7, layout=1)}, "is not dense"),
            ({}, "tells nothing of"),
        ),
        *(({"y": meta([4], [])}, "1 axes and 0 strides"), ({"y": meta([4], [1, 1])}, "1 axes and 2 strides")),
    ],
)
def test_what_a_program_says_wrongly_of_a_tensor_is_refused(wrong: dict[str, Meta], why: str) -> None:
    with pytest.raises(UnreadableInput, match=why):
        graph_of({"x": meta([4]), **wrong}, {"x": USER}, [call("relu.default", ["x"], ["y"])])


def test_what_is_made_twice_or_read_before_is_refused() -> None:
    values = {"x": meta([4]), "y": meta([4])}
    with pytest.raises(UnreadableInput, match='"y" is made twice'):
        graph_of(values, {"x": USER}, [call("relu.default", ["x"], ["y"])] * 2)
    with pytest.raises(UnreadableInput, match='"y" is read before anything makes it'):
        graph_of(values, {"x": USER}, [call("relu.default", ["y"], ["x"])])
    left = (Left(buffer_mutation={"arg": {"name": "y"}, "buffer_name": "b"}),)
    with pytest.raises(UnreadableInput, match='"b" is read before anything makes it'):
        graph_of(values, {"x": USER}, [call("relu.default", ["x"], ["y"])], left)


# -- names -----------------------------------------------------------------------------------------------------------

LEAF: dict[str, Any] = {"type": None}


def program_called(positional: list[Any], by_name: Any, **rest: Any) -> Any:
    """A program of which nothing is known but how it is called, by four inputs of which the second is a parameter."""
    tree = [1, {"children_spec": [{"type": "tuple", "children_spec": positional}, by_name]}]
    signature = SimpleNamespace(in_spec=rest.get("in_spec", json.dumps(tree)), forward_arg_names=rest.get("named"))
    calls = rest.get("calls", [SimpleNamespace(signature=signature)])
    specs = [USER, parameter("p"), USER, USER][: rest.get("specs", 4)]
    symbols = {"a": meta([2]), "b": meta([2]), "c": meta([2]), "d": meta([2])}
    body = SimpleNamespace(inputs=[t("a"), t("b"), t("c"), {"as_int": 4}], tensor_values=symbols)
    module = SimpleNamespace(module_call_graph=calls, signature=SimpleNamespace(input_specs=specs), graph=body)
    return SimpleNamespace(module=module, by_data=rest.get("by_data", ()), ranges={}, symbols=rest.get("symbols", {}))


def keyed(keys: list[str], children: list[Any]) -> dict[str, Any]:
    """A mapping."""
    return {"type": "dict", "context": json.dumps(keys), "children_spec": children}


NOTHING = keyed([], [])
LIST = {"type": "builtins.list", "context": "null", "children_spec": [LEAF, LEAF]}


@pytest.mark.parametrize(
    ("positional", "by_name", "rest", "names"),
    [
        ([LEAF, LEAF, LEAF], NOTHING, {"named": ["x", "y", "z"]}, {0: "x", 2: "y", 3: "z"}),
        ([LEAF, LEAF, LEAF], NOTHING, {"named": ["x"]}, {0: "x", 2: "input_1", 3: "input_2"}),
        ([LEAF, LIST], NOTHING, {}, {0: "input_0", 2: "input_1.0", 3: "input_1.1"}),
        ([LEAF], keyed(["k", "l"], [LEAF, keyed(["m"], [LEAF])]), {}, {0: "input_0", 2: "k", 3: "l.m"}),
        ([LEAF, LEAF], NOTHING, {}, {}),  # two names for three inputs
        *(
            ([LEAF] * 3, NOTHING, {"calls": []}, {}),
            ([LEAF] * 3, NOTHING, {"calls": [SimpleNamespace(signature=None)]}, {}),
        ),
        *(
            ([LEAF] * 3, NOTHING, {"in_spec": text}, {})
            for text in ("", "[1]", "[1, {}]", "4", '[1, {"children_spec": [1]}]')
        ),
        ([{}] * 3, NOTHING, {}, {}),
    ],
)
def test_an_input_is_named_by_the_way_to_it(
    positional: list[Any], by_name: Any, rest: Any, names: dict[int, str]
) -> None:
    assert pt2_names.given_names(program_called(positional, by_name, **rest)) == names


def test_open_sizes_are_called_after_the_first_axis_that_has_them_then_come_those_on_data() -> None:
    program = program_called(
        [LEAF] * 3, NOTHING, named=["x", "y", "z"], by_data=("u0",), symbols={"s": 4, "q": 6, "p": 8}
    )
    values = program.module.graph.tensor_values
    values["a"] = Meta(7, (Size(as_int=2), size("s", 4), size("s", 4)))
    values["b"] = Meta(7, (size("p", 8),))  # a parameter: no size of it is an input's
    values["c"] = Meta(7, (size("q", 6), size("r", 1)))
    assert pt2_names.open_dims(program) == {"x.1": "s", "y.0": "q", "y.1": "r", "u0": "u0"}
    graph = pt2_names.with_dims(Graph((), ()), program, {"x.1": Dim(2, 4)})
    assert (graph.dims, graph.assumed) == ({"x.1": Dim(2, 4), "y.0": Dim(6, 6)}, {"y.0": 6})
    program.module.graph.inputs[0] = t("missing")
    assert pt2_names.open_dims(program) == {"y.0": "q", "y.1": "r", "u0": "u0"}
    program.module.graph.inputs[0] = {"as_tensor": 4}
    assert pt2_names.open_dims(program) == {"y.0": "q", "y.1": "r", "u0": "u0"}
    program.module.graph.inputs[0] = t("a")
    program.module.module_call_graph.clear()
    assert pt2_names.open_dims(program) == {"a.1": "s", "c.0": "q", "c.1": "r", "u0": "u0"}


# -- the archive -----------------------------------------------------------------------------------------------------

EMPTY = {"graph_module": {"graph": {}}}


def archive(**members: Any) -> bytes:
    """A zip archive; ``__`` stands for a folder's line, and what is no bytes is JSON."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, inner in members.items():
            file.writestr(name.replace("__", "/"), inner if isinstance(inner, bytes) else json.dumps(inner))
    return out.getvalue()


def opened(graph: dict[str, Any], ranges: dict[str, Any] | None = None, config: Any = None) -> Program:
    """A program of this graph."""
    table = {} if config is None else {"a__weights__model_weights_config.json": {"config": config}}
    document = {"graph_module": {"graph": graph}, "range_constraints": ranges or {}}
    return read_program(archive(**{"a__models__model.json": document}, **table), "p.pt2")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        *((["a__models__model.json"], True), (["a__models__b.json"], True), (["a__models__model.txt"], False)),
        *((["a__models__model.json", "a__models__b.json"], True), (["a__models__b.json", "a__models__c.json"], False)),
        *((["serialized_exported_program.json", "a__models__b.json"], True), (["models__a__model.json"], False)),
        *(
            (["a__models__model.json", "exported_program.json"], False),
            (["model.json"], False),
            (["models__a__b.json"], False),
        ),
    ],
)
def test_an_archive_holds_one_program(names: list[str], found: bool) -> None:
    data = archive(**dict.fromkeys(names, EMPTY))
    if found:
        assert read_program(data).module.graph == Body()
    else:
        with pytest.raises(UnreadableInput, match=r"programs? under models/"):
            read_program(data)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        *(
            (["a__archive_format", "other"], ""),
            (["a__archive_format"], ""),
            (["archive_format"], ""),
            (["old_exported_program.json"], ""),
        ),
        *((["a__archive_format.txt"], "no exported program"), (["data.pkl"], "no exported program")),
    ],
)
def test_an_exported_program_is_known_by_a_members_name(names: list[str], why: str) -> None:
    data = archive(**dict.fromkeys(names, b""))
    assert why in pt2_program.refuses(data)
    assert (why == "") is (pt2_program.refuses(data) == "")
    assert pt2_program.refuses(data[1:]) != ""
    assert pt2_program.refuses(data[:30]) == ""  # its reader says so


def test_an_archive_that_is_damaged_is_refused_whatever_is_damaged() -> None:
    data = archive(**{"a__models__model.json": EMPTY})
    at = data.index(b'"graph_module"')
    for damaged, why in (
        (data[: len(data) // 2], "the zip archive is cut off or damaged"),
        (
            data[:at] + b"!" + data[at + 1 :],
            'the member "a/models/model.json" of the zip archive is cut off or damaged',
        ),
        (archive(**{"a__models__model.json": {"graph_module": 4}}), "is not laid out as PyTorch writes it: Expected"),
        (
            archive(
                **{"a__models__model.json": b'{"graph_module": {"graph": {"nodes": [{"metadata": ' + b"[" * 100_000}
            ),
            "PyTorch writes it: it is nested too deeply",
        ),
    ):
        with pytest.raises(UnreadableInput, match=why):
            read_program(damaged)
    assert pt2_names.asked_for(program_called([LEAF] * 3, NOTHING, by_data=("u0",)), {"u0": Dim(0, 0)}) == {"u0": 0}


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (1, True), (-1, False)])
def test_a_member_unpacks_to_as_much_as_is_allowed(spare: int, fits: bool) -> None:
    data = archive(**{"a__models__model.json": EMPTY})
    with limits.raised({"unpacked-bytes": len(json.dumps(EMPTY)) + spare}):
        if fits:
            assert read_program(data).module.graph == Body()
        else:
            with pytest.raises(UnreadableInput, match="--max-unpacked-bytes"):
                read_program(data)


def test_open_sizes_stand_at_the_example_or_at_the_largest_that_is_a_bound() -> None:
    def formula(text: str, hint: int | None = None) -> dict[str, Any]:
        return {"as_expr": {"expr_str": text, "hint": None if hint is None else {"as_int": hint}}}

    sizes = [formula("s0", 4), formula("u1"), {"as_int": 3}, formula("u2"), formula("u3"), formula("u4 + u1")]
    graph = {
        "sym_int_values": {"one": formula("s9", 9), "two": {"as_int": 7}},
        "tensor_values": {
            "x": {"dtype": 7, "sizes": sizes, "strides": [formula("u5")]},
            "y": {"dtype": 7, "sizes": [formula("s1", 8), formula("u2", 5)]},
        },
    }
    most = pt2_program.LEAST_UNBOUNDED
    ranges = {
        "s0": {"min_val": 2, "max_val": 64},
        "u1": {"max_val": most - 1},
        "u3": {"max_val": most},
        "u4": 4,
        "u5": {},
    }
    program = opened(graph, ranges, {"w": {"path_name": "weight_0"}})
    assert program.symbols == {"u1": most - 1, "s9": 9, "s0": 4, "s1": 8, "u2": 5}
    assert program.by_data == ("u1", "u3", "u4", "u5")
    whole = (0, LARGEST)
    assert program.ranges == {"s0": (2, 64), "u1": (0, most - 1), "u3": (0, most), "u4": whole, "u5": whole}
    assert program.weights == {"w": "weight_0"}
    assert not program.elsewhere


@pytest.mark.parametrize(
    ("point", "elsewhere"),
    [({}, False), ({"s": 4}, False), ({"s": 5}, True), ({"u0": 9}, False), ({"u0": 9, "s": 5}, True)],
)
def test_a_program_is_elsewhere_where_a_size_of_its_example_is_another(point: dict[str, int], elsewhere: bool) -> None:
    program = Program(Module(Body()), {"s": 4, "u0": 3}, {}, {}, by_data=("u0",))
    moved = program.at(point)
    assert (moved.elsewhere, moved.symbols) == (elsewhere, {"s": 4, "u0": 3} | point)
    assert program.at({"s": 5}).at(point).elsewhere


def test_a_size_that_is_not_known_says_what_may_be_given() -> None:
    program = Program(Module(Body()), {"u1": 3}, {}, {}, source="p.pt2")
    with pytest.raises(UnreadableInput, match='a size of "x" is not known') as caught:
        program.size(size("u0 + u2 + u1 + u0"), "x")
    assert "--dims u0=64,u2=64 -o" in caught.value.hint
    with pytest.raises(UnreadableInput) as caught:
        program.size(size("s0"), "x")
    assert caught.value.hint == "Export the program with example inputs, or with fixed sizes."
    assert program.size(size("u1 * 2"), "x") == 6


def test_bytes_of_weights_are_those_of_their_member_from_where_they_begin(tmp_path: Path) -> None:
    graph = {
        "inputs": [t("p_a"), t("p_b"), t("p_c"), t("x")],
        "tensor_values": {
            name: {
                "dtype": 1,
                "sizes": [{"as_int": 4}],
                "strides": [{"as_int": 1}],
                "storage_offset": {"as_int": offset},
            }
            for name, offset in (("p_a", 0), ("p_b", 3), ("p_c", 0), ("x", 0))
        },
    }
    specs = [{"parameter": {"parameter_name": name}} for name in "abc"] + [{"user_input": {}}]
    document = {"graph_module": {"graph": graph, "signature": {"input_specs": specs}}}
    weights = {"config": {"a": {"path_name": "w0"}, "b": {"path_name": "w1"}, "z": {"path_name": "w9"}}}
    lifted = {"config": {"c": {"path_name": "w2", "use_pickle": True}}}
    data = archive(
        **{"a__models__model.json": document, "a__weights__model_weights_config.json": weights},
        **{"a__constants__model_constants_config.json": lifted, "a__weights__w0": bytes(range(4))},
        a__weights__w1=bytes(range(10, 20)),
    )
    made = as_saved(read_program(data), "g")
    file = tmp_path / "p.pt2"
    file.write_bytes(data)
    for where in (None, file):
        held = pt2_bytes.constants(data, made, where, "p.pt2")
        assert {name: bytes(held[name]) for name in held} == {"a": bytes(range(4)), "b": bytes(range(13, 17))}
    file.unlink()  # what was opened from a file is not kept beside it
    with pytest.raises(UnreadableInput, match="cannot be read"):
        held["a"]
    fewer = msgspec.structs.replace(made, tensors=tuple(each for each in made.tensors if each.id != "a"))
    assert list(pt2_bytes.constants(data, fewer, None)) == ["b"]
    short = pt2_bytes.InMember(data, "a/weights/w1", 3, 8)
    with pytest.raises(UnreadableInput, match="a/weights/w1"):
        list(short.chunks())
    with pytest.raises(UnreadableInput, match='the member "a/w7" cannot be read'):
        list(pt2_bytes.InMember(data, "a/w7", 0, 4).chunks())


@pytest.mark.parametrize(("chunk", "start", "length"), list(product((1, 3, 4, 100), (0, 2), (1, 3, 4, 8))))
def test_a_range_of_a_member_comes_in_pieces(
    chunk: int, start: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pt2_bytes, "CHUNK", chunk)
    pieces = list(pt2_bytes.InMember(archive(m=bytes(range(10))), "m", start, length).chunks())
    assert b"".join(pieces) == bytes(range(start, start + length))
    assert [len(piece) for piece in pieces[:-1]] == [chunk] * (len(pieces) - 1)
    assert len(pieces) == -(-length // chunk)
