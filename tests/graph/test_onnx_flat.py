"""Bodies laid flat, by eye: each node with its scope, its place and its branches, and what a scope keeps in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.graph.test_onnx import model, op, read, value
from tests.graph.test_onnx_scopes import body, counted
from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.importers.onnx_scopes import SCOPE, Flat, Origin, captured, carried_of, flatten, in_place

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64


def lines(flat: Flat) -> list[str]:
    """``scope#position branches operator(operands) → results {attributes} name``, a line for each node."""
    found = []
    for node, origin in zip(flat.model.graph.node, flat.origins, strict=True):
        said = [f"{a.name}={helper.get_attribute_value(a)}" for a in node.attribute if not a.HasField("t")]
        where = " ".join([f"{origin.scope}#{origin.position}", *origin.inside])
        does = f"{node.op_type}({', '.join(node.input)}) → {', '.join(node.output)}"
        found.append(" ".join([where, does, *(each.replace("b'", "'") for each in said), f"[{node.name}]"]))
    return found


def kept(flat: Flat) -> dict[str, list[int]]:
    """What is said of sizes, in numbers."""
    infos = flat.model.graph.value_info
    return {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in infos}


ENDS = [value("x", [2]), value("c", [], BOOL), value("d", [], BOOL)]


def test_branches_in_branches_are_numbered_and_names_that_are_taken_are_made_longer() -> None:
    deep = body([op("Exp", "h", "h")], [], ["h"])
    inner = op("If", "d", "q", then_branch=deep, else_branch=body([], [], ["x"]))
    then = body([op("Neg", "x", "h", name="n"), inner], [], ["q", "h"])
    other = body([op("Abs", "w", "h"), op("Neg", "h", "h2")], [], ["h", "x"], {"w": np.ones(2, np.float32)})
    nodes = [
        op("Relu", "x", "choice/then/h"),
        op("If", "c", "y z", name="choice", then_branch=then, else_branch=other),
        op("If", "d", "_", then_branch=body([], [], ["y"]), else_branch=body([], [], ["z"])),
    ]
    flat = flatten(model(nodes, ENDS, [value("y", None)]))
    assert lines(flat) == [
        "#0 Relu(x) → choice/then/h []",
        "choice/then#0 0:then Neg(x) → choice/then/h_ [choice/then/n]",
        "choice/then/If_1/then#0 0:then 1:then Exp(choice/then/h_) → choice/then/If_1/then/h []",
        (
            "choice/then/If_1#1 0:then If.close(d, choice/then/If_1/then/h, x) → choice/then/q "
            "captures=0 number=1 [choice/then/If_1/close]"
        ),
        "choice/else#0 0:else Abs(choice/else/w) → choice/else/h []",
        "choice/else#1 0:else Neg(choice/else/h) → choice/else/h2 []",
        (
            "choice#1 If.close(c, choice/then/q, choice/then/h_, choice/else/h, x) → y, z "
            "captures=0 number=0 [choice/close]"
        ),
        "If_2#2 If.close(d, y, z) →  captures=0 number=2 [If_2/close]",
    ]
    assert [weight.name for weight in flat.model.graph.initializer] == ["choice/else/w"]
    assert flat.ids([1, 3, 2]) == ["choice/then/n", "choice/then/If_1/close", "choice/then/If_1/then/Exp_0"]


def looped(inner: onnx.GraphProto, reads: str = "n c a b", writes: str = "y _ p _") -> Flat:
    ends = [value("n", [], INT64), value("c", [], BOOL), *(value(name, [2]) for name in ("a", "b", "far"))]
    flow = op("Loop", reads, writes, name="loop", body=inner)
    nodes = [op("Relu", "far", "near"), flow, op("Neg", "near", "z")]
    return flatten(model(nodes, ends, [value("z", None)], {"w": np.ones(2, np.float32)}))


STATES = [value("i", [], INT64), value("go", [], BOOL), value("s", [2]), value("u", [2])]
TURNED = [
    *(op("Add", "s near", "t"), op("Mul", "t w", "m"), op("Mul", "m k", "q"), op("Not", "go", "on")),
    op("Sub", "far near", "m2"),
]


def turned() -> onnx.GraphProto:
    return body(TURNED, STATES, ["on", "u", "q", "m", "s"], {"k": np.ones(2, np.float32)})


