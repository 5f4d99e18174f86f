"""Graphs as numbers, as modules, as a tree, as they are walked, and as they are split over ranks."""

from __future__ import annotations

from math import prod
from random import Random
from typing import Any

import msgspec

from tests.build import graph, node, tensor, view
from tests.made.saying import Kind, digest, line, plain, refusal, said
from tmmu_core import limits
from tmmu_core.errors import TmmuError
from tmmu_core.graph import dtypes, native
from tmmu_core.graph.importers.step_checks import check_step, peak_bytes, saved_bytes
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import PHASES, ROLES, Dim, Graph, Node, Origin, Shard, Tensor, View
from tmmu_core.graph.modules import modules_of, modules_told
from tmmu_core.graph.naming import Ids
from tmmu_core.graph.shard_spec import check_world, read_spec
from tmmu_core.graph.sharding import shard
from tmmu_core.graph.shares import local_graph_of
from tmmu_core.graph.tree import tree_of
from tmmu_core.graph.walk import Wish, walk

BLOCKS = ("h.{}", "block{}", "layer_{}", "stage{}.unit{}")
LEAVES = ("mlp", "attn.proj", "conv", "norm", "")


def module_path(random: Random, count: int) -> tuple[str, ...]:
    """A path of the kind that models have: a part before, one block of several, a layer in it."""
    where = random.choice(("", "enc", "enc", "dec.body"))
    block = random.choice(BLOCKS).format(random.randrange(count), random.randrange(2)) if random.randrange(4) else ""
    leaf = random.choice(LEAVES)
    return tuple(".".join(filter(None, (where, block, leaf))).split(".")) if where or block or leaf else ()


def named_graph(random: Random) -> Graph:
    """A graph whose nodes stand in modules, as scopes, by their parameters, by origins, or as nobody says."""
    how = random.choice(("scopes", "parameters", "origins", "plain"))
    count = random.choice((3, 6, 12, 12, 30, 60))
    paths = sorted(module_path(random, random.choice((1, 2, 3))) for _ in range(count))
    if random.randrange(3) == 0:
        random.shuffle(paths)
    tensors = [tensor("x", random.choice((0, 1, 6)), role="input")]
    nodes, origins, made = [], {}, ["x"]
    for k, path in enumerate(paths):
        said_there = how == "scopes" and random.randrange(8)
        name = "/".join((*path, f"op_{k}")) if said_there else f"n{k}"
        reads = random.sample(made[-6:], min(len(made[-6:]), random.choice((1, 1, 1, 2))))
        if how in ("parameters", "origins") and random.randrange(3):
            weight = random.choice(("{}.weight", "{}.bias", "{}/kernel", "{}_w", "{}_0_branch_bn_riv")).format(
                ".".join(path)
            )
            if weight not in {each.id for each in tensors}:
                tensors.append(tensor(weight, 2, role="parameter"))
            reads.append(weight)
        if how == "origins" and random.randrange(3):
            origins[name] = Origin(path, f"m.py:{k}" if random.randrange(2) else "")
        phase = "backward" if k > 2 * count // 3 and count in (12, 30) else "forward"
        name += "@grad" if phase == "backward" and random.randrange(3) == 0 else ""
        writes = [f"{name}:{i}" for i in range(random.choice((1, 1, 1, 2)))]
        tensors += [tensor(each, random.randrange(1, 9)) for each in writes]
        nodes.append(node(name, " ".join(reads), " ".join(writes), phase=phase))
        made += writes
        if random.randrange(7) == 0:
            seen = random.choice((writes[0], writes[0], "x", made[-1]))
            tensors.append(view(f"v{k}", seen, 0))
            made.append(f"v{k}")
        elif random.randrange(12) == 0 and len(writes) > 1:
            tensors[-1] = view(writes[1], writes[0], 1)
    if random.randrange(2):
        random.shuffle(tensors)
    return graph(tensors, nodes, "x", made[-1] if made[-1][0] != "v" else made[-2], origins=origins)


