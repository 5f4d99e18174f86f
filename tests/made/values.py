"""Small tables: dtypes, sizes as people and as PyTorch write them, layouts, names of origins and operators, limits."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from tests.made.saying import Kind, digest, line, refusal, said
from tmmu_core import cbor, limits
from tmmu_core.cbor import Coded, Encoded, H, NotCanonical, Table, Texts, cbor_canonical, cbor_chunks, encoded
from tmmu_core.errors import CONTRACT_ERRORS, MissingExtra, StoreFault, TmmuError, UnreadableInput, spelled_out
from tmmu_core.graph import dtypes, operators, origin
from tmmu_core.graph.arenas import as_given, read_arenas
from tmmu_core.graph.assumed import assumed_at, dims_text, in_words, measured, reach, shapes_said
from tmmu_core.graph.importers import pt2_operators
from tmmu_core.graph.importers.layouts import Lies, as_view
from tmmu_core.graph.importers.onnx_names import unique_ids
from tmmu_core.graph.importers.pt2_sizes import Formula, Hint, Size, SizeUnknown, hanging_on_data, number, symbol_in
from tmmu_core.graph.model import Arena, Dim, Graph, Node, Tensor
from tmmu_core.graph.quantities import parse_bytes

MOST = 2**64 - 1


def _one_by_one(inputs: tuple[Any, ...], ask: Callable[[Any], Any]) -> Kind:
    """A kind of the inputs as they stand here: each with its answer beside it."""

    def say(_: Random, k: int) -> str:
        given = repr(inputs[k])
        return f"{given if len(given) < 60 else given[:57] + '…'} → {said(lambda: ask(inputs[k]))}"

    return Kind(len(inputs), say)


# -- dtypes and sizes -------------------------------------------------------------------------------------------------

SPELLINGS = (
    *(*dtypes.BITS, *dtypes.ALIASES),
    *(
        "torch.float32",
        "np.bool_",
        "jnp.bfloat16",
        " F32 ",
        "tf.DT.half",
        "Float",
        "",
        ".",
        "float33",
        "torch.",
        "INT4",
    ),
)
SHAPES: tuple[tuple[str, tuple[int, ...]], ...] = (
    *(("float32", ()), ("int4", (3,)), ("int4", (4,)), ("int1", (9,)), ("bool", (0, 3)), ("uint8", (MOST,))),
    *(("uint8", (MOST, 2)), ("uint8", (2, 1 << 63)), ("int2", (1 << 63, 8)), ("int2", (1 << 63, 7)), ("int8", (-1,))),
    *(("int8", (3, -2)), ("complex128", (2, 3)), ("float6_e2m3fn", (4,)), ("float6_e2m3fn", (5,)), ("q", (1,))),
)


def _spelling(text: str) -> Any:
    dtypes.canonical.cache_clear()
    name = dtypes.normalise(text)
    return f"{name} {dtypes.bits(text)} bits, {dtypes.itemsize(text)} B{', floating' * dtypes.is_floating(text)}"


QUANTITIES = (
    *(
        "",
        "  ",
        "0",
        "64k",
        "1.5 MiB",
        "0x1000",
        "0X1f",
        "1,048,576",
        "1_024",
        "16MB",
        "1GiB",
        "2 t",
        "3p",
        "4eib",
        "b",
        "k",
    ),
    *(
        "1.",
        ".5k",
        "1.5",
        "1.0009k",
        "-1",
        "1k1",
        "1kk",
        "1 bb",
        "kib",
        "1.5.5k",
        "x",
        "0x",
        "0xg",
        "９",
        "1" * 64,
        "1" * 65,
    ),
    *("10b", "1i", "1 ib", "x" * 90, "1.99999999999999999999k"),
)

# -- sizes of exported programs ---------------------------------------------------------------------------------------

SYMBOLS = {"s0": 7, "s77": 3, "u0": 0, "big": 2**63 - 1}
FORMULAS = (
    *(
        "s0",
        "8*s77",
        "s0 + 1",
        "s0 - s77 - 1",
        "-s0",
        "- - s0",
        "2**3**1",
        "s0**2",
        "2**-1",
        "2**s0",
        "0**-1",
        "s0**(1/2)",
    ),
    *(
        "s0 // 2",
        "s0 % 4",
        "s0 / 2",
        "s0 / 7",
        "s0//0",
        "s0%0",
        "s0/0",
        "u0*5",
        "(s0",
        "s0)",
        "s0 s77",
        "",
        "  ",
        "s0 +",
        "* s0",
    ),
    *(
        "Mul(Integer(8), Symbol('s77', positive=True, integer=True))",
        "Symbol('s0')",
        "Symbol('s0'",
        "Symbol('q')",
        "Symbol(s0)",
    ),
    *(
        "Add(s0, s77, 1)",
        "Mul(2, s0, Rational(1, 2))",
        "Pow(s0, 2)",
        "Max(s0, s77)",
        "Min(s0, s77, 5)",
        "Abs(-s0)",
        "Max(s0)",
    ),
    *("floor(s0/2)", "ceiling(s0/2)", "FloorToInt(-s0/2)", "CeilToInt(-s0/2)", "TruncToInt(-s0/2)", "TruncToInt(s0/2)"),
    *("FloorDiv(s0, 2)", "CleanDiv(s0, 2)", "CeilDiv(s0, 2)", "CeilDiv(-s0, 2)", "Mod(s0, 4)", "PythonMod(-s0, 4)"),
    *(
        "IntTrueDiv(s0, 7)",
        "ToFloat(s0)",
        "Identity(s0)",
        "Sin(s0)",
        "FloorDiv(s0)",
        "FloorDiv(s0, 0)",
        "Mod(1, 2, 3)",
        "Max()",
    ),
    *(
        "q",
        "s0.a",
        "s0[1]",
        "'s0'",
        "9" * 18,
        "9" * 19,
        "9223372036854775807",
        "9223372036854775808",
        "9" * 45,
        "big + 1",
    ),
    *(
        "big - 1 + 1",
        "big * 2 / 2",
        "Mul(big, 2)",
        "Mul(big, Rational(1, 2), 2)",
        "1/big/2",
        "-1 - big",
        "0 - big + big",
    ),
    *(
        "(" * 39 + "s0" + ")" * 39,
        "(" * 40 + "s0" + ")" * 40,
        "s0" + " " * 1998,
        "s0" + " " * 1999,
        "2**64",
        "2**65",
        "1**64",
    ),
    *(
        "Pow(1, 65)",
        "Pow(2, -64) * Pow(2, 62) * 4",
        "s0 * -1 + 8",
        "2 ** -2 * 4",
        "s0,s77",
        "Add(s0 s77)",
        "=",
        "s0=1",
        "é",
    ),
    *(
        "Max(" + "s0, " * 30 + "1)",
        "s0\n+1",
        "1 --1",
        "+1",
        "7 % 4 * 2",
        "7 - 4 + 2",
        "2 * 3 ** 2",
        "-2 ** 2",
        "Integer(5)",
    ),
    *(
        "(1)+" * 5 + "(" * 40 + "s0" + ")" * 40,
        "s0*u0",
        "Symbol('s0',)",
        "1/big*big",
        "Pow(u0, -1)",
        "Pow(u0, 0)",
        "Pow(u0, 1)",
    ),
    *("Mul(Rational(1, big), Rational(1, 2), 2)", "Mul(Rational(1, big), big)", "q" * 60, "q" * 61, "1" * 300),
)
SIZES = (
    *(
        Size(3),
        Size(0),
        Size(-1),
        Size(2**63 - 1),
        Size(2**63),
        Size(),
        Size(None, Formula("s0", Hint(9))),
        Size(10**70),
    ),
    *(
        Size(None, Formula("s0", Hint())),
        Size(None, Formula("s0")),
        Size(None, Formula("q", Hint(4))),
        Size(4, Formula("s0")),
    ),
    *(
        Size(None, Formula("Symbol('s5', positive=True)", Hint(4))),
        Size(None, Formula("u3 + u12*s0")),
        Size(None, Formula("u0")),
    ),
    *(
        Size(None, Formula("xu3")),
        Size(None, Formula("u3", Hint(1))),
        Size(None, Formula("u3", Hint())),
        Size(None, Formula("-1")),
    ),
    *(
        Size(None, Formula("Symbol('s5', x='a')", Hint(4))),
        Size(None, Formula("s5 ", Hint(4))),
        Size(None, Formula("5", Hint(4))),
    ),
)


def _sized(size: Size) -> Any:
    found: list[Any] = []
    for elsewhere in (False, True):
        try:
            found.append(number(size, SYMBOLS, elsewhere))
        except SizeUnknown as error:
            found.append(str(error))
    return [*found, symbol_in(size), hanging_on_data(size)]


# -- layouts ----------------------------------------------------------------------------------------------------------


def _layout(random: Random, _: int) -> str:
    """A tensor in a storage: contiguous, turned, cut, stretched, or strides at random."""
    shape = tuple(
        random.choice((1, 1, 2, 3, 4, 0 if random.randrange(4) == 0 else 2)) for _ in range(random.randrange(4))
    )
    strides: list[int] = []
    for dim in reversed(shape):
        strides.insert(0, strides[0] * max(1, shape[len(shape) - len(strides)]) if strides else 1)
        del dim
    how = random.randrange(5)
    if how == 1:
        order = random.sample(range(len(shape)), len(shape))
        shape, strides = tuple(shape[k] for k in order), [strides[k] for k in order]
    elif how == 2:
        strides = [stride * random.choice((1, 2)) for stride in strides]
    elif how == 3 and shape:
        strides[random.randrange(len(shape))] = 0
    elif how == 4 and random.randrange(2):
        strides = [1] * len(shape)
    elif how == 4:
        strides = [random.randrange(5) for _ in shape]
    lies = Lies(shape, tuple(strides), random.randrange(4), random.choice((1, 2, 4)))
    count = lies.own // lies.itemsize
    others = [
        (count,),
        (1, count, 1),
        tuple(reversed(shape)),
        (*shape, 1),
        (count // 2, 2),
        (2, count // 2),
        shape[:-1],
    ]
    others += [tuple(dim for dim in shape if dim != 1), (count, 2)]
    view = as_view(Tensor("t", shape, "float32", "buffer"), lies, "base")
    facts = "".join(letter for letter, is_so in zip("rc", (lies.repeats, lies.contiguous), strict=True) if is_so)
    viewable = "".join("01"[lies.viewable_as(other)] for other in others)
    end = f"{view.shape} {view.dtype} {view.view}"
    return line(
        f"{shape} {lies.strides}+{lies.offset} × {lies.itemsize}: {lies.own} {lies.covered} {facts} {viewable} {end}"
    )


# -- names ------------------------------------------------------------------------------------------------------------

OPERATORS = (
    *(
        "aten.rand.default",
        "RAND",
        "aten::rand",
        "prims.rand",
        "rand",
        "Dropout",
        "dropout",
        "add",
        "",
        "..",
        "a.b",
        "aten",
    ),
    *(
        "_c10d_functional.all_reduce.default",
        "c10d_functional::wait_tensor",
        "rngprims.philox_rand",
        "infeed",
        "print",
        "aten.aten",
    ),
    *(
        "Relu",
        "MaxPool",
        "Conv",
        "reduce_max",
        "ReduceMax",
        "SOFTMAX",
        "exp",
        "all-reduce",
        "RngBitGenerator",
        "rng",
        "send.done",
    ),
)
TARGETS = (
    *("torch.ops.aten.add.Tensor", "aten::add.Tensor", "aten.add.Tensor", "torch._ops.aten.relu.default", "aten.relu"),
    *(
        "executorch.exir.dialects.edge._ops.aten.add.Tensor",
        "aten_add_Tensor",
        "aten_relu_default",
        "aten__softmax_default",
    ),
    *(
        "executorch_exir_dialects_edge__ops_aten_sum_dim_IntList",
        "prims_add",
        "dim_order_ops__to_dim_order_copy_default",
    ),
    *(
        "aten_max_dim",
        "aten_mean_dim",
        "aten_index_Tensor_out",
        "aten_clone",
        "torch.ops.higher_order.cond",
        "x",
        "",
        "a.b.c.d",
    ),
    *(
        "quantized.mul",
        "torch.ops.quantized_decomposed.choose.tensor",
        "aten.add_.Tensor",
        "aten.__and__.Scalar",
        "aten::a::b",
    ),
    *(
        "aten.pow.Tensor_Scalar",
        "aten_pow_Tensor_Scalar",
        "aten_to_dtype_layout",
        "aten_arange_start_step",
        "_operator.add",
    ),
)
TRACES = (
    *(
        "",
        'File "a.py", line 3',
        'File "/x/y/z.py", line 12, in f\n  File "q\\r\\s.py", line 7',
        "File a.py, line 3",
        'File "a", line x',
    ),
    *("x" * 5000 + 'File "late.py", line 1', 'File "early.py", line 1' + "x" * 5000),
)
PATHS = (
    *(
        "",
        "a.b",
        "a/b.c",
        "..a..",
        "L['self'].h.0",
        "x" * 4100 + ".y",
        "a;b",
        "k,p.q,C",
        "k,L['self'].p,C",
        "a,b,C;d,e.f,G",
        "a,b",
    ),
    *("a,b,C;d,e", "['', 'h.0', 'linear']", "['linear']", "[]", '["a/b", "c"]', "['a', 'b.c', 'd']", ";;", "k,,C"),
)


def _operator(text: str) -> Any:
    return [
        operators.bare_name(text),
        operators.is_random(text),
        operators.keeps_its_turn(text),
        operators.gradient_needs(text),
    ]


def _target(text: str) -> Any:
    found = pt2_operators.operator(text)
    return [found.space, found.name, found.overload, found.title, found.writes_first]


def _origin(text: str) -> Any:
    metadata = {"nn_module_stack": text, "stack_trace": text}
    saved = origin.saved_origin(metadata)
    found = [origin.path_of(text), origin.source_of(text), origin.stack_path(text), origin.scopes_path(text)]
    return line([saved.module, saved.source, origin.known(saved), *found])


def _called(random: Random, _: int) -> Any:
    nodes = [(k, random.choice(("", "a", "b", "Add_1", "Add_2", "c")), random.choice(("Add", "Mul"))) for k in range(6)]
    return [[name or operator for _, name, operator in nodes], unique_ids(nodes)]


ARENAS: tuple[Any, ...] = (
    *(
        None,
        {},
        {"a": {}},
        {"a": Arena()},
        {"a": {"capacity_bytes": 0}},
        {"a": {"capacity_bytes": -1}},
        {"a": {"page_size": MOST}},
    ),
    *(
        {"a": {"capacity_bytes": MOST + 1}},
        {"a": {"alignment_bytes": 0}},
        {"a": {"alignment_bytes": 1}},
        {"a": {"more": 1}},
    ),
    *({"a": {"alignment_bytes": k}} for k in (2, 3, 6, 96, 1 << 63, 1 << 64, -4, MOST)),
    *({"a": {"page_size": -1}}, {"a": {"page_size": "x"}}, {"a": 4}, {"a": Arena(7, 4, 2), "b": {"page_size": 4}}),
)


def _arenas(config: Any) -> Any:
    return [
        {name: [a.capacity_bytes, a.alignment_bytes, a.page_size] for name, a in read_arenas(config).items()},
        as_given(config),
    ]


ASSUMED = Graph(
    nodes=(Node("n0", params={"shapes": "measured"}), Node("n1", params={"shapes": "symbolic"}), Node("n2")),
    dims={"a": Dim(0, 9), "b": Dim(2, 1 << 25), "c": Dim(5, 7)},
    assumed={"b": 7, "a": 3},
    shapes_from={"x": "measured", "y": "declared", "z": "declared"},
)


def _assumed(point: dict[str, int] | None) -> Any:
    reached = [reach(ASSUMED, dim) for dim in ASSUMED.dims]
    return [
        assumed_at(ASSUMED, point),
        [[dim.min, dim.max] for dim in reached],
        measured(ASSUMED),
        shapes_said(ASSUMED),
    ]


LIMITED: tuple[tuple[str, Any], ...] = (
    *((limit.name, None) for limit in limits.LIMITS),
    *(("values", text) for text in ("", "0", "12", "-1", "1.5", "1e3", "1" * 19, "1" * 20, " 7 ", "é", "٣")),
)


def _limited(given: tuple[str, str | None]) -> Any:
    limit = next(each for each in limits.LIMITS if each.name == given[0])
    said_there = {} if given[1] is None else {limit.variable: given[1]}
    with mock.patch.dict(os.environ, said_there):
        found: list[Any] = [limit.variable, limit.default, limits.ceiling(limit), limits.ceiling(limit, 5)]
        found += [limits.values_of(stored, packed) for stored in (9, 1 << 22, 1 << 25) for packed in (False, True)]
        with limits.raised({limit.name: 3}):
            with limits.raised({"other": 4}):
                found += [limits.ceiling(limit), limits.ceiling(limit, 5), limits.values_of(9, True)]
            found += [str(limits.past(limit, "it", "file")), str(limits.past(limit, "it", allowed=0)).split(".")[0]]
        return line([*found, limits.ceiling(limit)])


def _made_errors() -> list[TmmuError]:
    return [
        TmmuError("it"),
        UnreadableInput("it"),
        UnreadableInput("it", source="file", place="byte 3", tried=(("json", "no"), ("cbor", "no\udcff")), hint="Do."),
        MissingExtra("it", hint="pip"),
        StoreFault("it"),
        StoreFault("it", store="sqlite://", hint="Do."),
        *(kind("it") for kind in CONTRACT_ERRORS),
        *(kind("it\udcff", t=3, operator="Op", hint="Do.", b=1, a="\udcff") for kind in CONTRACT_ERRORS[:2]),
    ]


def _errors(_: Random, k: int) -> str:
    error = _made_errors()[k]
    first = refusal(error)
    if hasattr(error, "fill"):
        error.fill(replay_token="one", rank=2, arena="x", a="later")
        error.fill(replay_token="two", arena="y")
        error.fill(rank=0)
    return line([str(error), first, refusal(error), spelled_out([{"\udcff": ["\udcff", 1]}])])


# -- canonical bytes --------------------------------------------------------------------------------------------------

EDGES = tuple(sorted({edge + step for edge in (0, 24, 256, 1024, 1 << 16, 1 << 32, 1 << 64) for step in (-1, 0, 1)}))
ENCODED: tuple[Any, ...] = (
    *EDGES,
    *(-1 - edge for edge in EDGES),
    *(
        None,
        True,
        False,
        0.0,
        -0.0,
        1.5,
        float("nan"),
        float("-inf"),
        "",
        "é",
        "a" * 23,
        "a" * 24,
        "x" * 255,
        "x" * 256,
        "\ud800",
    ),
    *(b"", b"\0" * 24, bytearray(b"ab"), (), [1, "a", [None]], list(range(300)), ["a"] * 256, {}, {"b": 1, "a": 2}),
    *(
        {"aa": 1, "b": {"c": []}},
        {1: 2},
        {"k" * 30: "v"},
        {f"k{i}": i for i in range(40)},
        {f"k{i}": i for i in range(300)},
    ),
    *(
        np.int64(5),
        np.float64(2.5),
        np.bool_(True),
        np.str_("s"),
        {1, 2},
        object,
        1j,
        {"a": [0] * 5000, "b": 1},
        {"a": [0] * 4096},
    ),
    *({"a": (1, "b")}, *({"a": ["b", 1] * k + [None] * odd} for k, odd in ((127, 1), (128, 0), (128, 1)))),
    *({f"k{i}": i for i in range(count)} for count in (32, 33, 255, 256)),
    *(
        *([i % 9 for i in range(count)] for count in (4095, 4096, 4097, 4098, 8195)),
        {"a": [0] * 4097},
        Texts(("\ud800",)),
    ),
    *(
        [[1] * 5000, "x"],
        list(range(5000)),
        [Encoded((b"\x01", b"\x02")), 3],
        [Texts(("a", "é")), Texts(())],
        Texts(("q",) * 3),
    ),
)
TEXTS = (("a", "b"), ("", "x" * 23), ("x" * 24, "y"), ("é", "z" * 300), ("p" * 255, "q" * 256), ("w" * 1023, "v"))


def _canonical(value: Any) -> Any:
    try:
        data = cbor_canonical(value)
    except NotCanonical as error:
        return f"✗ {error}"
    chunks = [len(chunk) for chunk in cbor_chunks(value)]
    return f"{data.hex() if len(data) < 24 else f'{len(data)} B in {len(chunks)} {digest(data)}'} {H(value).hex()[:6]}"


def _table(random: Random, k: int) -> str:
    rows = (0, 1, 2, 5, 40)[k % 5]
    columns: list[Any] = []
    for _ in range(random.choice((1, 2, 3, 25))):
        kind = random.randrange(4)
        if kind == 0:
            columns.append([random.choice(random.choice(TEXTS)) for _ in range(rows)])
        elif kind == 1:
            names = random.choice(TEXTS)
            columns.append(Coded(names, np.array([random.randrange(len(names)) for _ in range(rows)], np.int8)))
        else:
            numbers = [random.choice([e for e in EDGES if 0 <= e < 1 << (63 + kind - 2)]) for _ in range(rows)]
            columns.append(np.array(numbers, np.int64 if kind == 2 else np.uint64))
    table = Table(tuple(columns))
    data = cbor_canonical(table)
    same = cbor_canonical(table.rows()) == data == cbor_canonical(encoded(table))
    how = "as" if same else "NOT as"
    return f"{rows} × {len(columns)}: {len(table)} rows in {len(data)} B, {how} lists; {digest(data)}"


def _long_table(_: Random, k: int) -> str:
    """Rows at the ends of what is woven at a time."""
    rows = cbor.CHUNK_ROWS + (-1, 0, 1)[k]
    table = Table((np.arange(rows), Coded(("a", "bb"), np.arange(rows) % 2), [f"t{i % 7}" for i in range(rows)]))
    texts = Texts(tuple(f"{i:x}" for i in range(rows)))
    chunks = [len(chunk) for chunk in cbor_chunks([table, texts])]
    return f"{rows}: {chunks} {H([table, texts]).hex()[:12]} {H(texts).hex()[:12]}"


KINDS = {
    "a dtype": _one_by_one(SPELLINGS, _spelling),
    "a tensor's bytes": _one_by_one(SHAPES, lambda given: dtypes.tensor_bytes(given[1], given[0])),
    "bytes as people write them": _one_by_one(QUANTITIES, lambda text: _raised(parse_bytes, text)),
    "a formula of sizes": _one_by_one(FORMULAS, lambda text: _sized(Size(None, Formula(text)))[1]),
    "a size": _one_by_one(SIZES, _sized),
    "a layout": Kind(120, _layout),
    "an operator": _one_by_one(OPERATORS, _operator),
    "an operator of PyTorch": _one_by_one(TARGETS, _target),
    "an origin": _one_by_one((*TRACES, *PATHS), _origin),
    "names": Kind(20, _called),
    "arenas": _one_by_one(ARENAS, _arenas),
    "dims": _one_by_one(({}, {"a": 1}, {"b": 20_000, "a": 1}), lambda sizes: [dims_text(sizes), in_words(sizes)]),
    "assumed sizes": _one_by_one((None, {}, {"a": 1}, {"a": 3, "b": 4}, {"c": 1}), _assumed),
    "a limit": _one_by_one(LIMITED, _limited),
    "an error": Kind(len(_made_errors()), _errors),
    "canonical bytes": _one_by_one(ENCODED, _canonical),
    "a table's bytes": Kind(40, _table),
    "a long table's bytes": Kind(3, _long_table),
}


def _raised(ask: Callable[[Any], Any], given: Any) -> Any:
    try:
        return ask(given)
    except ValueError as error:
        return f"✗ {error}"