def test_a_loop_opens_with_what_is_carried_and_closes_with_all_that_it_reads() -> None:
    """``u`` is carried on as ``s``, and ``s`` is gathered where nobody wants it: both are copied first."""
    flat = looped(turned())
    assert lines(flat) == [
        "#0 Relu(far) → near []",
        "loop#1 Loop.open(n, c, a, b) → loop/i, loop/go, loop/s, loop/u, loop/p.room,  states=2 [loop/open]",
        "loop#0 Add(loop/s, near) → loop/t []",
        "loop#1 Mul(loop/t, w) → loop/m []",
        "loop#2 Mul(loop/m, loop/k) → loop/q []",
        "loop#3 Not(loop/go) → loop/on []",
        "loop#4 Sub(far, near) → loop/m2 []",
        "loop#1 Identity(loop/u) → loop/u.copy [loop/u.copy]",
        "loop#1 Identity(loop/s) → loop/s.copy [loop/s.copy]",
        (
            "loop#1 Loop.close(n, loop/i, loop/go, loop/s, loop/u, loop/p.room, , loop/on, loop/u.copy, loop/q, "
            "loop/m, loop/s.copy, near, w, loop/k, far) → y, , p,  captures=4 in_place_0='loop/s' "
            "in_place_2='loop/p.room' rooms=2 states=2 [loop/close]"
        ),
        "#2 Neg(near) → z []",
    ]
    closing = flat.model.graph.node[9]
    assert in_place(closing) == [("loop/s", "y"), ("loop/p.room", "p")]
    assert captured(closing) == ["near", "w", "loop/k", "far"]
    assert list(carried_of(closing)) == [("loop/s", "loop/u.copy", "y"), ("loop/u", "loop/q", "")]
    assert captured(flat.model.graph.node[1]) == []


def test_what_is_copied_twice_has_two_names() -> None:
    inner = body(TURNED, STATES, ["on", "u", "u", "u", "q"], {"k": np.ones(2, np.float32)})
    copies = [node.output[0] for node in looped(inner).model.graph.node if node.name.startswith("loop/u.copy")]
    assert copies == ["loop/u.copy", "loop/u.copy_"]


def test_a_model_without_bodies_comes_back_as_it_is() -> None:
    plain = model([op("Relu", "x", "y"), op("Neg", "y", "z")], [value("x", [2])], [])
    flat = flatten(plain)
    assert flat.model is plain
    assert flat.origins == (Origin("", 0), Origin("", 1))
    for kind in ("If", "Loop", "Scan", "SequenceMap"):
        with pytest.raises(UnreadableInput, match="has no body") as caught:
            flatten(model([op("Relu", "x", "y"), op(kind, "x", "z")], [value("x", [2])], []))
        assert caught.value.place == "graph.node[1]"
    assert flatten(model([op("If", "x", "z", domain="own")], [], [])).origins == (Origin("", 0),)
    set_of_scopes = looped(turned()).model.opset_import[-1]
    assert (set_of_scopes.domain, set_of_scopes.version) == (SCOPE, 1)


def test_of_what_a_body_says_of_sizes_its_own_values_in_numbers_are_kept() -> None:
    inner = turned()
    inner.value_info.extend([value("t", [2]), value("m", ["N"]), value("near", [9]), value("s", [9]), value("m2", [0])])
    inner.value_info.extend([value("q", [2, -1]), value("on", None, BOOL)])
    assert kept(looped(inner)) == {"loop/i": [], "loop/go": [], "loop/t": [2], "loop/m2": [0]}
    inner.output[3].CopyFrom(value("m", [4, 0]))
    inner.value_info.add(name="q").type.tensor_type.shape.dim.add(dim_value=3)
    assert kept(looped(inner)) == {"loop/i": [], "loop/go": [], "loop/t": [2], "loop/m2": [0], "loop/m": [4, 0]}


@pytest.mark.parametrize(("reads", "count", "on"), [("n c", "n", "c"), ("n", "n", ""), ("_ c", "", "c"), ("", "", "")])
def test_a_loop_may_say_neither_how_often_nor_how_long(reads: str, count: str, on: str) -> None:
    inner = body([op("Identity", "go", "on"), op("Relu", "near", "r")], STATES[:2], ["on", "r"])
    found = lines(looped(inner, reads, "y"))
    assert found[1] == f"loop#1 Loop.open({count}, {on}) → loop/i, loop/go, loop/y.room states=0 [loop/open]"
    assert found[4] == (
        f"loop#1 Loop.close({count}, loop/i, loop/go, loop/y.room, loop/on, loop/r, near) → y "
        "captures=1 in_place_0='loop/y.room' rooms=1 states=0 [loop/close]"
    )


def test_a_state_without_a_name_has_no_place() -> None:
    inner = body([op("Identity", "go", "on"), op("Relu", "near", "r")], [*STATES[:2], value("", [2])], ["on", "r"])
    closing = looped(inner, "n c a", "y").model.graph.node[4]
    assert in_place(closing) == []
    assert list(closing.input) == ["n", "loop/i", "loop/go", "", "loop/on", "loop/r", "near"]