def order_of(graph_: Graph, random: Random) -> list[int]:
    """The nodes as they stand, backward steps that are no nodes of the graph between them."""
    order = list(range(len(graph_.nodes)))
    return [*order, -1] if random.randrange(4) == 0 else order


def _modules(random: Random, _: int) -> str:
    found_in = named_graph(random)
    index = index_graph(found_in)
    found = modules_of(index, order_of(found_in, random))
    layers = len(set(found.layers))
    parts = (found.paths, found.of_node, found.of_tensor, found.layers, found.repeated)
    repeated = ", ".join(f"{times} × {name}" for name, times in found.repeated[:3])
    how = found.known_by or "nothing"
    return (
        f"{len(found_in.nodes)} nodes by {how}: {len(found.paths)} paths, {layers} layers; {repeated} {digest(parts)}"
    )


def _paths_given(random: Random, _: int) -> Any:
    found = modules_told([module_path(random, 3) for _ in range(random.randrange(8))])
    return [found.paths, found.of_node, found.layers, found.repeated, found.known_by]


def _tree(random: Random, _: int) -> str:
    found_in = named_graph(random)
    index, order = index_graph(found_in), order_of(found_in, random)
    tree = tree_of(index, modules_of(index, order), order)
    levels = range(len(tree.paths))
    labels = [tree.label(level) for level in levels]
    opened = [tree.opened(most) for most in (1, 4, 7, 12, 30)]
    above = [tree.above(k) for k in range(len(found_in.nodes))]
    rest = (
        tree.paths,
        tree.parent,
        tree.members,
        tree.blocks,
        tree.of_node,
        tree.number,
        opened,
        above,
        tree.stretches,
    )
    return (
        f"{len(labels)} levels: {' '.join(labels[1:9])}; open {[len(each) for each in opened]} {digest((labels, rest))}"
    )


WIDE = (40, 41, 64, 80, 95, 1024, 1025)