def scanned(reads: str = "h0 a b", writes: str = "_ y _", **how: Any) -> Flat:
    ends = [value("h", [2]), value("p", [2]), value("q", [2])]
    cell = body([op("Add", "h p", "k"), op("Mul", "q near", "o")], ends, ["k", "h", "o"])
    given = [value("h0", [2]), value("a", [3, 2]), value("b", [3, 2]), value("near", [2])]
    flow = op("Scan", reads, writes, name="scan", body=cell, **({"num_scan_inputs": 2} | how))
    return flatten(model([flow], given, [value("y", None)]), "m.onnx")


@pytest.mark.parametrize(
    ("how", "sliced", "measured"),
    [
        ({}, "axes=[0, 0]", ("axes=[0, 0] axis=0", "")),
        (
            {"scan_input_directions": [0, 0], "scan_output_directions": [0, 0]},
            "axes=[0, 0]",
            ("axes=[0, 0] axis=0", ""),
        ),
        (
            {"scan_input_axes": [1, -1], "scan_input_directions": [0, 1]},
            "axes=[1, -1] directions=[0, 1]",
            ("axes=[0, 0] axis=1", ""),
        ),
        (
            {"scan_output_axes": [-1, 2], "scan_output_directions": [1, 0]},
            "axes=[0, 0]",
            ("axes=[-1, 2] axis=0", "directions=[1, 0] "),
        ),
    ],
)
def test_a_scan_opens_takes_slices_and_closes(how: dict[str, Any], sliced: str, measured: tuple[str, str]) -> None:
    axes, directions = measured
    assert lines(scanned(**how)) == [
        "scan#0 Scan.open(h0) → scan/h, scan/y.room,  states=1 [scan/open]",
        f"scan#0 Scan.next(a, b) → scan/p, scan/q {sliced} [scan/next]",
        "scan#0 Add(scan/h, scan/p) → scan/k []",
        "scan#1 Mul(scan/q, near) → scan/o []",
        "scan#0 Identity(scan/h) → scan/h.copy [scan/h.copy]",
        (
            "scan#0 Scan.close(scan/h, scan/y.room, , scan/k, scan/h.copy, scan/o, a, b, near) → , y,  "
            f"{axes} captures=3 {directions}in_place_1='scan/y.room' measured='a' rooms=2 states=1 [scan/close]"
        ),
    ]


def test_a_scan_that_keeps_nothing_is_not_opened() -> None:
    cell = body([op("Neg", "p", "o")], [value("p", [2])], ["o"])
    flow = op("Scan", "a", "_", name="scan", body=cell, num_scan_inputs=1)
    flat = flatten(model([flow], [value("a", [3, 2])], []))
    assert [node.op_type for node in flat.model.graph.node] == ["Scan.next", "Neg", "Scan.close"]


@pytest.mark.parametrize("name", ["tmmu.scope", "hidden.from.inference"])
@pytest.mark.parametrize("kind", ["Own", "If.close", "Loop.open", "Loop.close", "Scan.next", "Range"])
def test_a_set_of_operators_that_is_kept_for_scopes_and_ranges_is_nobodys(name: str, kind: str) -> None:
    """Such a node was taken for one of a body that is laid flat, and ended in a fault of the program."""
    own = op(kind, "x", "y", domain=name)
    proto = model([op("Neg", "x", "h"), own], [value("x", [2])], [value("y", [2])])
    proto.opset_import.append(helper.make_opsetid(name, 1))
    with pytest.raises(UnreadableInput, match=f'{kind} is of the set "{name}"') as caught:
        read(proto)
    assert caught.value.place == "graph.node[1]"
    inner = body([own], [], ["y"])
    proto.graph.node[1].CopyFrom(op("If", "c", "y", then_branch=inner, else_branch=inner))
    with pytest.raises(UnreadableInput, match=f'{kind} is of the set "{name}"') as caught:
        read(proto)
    assert caught.value.place == "graph.node[1].else_branch.node[0]"


# --- what is refused ---------------------------------------------------------------------------------------------

NOT_AS_MANY = "do not agree in how many values"


@pytest.mark.parametrize(
    "how",
    [
        *({"num_scan_inputs": None}, {"num_scan_inputs": 0}, {"num_scan_inputs": 4}),
        *({"scan_input_axes": [0]}, {"scan_input_axes": [0, 0, 0]}),
        *({"scan_output_axes": [0]}, {"scan_output_axes": [0, 0, 0]}, {"writes": "_ y"}, {"reads": "h0 a"}),
    ],
)
def test_a_scan_says_as_much_of_each_as_there_are(how: dict[str, Any]) -> None:
    with pytest.raises(UnreadableInput, match=NOT_AS_MANY) as caught:
        scanned(**how)
    assert (caught.value.place, caught.value.source) == ("scan", "m.onnx")


def chosen(reads: str, then: onnx.GraphProto | None, other: onnx.GraphProto | None, writes: str = "y") -> Flat:
    bodies = {name: each for name, each in (("then_branch", then), ("else_branch", other)) if each is not None}
    nodes = [op("Relu", "x", "h"), op("If", reads, writes, name="choice", **bodies)]
    return flatten(model(nodes, ENDS, [value("y", None)]), "m.onnx")


ONE, TWO = body([], [], ["x"]), body([], [], ["x", "h"])
TAKES = body([], [value("e", [2])], ["x"])
OWN = body([], [value("w", [2])], ["w"], {"w": np.ones(2, np.float32)})


def test_an_if_reads_its_condition_and_both_its_branches_give_as_much_as_it() -> None:
    for then, other in ((ONE, ONE), (OWN, ONE), (ONE, OWN)):
        assert len(chosen("c", then, other).model.graph.node) == 2
    assert len(chosen("c", TWO, TWO, "y z").model.graph.node) == 2
    amiss: Sequence[Any] = [
        *(("c", ONE, TWO, "y"), ("c", TWO, ONE, "y"), ("c", ONE, ONE, "y z"), ("", ONE, ONE, "y")),
        *(("c", TAKES, ONE, "y"), ("c", ONE, TAKES, "y")),
    ]
    for reads, then, other, writes in amiss:
        with pytest.raises(UnreadableInput, match=NOT_AS_MANY) as caught:
            chosen(reads, then, other, writes)
        assert caught.value.place == "graph.node[1]"
    for bodies in ((ONE, None), (None, ONE), (None, None)):
        with pytest.raises(UnreadableInput, match=r'If \("choice"\) has no body') as caught:
            chosen("c", *bodies)
        assert caught.value.place == "graph.node[1]"


def test_an_operator_without_a_body_is_told_beside_one_that_has_it() -> None:
    whole = op("If", "c", "y", then_branch=ONE, else_branch=ONE)
    with pytest.raises(UnreadableInput, match=r'Loop \("Loop"\) has no body') as caught:
        flatten(model([whole, op("Loop", "n c", "z")], ENDS, []))
    assert caught.value.place == "graph.node[1]"
    own = op("If", "c", "z", domain="own")
    assert lines(flatten(model([whole, own], ENDS, [])))[-1] == "#1 If(c) → z []"
    for amiss in (op("If", "c", "z", domain="own", then_branch=ONE), op("SequenceMap", "c", "z", body=ONE)):
        with pytest.raises(UnreadableInput, match="holds a subgraph, which is not planned"):
            flatten(model([whole, amiss], ENDS, []))
    several = op("Loop", "n c", "z", body=ONE)
    several.attribute.add(name="more", type=onnx.AttributeProto.GRAPHS, graphs=[ONE])
    with pytest.raises(UnreadableInput, match="has no body"):
        flatten(model([several], ENDS, []))


@pytest.mark.parametrize(
    ("states", "results", "writes"),
    [("s", "on s", "y z"), ("s", "on", "y"), ("s", "on s s", "y"), ("s u", "on s u", "y z"), ("", "on", "_")],
)
def test_a_loop_carries_on_as_much_as_it_is_given(states: str, results: str, writes: str) -> None:
    """It is given one state: another number of them in the body, or of results, or fewer results than states."""
    inner = counted([], results.split()[1:], states.split())
    inner.output[0].name = "goon"
    assert len(results.split()) == len(inner.output)
    with pytest.raises(UnreadableInput, match=NOT_AS_MANY) as caught:
        looped(inner, "n c a", writes)
    assert caught.value.place == "loop"


def test_a_loop_gives_out_its_state_at_least() -> None:
    with pytest.raises(UnreadableInput, match=NOT_AS_MANY):
        looped(counted([], [], ["s"]), "n c a", "")


def test_a_scan_is_of_operator_set_9_at_least() -> None:
    cell = body([op("Neg", "p", "o")], [value("p", [2])], ["o"])
    flow = op("Scan", "a", "y", name="scan", body=cell, num_scan_inputs=1)
    for version in (8, 9):
        proto = model([flow], [value("a", [3, 2])], [], opset=version)
        if version == 9:
            assert len(flatten(proto).model.graph.node) == 4
            del proto.opset_import[0]
        with pytest.raises(UnreadableInput, match="is of operator set 8"):
            flatten(proto)