def _wide(_: Random, k: int) -> str:
    """Too many nodes, or too many levels, beside one another."""
    count = WIDE[k // 2]
    tensors = [tensor("x", role="input")]
    nodes = []
    for i in range(count):
        name = f"m{i // 2}q/op_{i}" if k % 2 else f"a/op_{i}"
        tensors.append(tensor(f"t{i}", i % 3))
        nodes.append(node(name, f"t{i - 1}" if i else "x", f"t{i}"))
    index = index_graph(graph(tensors, nodes, "x", f"t{count - 1}"))
    tree = tree_of(index, modules_of(index, range(count)), range(count))
    labels = [tree.label(level) for level in range(len(tree.paths))]
    middle, last = frozenset([tree.paths[-1]]), frozenset([tree.paths[len(tree.paths) // 2]])
    wishes = (
        *(Wish(), Wish(node=count // 2, radius=3), Wish(tensor=count // 2, radius=50), Wish(tensor=0, radius=90)),
        *(
            Wish(middle, last, node=count // 2, radius=39),
            Wish(last, middle, node=count // 2, radius=40),
            Wish(middle, last),
        ),
        *(Wish(last, node=count - 1, radius=79), Wish(tensor=1, radius=78), Wish(node=0, radius=80)),
    )
    walked = [walk(index, tree, wish) for wish in wishes]
    opened = [tree.opened(most) for most in (1, 40, 64)]
    rest = (labels, tree.parent, tree.members, tree.of_node, tree.blocks, opened, [plain(each) for each in walked])
    seen = [len(each.collapsed.vertices) for each in walked]
    levels = f"{len(labels)} levels, {len(tree.stretches)} stretches; {' '.join(labels[1:4])}"
    return f"{count}: {levels}; {seen} {digest(rest)}"


def _too_many(_: Random, k: int) -> str:
    """As many readers of one tensor as are drawn at most, and one more; opened by hand, and near to the middle."""
    count = 2999 + k
    tensors = [tensor("x", role="input"), *(tensor(f"t{i}") for i in range(count))]
    nodes = [node(f"a/op_{i}", "t0" if i else "x", f"t{i}") for i in range(count)]
    index = index_graph(graph(tensors, nodes, "x", "t1"))
    tree = tree_of(index, modules_of(index, range(count)), range(count))
    everything = frozenset(tree.paths)
    wishes = (
        Wish(everything),
        Wish(everything, node=0, radius=1),
        Wish(everything, node=7, radius=2),
        Wish(node=7, radius=2),
    )
    walked = [walk(index, tree, wish) for wish in wishes]
    seen = [f"{len(each.collapsed.vertices)} at {each.radius}, {each.too_many} too many" for each in walked]
    return (
        f"{count}: {'; '.join(seen)} {digest([[each.opened, each.by_level, each.collapsed.middle] for each in walked])}"
    )


def _walk(random: Random, _: int) -> str:
    found_in = named_graph(random)
    index, order = index_graph(found_in), order_of(found_in, random)
    tree = tree_of(index, modules_of(index, order), order)

    def some(most: int) -> frozenset[Any]:
        return frozenset(random.sample(tree.paths, min(len(tree.paths), random.randrange(most))))

    parts, seen = [], []
    for _ in range(6):
        tensor_, node_ = random.randrange(-1, len(index.tensor_ids)), random.randrange(-1, len(index.node_ids))
        tensor_ = random.choice((tensor_, 0, *(k for k, base in enumerate(index.base) if base >= 0)))
        radius = random.choice((None, 0, 1, 2, 4))
        found = walk(
            index, tree, Wish(some(9), some(3), random.choice((tensor_, -1)), random.choice((node_, -1)), radius)
        )
        shown = found.collapsed
        carried = [shown.carrying(t) for t in range(len(index.tensor_ids))]
        totals = shown.total(index.out_ptr[1:] - index.out_ptr[:-1])
        parts.append((found, carried, totals))
        seen.append(f"{len(shown.vertices)}v{len(shown.edges)}e{sum(vertex.hidden for vertex in shown.vertices)}h")
    return f"{' '.join(seen)} {digest(parts)}"


def odd_graph(random: Random, wrong: int = -1) -> Graph:
    """A graph with all that tensors and nodes may say; with the thing numbered ``wrong`` amiss."""
    dims = {"n": Dim(random.randrange(2), 4), "m": Dim(2, 2)} if random.randrange(2) else {}
    sizes: list[int | str] = [0, 1, 2, 3, 4, 8, *dims]
    tensors: list[Tensor] = []
    for i in range(random.choice((2, 5, 9, 14, 24))):
        shape = tuple(random.choice(sizes) for _ in range(random.randrange(4)))
        role = random.choice((*ROLES, "activation", "activation"))
        rest: dict[str, Any] = {}
        if random.randrange(4) == 0:
            rest["alignment"] = random.choice((1, 64, 1 << 63))
        if random.randrange(6) == 0:
            rest |= random.choice(
                ({"arena": "fast"}, {"alias_group_id": "g"}, {"remat": True}, {"saved_for_backward": True})
            )
        if shape and random.randrange(5) == 0:
            rest["shard"] = Shard(random.randrange(len(shape)), "tp")
        if tensors and random.randrange(5) == 0:
            rest["must_not_alias"] = (random.choice(tensors).id,)
        dtype = random.choice(("float32", "float32", "int4", "uint8", "bool", "f16"))
        tensors.append(Tensor(f"t{i}", shape, dtype, role, **rest))  # type: ignore[arg-type]
    base = random.choice(tensors)
    views = [
        Tensor("v0", base.shape, base.dtype, view=View(base.id)),
        Tensor("v1", (2,), "uint8", view=View("whole", random.randrange(7), 2)),
        Tensor("v2", (4, 3), "int16", view=View("whole", 2 * random.randrange(2), 6, (0, 2))),
        Tensor("v3", (1,), "uint8", view=View("v1", 1)),
    ]
    tensors += [Tensor("whole", (8,), "uint8", "input"), *random.sample(views, random.randrange(5))]
    if any(each.id == "v3" for each in tensors) and not any(each.id == "v1" for each in tensors):
        tensors = [each for each in tensors if each.id != "v3"]
    plain_ = [each.id for each in tensors if each.role == "activation" and each.view is None]
    random.shuffle(plain_)
    views = [each.id for each in tensors if each.view is not None]
    there = [each.id for each in tensors if each.id not in plain_]
    inputs = [name for name in there if not next(t for t in tensors if t.id == name).persistent and name not in views]
    nodes, k = [], 0
    while plain_:
        width = random.randrange(1, 3)
        made, plain_ = plain_[:width], plain_[width:]
        reads = tuple(random.sample(there, min(len(there), random.randrange(4))))
        pairs = ((len(reads) - 1, len(made) - 1),) if reads and random.randrange(4) == 0 else ()
        how = random.choice((None, "any", "none", ((len(reads) - 1, 0), (0, len(made) - 1)) if reads else "none"))
        phase = random.choice(PHASES) if random.randrange(4) == 0 else "forward"
        edges = ((0, 0),) if reads and random.randrange(4) == 0 else ()
        nodes.append(Node(f"n{k}", "OP", reads, tuple(made), phase, how, pairs, {}, edges))
        there, k = [*there, *made], k + 1
    known = {each.id for each in tensors}
    tensors = [each for each in tensors if each.view is None or each.view.base_tensor_uid in known]
    tensors = [
        msgspec.structs.replace(t, must_not_alias=tuple(n for n in t.must_not_alias if n in known)) for t in tensors
    ]
    points = tuple(each.node_id for each in nodes[:1]) if random.randrange(3) == 0 else ()
    outputs = tuple(random.sample([name for name in there if name not in inputs] or inputs, 1))
    whole = Graph(tuple(tensors), tuple(nodes), tuple(inputs), outputs, dims=dims, safepoints=points)
    return _broken(whole, wrong, random) if wrong >= 0 else whole


def _broken(whole: Graph, wrong: int, random: Random) -> Graph:
    """The graph with the thing numbered ``wrong`` amiss."""
    tensors, nodes = list(whole.tensors), list(whole.nodes)
    i = random.randrange(len(tensors)) if random.randrange(3) else 0
    k = random.randrange(len(nodes)) if nodes else -1
    of_tensor: list[dict[str, Any]] = [
        *({"role": "friend"}, {"dtype": "float33"}, {"shape": (-1, 2)}, {"shape": (1 << 62, 8)}, {"shape": ("q",)}),
        *(
            {"alignment": 0},
            {"alignment": 3},
            {"alignment": 1 << 64},
            {"alignment": 1 << 63},
            {"must_not_alias": ("q",)},
        ),
        *({"must_not_alias": (tensors[i].id,)}, {"shard": Shard(3, "tp")}, {"shard": Shard(-1, "tp")}),
        *({"shape": (), "shard": Shard(0, "tp")}, {"view": View("q")}, {"view": View(tensors[i].id)}),
        *({"view": View("whole", -1)}, {"view": View("whole", 8)}, {"view": View("whole", 0, 1 << 40)}),
        *(
            {"shape": (2,), "dtype": "int16", "view": View("whole", 1)},
            {"shape": (2,), "view": View("whole", 0, 4, (1,))},
        ),
        *(
            {"shape": (2,), "view": View("whole", 0, 4, (0,))},
            {"shape": (2,), "dtype": "int8", "view": View("whole", 7)},
        ),
        *({"id": tensors[0].id}, {"shape": (2,), "dtype": "int8", "view": View("whole", 6)}),
        *({"shape": (2,), "view": View("whole", 0, 16, (0,))}, {"shape": (2,), "view": View("whole", 0, -1, (0,))}),
        *({"shape": (1,), "dtype": "int8", "view": View("whole", -1)}, {"view": View(tensors[-1].id)}),
    ]
    wide, high = (len(nodes[k].inputs), len(nodes[k].outputs)) if nodes else (0, 0)
    of_node: list[dict[str, Any]] = [
        *({"phase": "sideways"}, {"inputs": ("q",)}, {"outputs": ("q",)}, {"outputs": (tensors[0].id, tensors[0].id)}),
        *({"inplace": "maybe"}, {"inplace": ((0, 9),)}, {"in_place_write": ((9, 0),)}, {"grad_edges": ((-1, 0),)}),
        *({"node_id": "n0"}, {"outputs": ("whole",)}, {"inplace": ((1 << 70, 0),)}),
        *({"inplace": ((wide, 0),)}, {"inplace": ((0, high),)}, {"in_place_write": ((0, -(1 << 70)),)}),
    ]
    if wrong < len(of_tensor):
        tensors[i] = msgspec.structs.replace(tensors[i], **of_tensor[wrong])
        if random.randrange(4) == 0:  # two that look into one another
            tensors[-1] = msgspec.structs.replace(tensors[-1], shape=(2,), dtype="int8", view=View(tensors[0].id))
            tensors[0] = msgspec.structs.replace(tensors[0], shape=(2,), dtype="int8", view=View(tensors[-1].id))
    elif wrong < len(of_tensor) + len(of_node) and k >= 0:
        nodes[k] = msgspec.structs.replace(nodes[k], **of_node[wrong - len(of_tensor)])
    of_graph: list[dict[str, Any]] = [
        *({"inputs": ()}, {"inputs": (*whole.inputs, "q")}, {"outputs": ("whole", "whole")}, {"safepoints": ("q",)}),
        *({"dims": {"n": Dim(3, 2)}}, {"assumed": {"q": 1}}),
    ]
    rest = of_graph[wrong - len(of_tensor) - len(of_node)] if wrong >= len(of_tensor) + len(of_node) else {}
    return msgspec.structs.replace(whole, tensors=tuple(tensors), nodes=tuple(nodes), **rest)


WRONG = 49
"""Things that :func:`_broken` knows."""


def _amiss(random: Random, k: int) -> str:
    return _numbers(odd_graph(random, k % WRONG), random)


def _indexed(random: Random, k: int) -> str:
    return _numbers(odd_graph(random) if k else Graph(), random)


def _numbers(whole: Graph, random: Random) -> str:
    point = {"n": random.randrange(6)} if whole.dims and random.randrange(2) else None
    try:
        index = index_graph(whole, point)
    except TmmuError as error:
        return line(refusal(error))
    columns = [getattr(index, name) for name in index.__dataclass_fields__ if name != "graph"]
    readers = [index.readers_of(t) for t in range(len(index.tensor_ids))]
    reads = [(index.inputs_of(k), index.outputs_of(k)) for k in range(len(index.node_ids))]
    ranks = (index.id_rank, index.tensor_of, index.node_of)
    counts = f"{len(index.tensor_ids)} tensors, {len(index.node_ids)} nodes, {int(index.nbytes.sum())} B"
    peaks = ""
    if not whole.dims:
        check_step(whole)
        peaks = f", at most {peak_bytes(whole)} and {saved_bytes(whole)} saved"
    return f"{counts}{peaks} {digest((columns, readers, reads, ranks))}"


IDS: tuple[tuple[str, int, str], ...] = tuple(
    (shape, count, asked)
    for shape in (
        *("t{i}", "t{i:05}", "{r}", "layer.{i}.weight.of.a.block", "{i:07}", "{i:08}", "{i:09}", "{i:064}", "{i:065}"),
        *("{s:07}", "t{d:05}", "{r:012}", "{r:020}", "é{i}", "t{h}", "{r}/with/a/long/tail/{r}", "\0{i}", "{i}\0"),
    )
    for count, asked in ((0, "some"), (1, "some"), (4095, "some"), (4096, "some"), (4100, "long"))
    if count > 4000 or shape in ("t{i}", "{r}", "t{h}")
)


def _ids(random: Random, k: int) -> str:
    """Many ids: short, long, not ASCII, with a NUL, twice; and others asked of them."""
    shape, count, asked = IDS[k]
    texts = [shape.format(i=i, h=i // 2, s=i ^ 1, d=i - (i == 77), r=(i * 7919) % 100_003) for i in range(count)]
    wanted = [*texts[-3:], *texts[:2], "", "t", "~", "tt4", "t1", "0", *(text[:-1] for text in texts[-3:])]
    strange = ["é", "layer.1.weight.of.a.blocks", "\0", "t1"]
    if asked == "long":
        strange = ["x" * 64, "x" * 65, texts[0] + "\0"]
    ids = Ids(tuple(texts))
    if random.randrange(2):
        _ = ids.ascending
    distinct = ids.distinct
    table = ids._table
    wide = "a dictionary" if table is None else f"{table.words.shape[1]} words"
    numbers = [ids.numbers_of(names) for names in (wanted, strange, [*wanted, *strange], [])] if distinct else []
    first = (ids.by_bytes, ids.rank)
    ids.settle()
    later = ids.numbers_of(texts[:3]) if distinct else []
    how = f"{'ascending' if ids.ascending else 'mixed'}, {'distinct' if distinct else 'some twice'}"
    return f"{count} × {shape!r} by {wide}: {how}; {digest((numbers, first, later, ids.number))}"


def split_graph(random: Random) -> Graph:
    """A graph with tensors of several axes, followers of others, and views that may follow or not."""
    sizes = (1, 2, 3, 4, 5, 6, 6, 8, 12)
    tensors: list[Tensor] = []
    for i in range(random.randrange(1, 5)):
        shape = tuple(random.choice(sizes) for _ in range(random.choice((0, 1, 2, 2, 3))))
        dtype = random.choice(("float32", "float32", "int8", "int4"))
        role = random.choice((*ROLES, "activation", "activation", "activation"))
        own = None
        if shape and random.randrange(6) == 0:
            own = Shard(random.randrange(len(shape) + (random.randrange(6) == 0)), random.choice(("dp", "dp", "tp")))
        tensors.append(Tensor(f"t{i}", shape, dtype, role, shard=own))
        if random.randrange(3) == 0:
            other = shape if random.randrange(4) else (*shape, 2)
            tensors.append(Tensor(f"t{i}{random.choice(('@grad', '@remat'))}", other, dtype, "gradient"))
        tensors += _views_of(tensors[-1], i, random)
    if random.randrange(3) == 0:
        random.shuffle(tensors)
    if random.randrange(4) == 0:
        return Graph((*tensors, Tensor("d", ("n", 4))), dims={"n": Dim(2, 6)})
    return Graph(tuple(tensors))


def _views_of(base: Tensor, i: int, random: Random) -> list[Tensor]:
    """Views of all of a tensor, in other shapes, of a part of it, of its first row again and again, and of views."""
    shape = tuple(int(size) for size in base.shape)
    count, found = prod(shape), list[Tensor]()
    if not count or dtypes.bits(base.dtype) < 8:
        return found
    width, dtype = dtypes.itemsize(base.dtype), base.dtype
    ways = [(count,), (1, *shape), tuple(reversed(shape)), (count // 2, 2) if count % 2 == 0 else shape]
    if random.randrange(2):
        found.append(Tensor(f"v{i}", random.choice(ways), dtype, view=View(base.id)))
        if random.randrange(2):
            found.append(Tensor(f"w{i}", random.choice(ways), dtype, view=View(f"v{i}")))
        if random.randrange(4) == 0:
            found.append(Tensor(f"b{i}", (count * width,), "uint8", view=View(base.id)))
    if shape and shape[0] > 1 and random.randrange(3) == 0:
        rows, row = shape[0] // 2, count // shape[0] * width
        start = row * random.choice((0, shape[0] - rows, shape[0] - rows))
        found.append(Tensor(f"h{i}", (rows, *shape[1:]), dtype, view=View(base.id, start)))
    if len(shape) > 1 and random.randrange(3) == 0:
        length = count // shape[0] * width
        strides = (0, *([1] * (len(shape) - 1)))
        found.append(
            Tensor(f"e{i}", (random.choice((2, 6)), *shape[1:]), dtype, view=View(base.id, 0, length, strides))
        )
    if random.randrange(9) == 0:
        found.append(Tensor(f"o{i}", (1,), "uint8", view=View(base.id, random.randrange(count))))
    return found


def split_spec(random: Random, graph_: Graph) -> dict[str, Any]:
    """A spec over one to three mesh axes that speaks of some tensors, some patterns and some kinds."""
    axes = random.sample((("dp", 2), ("tp", 3), ("pp", 4), ("one", 1)), random.randrange(1, 4))
    mesh: Any = [{"name": name, "size": size} for name, size in axes]

    def split(axis: int = 3) -> Any:
        what = random.randrange(8)
        one = {"axis": random.randrange(max(1, axis)), "mesh": random.choice(axes)[0]}
        if what == 1 and len(axes) > 1 and axis > 1:
            return [{"axis": k, "mesh": name} for k, (name, _) in enumerate(axes[:2])]
        return None if what == 0 else one

    spec: dict[str, Any] = {"mesh": dict(axes) if random.randrange(4) == 0 else mesh}
    if random.randrange(4):
        kinds = ("activations", "parameters", "gradients", "optimizer_state")
        spec["contracts"] = {kind: split() for kind in kinds if random.randrange(3)}
    if random.randrange(3) == 0:
        chosen = random.choice(graph_.tensors)
        also = random.choice(
            (chosen.id, chosen.id, f"{chosen.id}@grad", "q" if random.randrange(4) == 0 else chosen.id)
        )
        spec["tensors"] = {also: split(len(chosen.shape))}
    if random.randrange(4) == 0:
        rule = split(1)
        spec["rules"] = [
            {"match": random.choice(("t*", "v?", "*@grad", "t[01]"))} | (rule if isinstance(rule, dict) else {})
        ]
    return spec


def _shards(random: Random, _: int) -> str:
    whole = split_graph(random)
    given = split_spec(random, whole)
    try:
        spec = read_spec(given)
        with limits.raised({"shares": random.choice((1 << 12, 1 << 12, 1, 2, 4, 6, 9))}):
            found = shard(whole, spec, {"n": 3} if whole.dims and random.randrange(2) else None)
        ranks = []
        for rank in range(spec.world_size):
            local = local_graph_of(found, rank)
            ranks.append((found.class_of(rank), local.tensors))
    except TmmuError as error:
        return line(refusal(error))
    split = sum(1 for each in found.splits if each)
    classes = len({each[0] for each in ranks})
    rest = (found.splits, found.follows, found.remainders, found.bases_first, found.root, ranks)
    mesh = " × ".join(f"{name} {size}" for name, size in spec.mesh)
    return f"{mesh}: {split} of {len(whole.tensors)} split, {classes} of {len(ranks)} ranks differ {digest(rest)}"


WORLDS = ((None, 0), (6, 0), (6, 5), (6, 6), (6, -1), (5, 0), (7, 0), (0, 0), (None, 5), (None, 6), (None, -1))


def _world(_: Random, k: int) -> str:
    world, rank = WORLDS[k // 2]
    spec = read_spec({"mesh": {"a": 2, "b": 3} if k % 2 else {}})
    return said(lambda: f"{world}, rank {rank}: {check_world(spec, world, rank)}")


SPECS: tuple[Any, ...] = (
    *(
        {},
        {"mesh": []},
        {"mesh": {}},
        {"mesh": {"b": 2, "a": 3}},
        {"mesh": 4},
        {"mesh": {"tp": 0}},
        {"mesh": {"tp": True}},
    ),
    *(
        {"mesh": {"tp": 1}},
        {"mesh": {"tp": 1.0}},
        {"mesh": [{"name": "tp"}]},
        {"mesh": [{"name": 1, "size": 2}]},
        {"mesh": [4]},
    ),
    *(
        {"mesh": [{"name": "a", "size": 2}] * 2},
        {"mesh": {"a": 1 << 10, "b": 1 << 10}},
        {"mesh": {"a": 1 << 10, "b": 1025}},
    ),
    *({"mesh": {"a": 1 << 20, "b": 2}}, {"meshes": {}}, {"rules": {}}, {"rules": [4]}, {"rules": [{"match": 4}]}),
    {"mesh": {"a": 2}, "rules": [{"match": "x", "axis": 0, "mesh": "a"}, {"match": "y", "split": None}]},
    {"mesh": {"a": 2}, "rules": [{"match": "x", "split": [{"axis": 0, "mesh": "a"}]}, {"match": "y"}]},
    {"mesh": {"a": 2}, "rules": [{"match": "x", "split": None, "axis": 0}]},
    *(
        {"mesh": {"a": 2}, "tensors": {"t": each}}
        for each in (None, [], {"axis": 0, "mesh": "a"}, {"axis": True, "mesh": "a"})
    ),
    *(
        {"mesh": {"a": 2}, "tensors": {"t": each}}
        for each in ({"axis": -1, "mesh": "a"}, {"axis": "0", "mesh": "a"}, {"axis": 0, "mesh": "b"}, 4, "a")
    ),
    {"mesh": {"a": 2, "b": 2}, "tensors": {"t": [{"axis": 0, "mesh": "a"}, {"axis": 1, "mesh": "b"}]}},
    {"mesh": {"a": 2, "b": 2}, "tensors": {"t": [{"axis": 0, "mesh": "a"}, {"axis": 0, "mesh": "b"}]}},
    {"mesh": {"a": 2, "b": 2}, "tensors": {"t": [{"axis": 0, "mesh": "a"}, {"axis": 1, "mesh": "a"}]}},
    {"mesh": {"a": 2}, "tensors": {"t": {"axis": 0, "mesh": "a", "more": 1}}},
    *({"tensors": []}, {"contracts": []}, {"contracts": {"weights": None}}, {"contracts": {"parameters": None}}),
    {"tensors": {"t": {"axis": 0, "mesh": "a"}}},
)


def _spec(_: Random, k: int) -> str:
    def ask() -> Any:
        spec = read_spec(SPECS[k])
        return [*plain(spec)[1:], spec.world_size, [spec.place(rank) for rank in range(min(spec.world_size, 4))]]

    return said(ask)


def _native(random: Random, _: int) -> str:
    """What is written of a graph, and what is read of that."""
    whole = odd_graph(random)
    if whole.nodes and random.randrange(3) == 0:
        params = random.choice(
            ({"a": [1.5, {"b": None}]}, {"a": float("nan")}, {"a": [float("inf")]}, {"b": ("x", -0.0)})
        )
        nodes = (msgspec.structs.replace(whole.nodes[0], params=params), *whole.nodes[1:])
        whole = msgspec.structs.replace(whole, nodes=nodes, name="é")
    rest = random.choice(
        ({}, {"sidecar": "w.st"}, {"shapes_from": {"t0": "onnx"}}, {"origins": {"n0": Origin(("a",))}})
    )
    whole = msgspec.structs.replace(whole, **rest)
    how = random.choice((".json", ".cbor", ".json.gz", ".cbor.gz", ".txt", ""))

    def ask() -> str:
        data = native.encode(whole, f"graph{how}")
        again = native.decode(data, "again")
        size = "packed" if how.endswith(".gz") else f"{len(data)} B"
        content = native.encode(whole, f"graph{how.removesuffix('.gz')}")
        return f"{how}: {size} {digest(content)} {digest(again)} {digest(native.normal_form(again))}"

    return said(ask)


KINDS = {
    "a graph as numbers": Kind(160, _indexed),
    "a graph with something amiss": Kind(4 * WRONG, _amiss),
    "many ids": Kind(len(IDS), _ids),
    "modules": Kind(160, _modules),
    "modules told": Kind(12, _paths_given),
    "a tree": Kind(100, _tree),
    "too many beside one another": Kind(2 * len(WIDE), _wide),
    "what is walked": Kind(80, _walk),
    "what is too much to walk": Kind(2, _too_many),
    "a shard spec": Kind(len(SPECS), _spec),
    "shares": Kind(400, _shards),
    "a rank in a world": Kind(2 * len(WORLDS), _world),
    "a native file": Kind(60, _native),
}
