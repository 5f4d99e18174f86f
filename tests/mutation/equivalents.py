"""Mutants that nothing can tell from the original, each with the reason. A reason that no line fits is out of date."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutation.sites import Site


@dataclass(frozen=True)
class Same:
    """In ``file``, on a line that holds ``line``: ``old`` may become ``new``, for ``why``."""

    file: str
    line: str
    old: str
    new: str
    why: str


_WORKED_OUT = "any negative number is the dimension that numpy works out"
_NOBODY = "nobody is any negative number: only the sign is asked for"
_A_PAGE_MORE = "a page more is mapped, which nobody touches and no handle shows"
_AT_A_TIME = "how much is read or written at a time, of the same bytes"
_SEVENTH = "seven bits at a time: behind 63 comes 70"
_ASKED_ALONE = "notes are only held to their kinds by it: what is not said is not read"
_GUESS = "what is guessed is compared with what is said before it is taken"
_GIVEN_BACK = "memory that is given back sooner or later, and an order that is worked out then or now"
_THREADS = "how many threads the other program takes for it"

_NONE_YET = "only its sign is asked for: none yet"
_MORE_LEAVES = "leaves beyond the last column, which nobody takes"
_BEGUN_WITH = "how much room there is to begin with: it grows"
_ONE_DEVICE = "there is one such device, whatever its number"
_A_WALL = "a wall stands above an edge, and that is at 0 or above"
_FURTHER_BACK = "the look begins further back, at what ends before and is passed over"
_ROOM = "room that nobody uses"
_A_GAP = "a gap that takes a storage has a byte, so that none yet is less than any"

_NONE_OF_IT = "of none at all the most is 0 or 1, and either is within the limit"

_THE_NEXT_TOO = "places are by their start: where one lies too far up, all that follow do"
_A_RING = "a ring of values walked the other way round: each is met again after as many rounds"
_FOR_NOTHING = "what is worked out then is asked for by nobody"

_MADE_ANEW = "what is not handed in is made anew, to the same columns"
_TWO_WAYS = "two ways to the same rows: only which of them is taken"

_ANY_LOOP = "which of the loops lays them, all of which lay them alike: tests/planners/test_orders.py"
_SAID_TWICE = "a node more, beside or below one that says the same: what is taken twice is taken"

SAME: tuple[Same, ...] = (
    Same(
        *("tmmu_core/library/planned.py", "dims=self.made.request.dims or None"),
        *("self.made.request.dims or None", "(None)", "the shapes of the plan's own rows say the point as well"),
    ),
    Same("tmmu_core/planners/exact/rebuild.py", "self.longer = 2", "2", "(3)", "only whether it is 1 is asked"),
    Same(
        *("tmmu_core/planners/kernels.py", "if f < n32 and (wall < 0 or starts[b + f] < wall):"),
        *("starts[b + f] < wall", "(starts[b + f] <= wall)", "of two walls that stand alike either is the wall"),
    ),
    Same("tmmu_core/plan/analysis/waste.py", "leaves = 1", "1", "(2)", _ROOM),
    Same(
        *("tmmu_core/planners/columns.py", "self.odd is None and max(self.fixed, default=-1) < 0", "-1", "(1)"),
        "of no storages at all: whichever way nothing is laid",
    ),
    Same(
        *("tmmu_core/compiled.py", "hexdigest()[:16]", "16", "(17)"),
        "how many digits of a hash tell one machine code from another",
    ),
    Same("tmmu_core/planners/exact/rebuild.py", "work = np.zeros((15, n + 1), dtype=np.int64)", "1", "(2)", _ROOM),
    Same("tmmu_core/sweep/running.py", "self._submitted += 1", "1", "(2)", "numbers of batches that are none's before"),
    Same("tmmu_core/runtime/shadow_scene.py", "np.array(looks, np.int64).reshape(-1, 2)", "1", "(2)", _WORKED_OUT),
    Same(
        *("tmmu_core/runtime/shadow_scene.py", "np.bincount(storage)[storage] > 1"),
        *("np.bincount(storage)[storage] > 1", "(np.bincount(storage)[storage] >= 1)"),
        "one that is alone in its storage has no other to look at",
    ),
    Same(
        *("tmmu_core/fit/offload.py", "if after.valid and not _excess(model, after, over):"),
        *("after.valid and not _excess(model, after, over)", "(not _excess(model, after, over))"),
        "where more stays, all that ran before runs",
    ),
    Same("tmmu_core/fit/order/exact.py", "ways: list[tuple[int, tuple[int, ...]]] = [(-1, ())]", "1", "(2)", _NONE_YET),
    Same("tmmu_core/plan/formats/parquet_child.py", "file.read(use_threads=False)", "False", "(True)", _THREADS),
    Same("tmmu_core/runtime/onnx_run.py", "binding.bind_input", "0", "(1)", _ONE_DEVICE),
    Same("tmmu_core/runtime/onnx_run.py", "binding.bind_output", "0", "(1)", _ONE_DEVICE),
    Same("tmmu_core/planners/greedy.py", "offset = [0] * len(cols)", "0", "(1)", "each storage is given its own"),
    Same("tmmu_core/planners/greedy.py", "if at > top:", "at > top", "(at >= top)", "an empty block takes no storage"),
    Same(
        *("tmmu_core/planners/helia.py", "if offset + size > self.end:"),
        *("offset + size > self.end", "(offset + size >= self.end)", "no byte more is joined to the last free block"),
    ),
    Same("tmmu_core/planners/columns.py", "delta = np.zeros(k + 1, dtype=np.int64)", "1", "(2)", _ROOM),
    Same("tmmu_core/planners/columns.py", "change = [0] * (k + 1)", "1", "(2)", _ROOM),
    Same("tmmu_core/planners/columns.py", "empty = np.zeros(0, dtype=np.int64)", "0", "(1)", _ROOM),
    Same(
        *("tmmu_core/runtime/shadow.py", "taker = np.where(taken[scene.storage]", "0", "(1)"),
        "read only where a place is taken",
    ),
    Same("tmmu_core/runtime/shadow_rules.py", "base = -1 if base_id is None", "1", "(2)", _NONE_YET),
    *(
        Same("tmmu_core/judge/whole.py", line, old, new, "views that are known to end walked along once more")
        for line, old, new in (
            ("while name in base and name not in ends:", "name in base and name not in ends", "(name in base)"),
            ("ends.update(walked)", "ends.update(walked)", "pass"),
        )
    ),
    Same("tmmu_core/runtime/apply.py", "np.arange(plan.steps + 2)", "2", "(3)", _ROOM),
    *(
        Same("tmmu_core/planners/bounds.py", line, old, new, _TWO_WAYS)
        for line, old, new in (
            *(
                ("if len(held) <= np.count_nonzero(nearby):", "len(held) <= np.count_nonzero(nearby)", new)
                for new in ("(len(held) < np.count_nonzero(nearby))", "(not len(held) <= np.count_nonzero(nearby))")
            ),
            *(
                ("if (before != left).any():", *pair)
                for pair in (
                    ("(before != left).any()", "(not (before != left).any())"),
                    ("(before != left).any", "((before != left).all)"),
                    ("before != left", "(before == left)"),
                )
            ),
            ("if not near.any():", "not near.any()", "(near.any())"),
            ("if not near.any():", "not near.any()", "(not not near.any())"),
            ("if not near.any():", "near.any", "(near.all)"),
        )
    ),
    Same("tmmu_core/judge/simulator.py", "gone: list[list[Storage]] = ", "1", "(2)", _ROOM),
    Same(
        *("tmmu_core/judge/simulator.py", "if ended and not (apart and any("),
        "apart and any((tenant.name, storage.name) in apart for tenant in tenants)",
        "(any(((tenant.name, storage.name) in apart for tenant in tenants)))",
        "in nothing nobody is",
    ),
    *(
        Same(f"tmmu_core/{file}", line, "1", "(2)", _NONE_YET)
        for file, line in (
            ("judge/places.py", "base = np.array([-1 if name is None"),
            ("liveness/ranges.py", "last = np.full(len(index.tensor_ids), -1"),
            ("plan/making/problems.py", "handoff = np.where(source >= 0, place[source], -1)"),
            ("plan/making/rows.py", "handoff_from[list(takers)] = -1"),
            ("plan/making/sequence.py", "plan.row_of.get(name, -1) for name in rest.ids"),
            ("plan/making/sparse.py", "end, below = 0, -1"),
            ("plan/model.py", "row = -1 if taken else self.row_of.get(source, -1)"),
            ("plan/model.py", "i, j = plan.row_of.get(source, -1), plan.row_of.get(target, -1)"),
            ("planners/slots.py", "slot = np.full(len(problem), -1"),
            ("planners/slots.py", "taken = heappop(free) if free else -1"),
            ("planners/slots.py", "return -1"),
            ("planners/problem.py", "place = np.full(len(problem) + 1, -1, np.int64)  # the last"),
            ("planners/instances.py", "given.get(row.id, -1) for row in rows"),
            ("runtime/shadow_scene.py", "row_of = np.full(len(said.planned), -1"),
            ("runtime/shadow_scene.py", "taken_from=np.full(len(blocks.head), -1"),
            ("runtime/shadow_scene.py", "consumed=np.full(len(plan), -1"),
            ("runtime/shadow_scene.py", "taken_from = np.full(len(blocks.head), -1"),
            ("runtime/shadow_scene.py", "x, y = index.tensor_of.get(giver, -1), index.tensor_of.get(taker, -1)"),
            ("runtime/shadow_scene.py", "if 0 <= step < len(node_at) else -1"),
            ("runtime/shadow_scene.py", "row = int(row_of[x]) if x >= 0 else -1"),
            ("runtime/shadow.py", 'return "never_written", -1'),
        )
    ),
    *(
        Same(
            "tmmu_core/liveness/analyse.py",
            line,
            old,
            new,
            "no planned tensor is of such an arena, and no other is asked",
        )
        for line in ("number.get(name, -1) for name in of_code", "arena_of = np.full(len(tensors), -1")
        for old, new in (("1", "(2)"), ("-1", "(1)"))
    ),
    Same(
        *("tmmu_core/liveness/analyse.py", "planned[groups.offset[planned] > 0]"),
        *("groups.offset[planned] > 0", "(groups.offset[planned] >= 0)"),
        "byte 0 is on every grid",
    ),
    *(
        Same("tmmu_core/planners/slots.py", "if len(apart) < max(len(free), FEW):", old, new, _TWO_WAYS)
        for old, new in (
            ("len(apart) < max(len(free), FEW)", "(len(apart) <= max(len(free), FEW))"),
            ("len(apart) < max(len(free), FEW)", "(not len(apart) < max(len(free), FEW))"),
            ("max", "(min)"),
        )
    ),
    Same(
        *("tmmu_core/plan/making/rows.py", "if (birth[1:] >= birth[:-1]).all():"),
        *("birth[1:] >= birth[:-1]", "(birth[1:] > birth[:-1])", _TWO_WAYS),
    ),
    Same(
        *("tmmu_core/judge/runs/views.py", "while at not in root and"),
        *("at not in root and (seen := view[at]) is not None", "((seen := view[at]) is not None)"),
        "the rest of a chain walked again, to the same root",
    ),
    Same("tmmu_core/runtime/shadow_scene.py", "consumed = np.full(len(blocks.storage), -1", "1", "(2)", _NONE_YET),
    *(
        Same("tmmu_core/planners/greedy.py", line, old, new, _ANY_LOOP)
        for line, old, new in (
            ("if compiled is None:", "compiled is None", "(compiled is not None)"),
            ("pays = len(cols) * runs", "len(cols) * runs", "(len(cols) // runs)"),
            ("pays = len(cols) * runs", "len(cols) * runs >= COMPILED_FROM", "(len(cols) * runs > COMPILED_FROM)"),
            ("pays = len(cols) * runs", "len(cols) >= LOADED_FROM", "(len(cols) > LOADED_FROM)"),
            ("pays = len(cols) * runs", '"numba" in sys.modules', "('numba' not in sys.modules)"),
            (
                *("pays = len(cols) * runs", 'len(cols) >= LOADED_FROM and "numba" in sys.modules'),
                "('numba' in sys.modules)",
            ),
            (
                *("pays = len(cols) * runs", 'len(cols) >= LOADED_FROM and "numba" in sys.modules'),
                "(len(cols) >= LOADED_FROM)",
            ),
            ("compiled = library() is not None", "library() is not None", "(library() is None)"),
            ("compiled = library() is not None", "pays and compiling.is_there()", "(compiling.is_there())"),
        )
    ),
    *(
        Same("tmmu_core/planners/greedy.py", line, old, new, _SAID_TWICE)
        for line, old, new in (
            ("if lo > one * width", "lo > one * width - self.leaves", "(lo >= one * width - self.leaves)"),
            ("if lo > one * width", "one * width", "(one // width)"),
            (
                *("if lo > one * width", "hi < (one + 1) * width - self.leaves"),
                "(hi <= (one + 1) * width - self.leaves)",
            ),
            ("if lo > one * width", "(one + 1) * width - self.leaves", "((one + 1) * width + self.leaves)"),
            (
                *("if two != one and hi <", "two != one and hi < (two + 1) * width - self.leaves"),
                "(hi < (two + 1) * width - self.leaves)",
            ),
            ("if two != one and hi <", "two != one and hi < (two + 1) * width - self.leaves", "(two != one)"),
            (
                *("if two != one and hi <", "hi < (two + 1) * width - self.leaves"),
                "(hi <= (two + 1) * width - self.leaves)",
            ),
            ("if two != one and hi <", "(two + 1) * width - self.leaves", "((two + 1) * width + self.leaves)"),
            ("if left & 1:", "left & 1", "(left | 1)"),
        )
    ),
    Same("tmmu_core/planners/greedy.py", "self.leaves = 1 << max(k - 1, 0)", "1", "(2)", _ROOM),
    Same("tmmu_core/planners/greedy.py", "self.leaves = 1 << max(k - 1, 0)", "0", "(1)", _ROOM),
    Same("tmmu_core/planners/greedy.py", "self.leaves = 1 << max(k - 1, 0)", "k - 1", "(k + 1)", _ROOM),
    Same(
        *("tmmu_core/planners/greedy.py", "or offset[j] < at) and offset", "offset[j] < at", "(offset[j] <= at)"),
        "where it lies already",
    ),
    *(
        Same("tmmu_core/plan/figures/storages.py", line, line, f"({line.partition(' or ')[2]})", _MADE_ANEW)
        for line in ("storages or storages_of(plan)", "beats or beats_of(plan, s)")
    ),
    *(
        Same("tmmu_core/plan/canonical.py", "if len(slot) > CHUNK_ROWS and int(slot.max())", old, new, _TWO_WAYS)
        for old, new in (
            ("len(slot) > CHUNK_ROWS", "(len(slot) >= CHUNK_ROWS)"),
            ("int(slot.max()) < len(slot)", "(int(slot.max()) <= len(slot))"),
            ("len(slot) > CHUNK_ROWS and int(slot.max()) < len(slot)", "(len(slot) > CHUNK_ROWS)"),
        )
    ),
    Same("tmmu_core/planners/near_kernel.py", "break", "break", "continue", _THE_NEXT_TOO),
    Same("tmmu_core/planners/search.py", "self.steps += 1", "self.steps += 1", "self.steps -= 1", _A_RING),
    Same(
        *(
            "tmmu_core/planners/bounds.py",
            "most = _padded(cols) if coarse and",
            "coarse and cols.odd is None and cols.small",
        ),
        *("(cols.odd is None and cols.small)", _FOR_NOTHING),
    ),
    Same("tmmu_core/liveness/order.py", "at = np.full(len(index.node_ids), -1", "1", "(2)", _NONE_YET),
    Same("tmmu_core/plan/analysis/waste.py", "np.full(2 * leaves, -1, np.int64), np.full(", "2", "(3)", _ROOM),
    Same("tmmu_core/plan/analysis/waste.py", "inside, tenants = np.zeros(2 * leaves", "2", "(3)", _ROOM),
    Same("tmmu_core/plan/making/rows.py", "if int(dense.max(initial=0)) < 1 << 16", "0", "(1)", _NONE_OF_IT),
    Same("tmmu_core/planners/greedy.py", "int(np.abs(steps).max(initial=0)) < 2**63", "0", "(1)", _NONE_OF_IT),
    Same(
        "tmmu_core/plan/figures/live.py",
        "change = np.zeros(steps + 1",
        "1",
        "(2)",
        "a cell more, which is cut off again",
    ),
    Same("tmmu_core/graph/unpacking.py", "min(AT_ONCE, ceiling", "min", "(max)", _AT_A_TIME),
    Same("tmmu_core/graph/unpacking.py", "packed.read(1 << 20)", "1", "(2)", _AT_A_TIME),
    Same("tmmu_core/graph/unpacking.py", "wbits=31", "31", "(32)", "zlib then looks for what it is: gzip, as is known"),
    Same(
        *("tmmu_core/graph/document.py", "data[: len(CBOR_SELF_DESCRIBED) + 1]", "1", "(2)"),
        "the first byte alone is looked at",
    ),
    Same(
        *("tmmu_core/graph/sharding.py", "if splits[i] and splits[i] == _contract(tensor"),
        "splits[i] and splits[i] == _contract(tensor, shapes[i], spec)",
        "(splits[i] == _contract(tensor, shapes[i], spec))",
        "what is whole stays whole, whatever its views can follow: only time is saved",
    ),
    Same("tmmu_core/graph/unpacking.py", "packed.read(1 << 20)", "20", "(21)", _AT_A_TIME),
    Same("tmmu_core/graph/unpacking.py", "stream.read(1 << 20)", "1", "(2)", _AT_A_TIME),
    Same("tmmu_core/graph/unpacking.py", "stream.read(1 << 20)", "20", "(21)", _AT_A_TIME),
    Same(
        *("tmmu_core/plan/formats/pickled.py", "if missing > 0:", "missing > 0", "(missing >= 0)"),
        "where none is missing none is added, and there are no more than bytes read",
    ),
    Same("tmmu_core/graph/unpacking.py", "CHUNK = 1 << 16", "16", "(17)", "how many bytes are unpacked at a time"),
    Same("tmmu_core/plan/formats/parquet_child.py", "file.read(use_threads=False)", "False", "(True)", _THREADS),
    Same(
        *("tmmu_core/plan/formats/parquet_child.py", "pre_buffer=False", "False", "(True)"),
        "how a file is fetched that lies in memory already",
    ),
    Same(
        *(
            "tmmu_core/graph/importers/onnx_shapes.py",
            "size > LONG_VECTOR",
            "size > LONG_VECTOR",
            "(size >= LONG_VECTOR)",
        ),
        "two ways to the same sizes: only which of them is taken for vectors of just this length",
    ),
    Same(
        *(
            "tmmu_core/graph/sharding.py",
            "if followers and all(",
            "followers and all(sharding.follows[i] for i in followers)",
        ),
        *("(all((sharding.follows[i] for i in followers)))", "of no followers all follow, wherever they are tried"),
    ),
    Same(
        *("tmmu_core/judge/lives/storages.py", "if len(self._members[a]) < len(self._members[b]):"),
        *("len(self._members[a]) < len(self._members[b])", "(len(self._members[a]) <= len(self._members[b]))"),
        "which of two equally large sets takes the other in",
    ),
    Same(
        *("tmmu_core/judge/lives/storages.py", "persistent = any(run.tensors[member].persistent for", "any", "(all)"),
        "the range of a persistent member is the whole run, and so is the hull of all members' ranges",
    ),
    Same("tmmu_core/planners/columns.py", "must_not_alias.reshape(-1, 2)", "1", "(2)", _WORKED_OUT),
    Same("tmmu_core/liveness/analyse.py", "storage_of = np.full(count, -1", "1", "(2)", _NOBODY),
    Same("tmmu_core/liveness/analyse.py", "handoff_from = np.full(len(head), -1", "1", "(2)", _NOBODY),
    Same("tmmu_core/runtime/onnx_run.py", "options.intra_op_num_threads", "1", "(2)", _THREADS),
    Same("tmmu_core/graph/importers/onnx_measure.py", "options.intra_op_num_threads", "1", "(2)", _THREADS),
    Same(
        *("tmmu_core/graph/importers/pt2_program.py", "data = member.read(ceiling + 1)", "1", "(2)"),
        "that there is more than may be is told by one byte as well as by two",
    ),
    Same(
        *("tmmu_core/judge/places.py", "before, after = int(order[at]), int(order[at + 1])", "at + 1", "(at - 1)"),
        "one born earlier is no taker, so that the short proof fails and all boxes are looked at, to the same verdict",
    ),
    Same(
        *("tmmu_core/runtime/arena.py", "slack = alignment_bytes if alignment_bytes > PAGE else 0"),
        *("alignment_bytes > PAGE", "(alignment_bytes >= PAGE)", _A_PAGE_MORE),
    ),
    Same("tmmu_core/runtime/arena.py", "slack = alignment_bytes if alignment_bytes > PAGE", "0", "(1)", _A_PAGE_MORE),
    Same(
        *("tmmu_core/compiled.py", "compiler(cache=True, nogil=True, _nrt=False)", "False", "(True)"),
        "whether references to arrays are counted in loops that make none and give none away: the time of it alone",
    ),
    Same(
        *("tmmu_core/plan/formats/pickled.py", "_TEXTS_KEPT = 1 << 16", "1 << 16", "(1 >> 16)"),
        "no short text is one object where it is said again: equal ones are equal all the same",
    ),
    Same(
        *("tmmu_core/plan/formats/pickled.py", "_TEXTS_KEPT = 1 << 16", "16", "(17)"),
        "how many texts are one object where they are said again: equal ones beyond it are equal all the same",
    ),
    Same(
        "tmmu_core/cbor.py", "int(sizes.max(initial=0)) < 24", "0", "(1)", "of no texts the longest has 0 letters, or 1"
    ),
    Same("tmmu_core/plan/formats/said.py", "sharing_pairs: Count = 0", "0", "(1)", _ASKED_ALONE),
    Same("tmmu_core/plan/formats/said.py", "saved_bytes: Count = 0", "0", "(1)", _ASKED_ALONE),
    Same(
        *("tmmu_core/graph/importers/xla.py", "if len(here) > 1:", "len(here) > 1", "(len(here) >= 1)"),
        "what lies beside a row is asked for where a second one follows; of one nobody reads it",
    ),
    Same(
        *("tmmu_core/graph/importers/onnx_values.py", "start = known[node.input[0]]", "0", "(1)"),
        "only its type is read, and all operands of a Range are of one",
    ),
    Same("tmmu_core/graph/importers/sniff.py", "shift < 64", "shift < 64", "(shift <= 64)", _SEVENTH),
    Same("tmmu_core/graph/importers/sniff.py", "shift < 64", "64", "(65)", _SEVENTH),
    Same("tmmu_core/graph/importers/onnx_bytes.py", "shift < 64", "shift < 64", "(shift <= 64)", _SEVENTH),
    Same("tmmu_core/graph/importers/onnx_bytes.py", "shift < 64", "64", "(65)", _SEVENTH),
    Same("tmmu_core/cbor.py", ".reshape(-1, 8)", "1", "(2)", _WORKED_OUT),
    Same(
        *("tmmu_core/plan/formats/torch_text.py", "if cut > 0:", "0", "(1)"),
        "what stands before a cut begins with an event, which is longer than a byte",
    ),
    Same(
        *("tmmu_core/plan/formats/torch_text.py", "if cut > 0:", "cut > 0", "(cut >= 0)"),
        "of nothing before it no event is read",
    ),
    Same(
        *("tmmu_core/store/store.py", "key, last = None, 0", "0", "(1)"),
        "the first row begins a series, and is held against nothing",
    ),
    Same(
        *("tmmu_core/plan/formats/pickled.py", 'self.data, self.at = b"", 0', "0", "(1)"),
        "of a file of which nothing is read: where in it begins anew with the first of it",
    ),
    Same(
        *("tmmu_core/graph/shares.py", "at not in order and at not in chain"),
        *("view is not None and at not in order and at not in chain", "(view is not None and at not in chain)"),
        "a base that stands in the order already stays where it is: only time is saved",
    ),
    Same(
        *("tmmu_core/store/opening.py", "if found is not None and found not in known:"),
        *("found is not None and found not in known", "(found is not None)"),
        "there is one revision so far: what is not that one is none that is known",
    ),
    Same(
        *("tmmu_core/graph/index.py", "np.flatnonzero(~(is_input | is_persistent))", "~(is_input | is_persistent)"),
        *("(is_input | is_persistent)", _GUESS),
    ),
    Same(
        *("tmmu_core/graph/index.py", "np.flatnonzero(~(is_input | is_persistent))", "is_input | is_persistent"),
        *("(is_input & is_persistent)", _GUESS),
    ),
    Same(
        *("tmmu_core/graph/index.py", "if dtypes > 1:", "dtypes > 1", "(dtypes >= 1)"),
        "of one dtype the pairs are the shapes, numbered by another way",
    ),
    Same(
        *("tmmu_core/graph/index.py", "np.unique(which * dtypes + dtype", "which * dtypes + dtype"),
        *("(which * dtypes - dtype)", "another number for each pair, one for each all the same"),
    ),
    Same(
        *("tmmu_core/graph/index.py", "if len(distinct) <= 1:", "len(distinct) <= 1", "(len(distinct) < 1)"),
        "of one value all codes are 0, looked up one by one",
    ),
    Same(
        *("tmmu_core/graph/index.py", "if len(codes) and (codes == codes[0]).all():", "codes == codes[0]"),
        *("(codes != codes[0])", "then no codes are alike, and each is looked up"),
    ),
    Same("tmmu_core/graph/index.py", "names.settle()", "names.settle()", "pass", _GIVEN_BACK),
    Same(
        *("tmmu_core/graph/naming.py", "keys = keys * np.uint64(_ODD) + words[:, k]"),
        *("keys * np.uint64(_ODD) + words[:, k]", "(keys * np.uint64(_ODD) - words[:, k])"),
        "another key for each, as good as the first",
    ),
    Same("tmmu_core/planners/greedy.py", "offset = [-1] * len(cols)", "1", "(2)", _NONE_YET),
    Same("tmmu_core/planners/greedy.py", "edge, best, smallest = 0, -1, -1", "1", "(2)", _NONE_YET),
    Same("tmmu_core/planners/greedy.py", "smallest < 0", "smallest < 0", "(smallest <= 0)", _A_GAP),
    Same("tmmu_core/planners/near.py", "best = smallest = -1", "1", "(2)", _NONE_YET),
    Same("tmmu_core/planners/near.py", "nowhere = (-1, -1)", "1", "(2)", "what ends below 0 is in nobody's way"),
    Same("tmmu_core/planners/near.py", "smallest < 0", "smallest < 0", "(smallest <= 0)", _A_GAP),
    Same("tmmu_core/planners/near_kernel.py", "offset = np.full(n, -1", "1", "(2)", _NONE_YET),
    Same("tmmu_core/planners/near_kernel.py", "best = -1", "1", "(2)", _NONE_YET),
    Same("tmmu_core/planners/near_kernel.py", "smallest = -1", "1", "(2)", _NONE_YET),
    Same("tmmu_core/planners/near_kernel.py", "smallest < 0", "smallest < 0", "(smallest <= 0)", _A_GAP),
    Same("tmmu_core/planners/kernels.py", "offset = np.full(len(size), -1", "1", "(2)", _NONE_YET),
    Same("tmmu_core/planners/kernels.py", "best = -1", "1", "(2)", _NONE_YET),
    Same("tmmu_core/planners/kernels.py", "smallest = -1", "1", "(2)", _NONE_YET),
    Same("tmmu_core/planners/kernels.py", "wall = -1", "1", "(2)", _NONE_YET),
    Same("tmmu_core/planners/kernels.py", "wall, past = -1, 0", "1", "(2)", _NONE_YET),
    Same("tmmu_core/planners/kernels.py", "wall, past = -1, 0", "0", "(1)", "read only where a wall was found"),
    Same("tmmu_core/planners/kernels.py", "wall < 0", "wall < 0", "(wall <= 0)", _A_WALL),
    Same("tmmu_core/planners/kernels.py", "smallest < 0", "smallest < 0", "(smallest <= 0)", _A_GAP),
    *(
        Same("tmmu_core/planners/kernels.py", line, old, new, why)
        for line, old, new, why in (
            ("if shift > 0:", "shift > 0", "(shift >= 0)", "each is moved to where it stands"),
            ("leaves = 1", "1", "(2)", _MORE_LEAVES),
            ("while leaves < k:", "leaves < k", "(leaves <= k)", _MORE_LEAVES),
            ("leaves <<= 1", "1", "(2)", _MORE_LEAVES),
            ("pool = max(1024, 16 * len(size))", "max", "(min)", _BEGUN_WITH),
            ("pool = max(1024, 16 * len(size))", "16 * len(size)", "(16 // len(size))", _BEGUN_WITH),
            ("used = 0", "0", "(1)", _ROOM),
            ("most_parts = 1", "1", "(2)", _ROOM),
            ("most_odd = 0", "0", "(1)", _ROOM),
            ("part_of[i + 1] - part_of[i]", "part_of[i + 1] - part_of[i]", "(part_of[i + 1] + part_of[i])", _ROOM),
            ("most_parts, part_of[i + 1] - part_of[i]", "i + 1", "(i - 1)", "of the first it is the sum of all"),
            ("odd_of[i + 1] - odd_of[i]", "odd_of[i + 1] - odd_of[i]", "(odd_of[i + 1] + odd_of[i])", _ROOM),
            ("most_odd, odd_of[i + 1] - odd_of[i]", "i + 1", "(i - 1)", "of the first it is the sum of all"),
            ("np.empty(most_odd + 1", "1", "(2)", _ROOM),
        )
    ),
    Same("tmmu_core/planners/kernels.py", "np.empty(140", "140", "(141)", _ROOM),
    Same("tmmu_core/planners/kernels.py", "np.empty(200 * most_parts", "200", "(201)", _ROOM),
    Same("tmmu_core/planners/kernels.py", "lists = 4 * leaves", "4", "(5)", "lists of nodes that there are not"),
    Same(
        "tmmu_core/planners/kernels.py", "pool = max(1024, 16 * len(size))", "1024", "(1025)", "room that nobody uses"
    ),
    Same("tmmu_core/planners/kernels.py", "pool = max(1024, 16 * len(size))", "16", "(17)", _ROOM),
    Same("tmmu_core/planners/kernels.py", "smallest < 0", "0", "(1)", _A_GAP),
    Same("tmmu_core/planners/kernels.py", "wall < 0", "0", "(1)", _A_WALL),
    Same("tmmu_core/planners/near_kernel.py", "smallest < 0", "0", "(1)", _A_GAP),
    Same("tmmu_core/planners/near.py", "smallest < 0", "0", "(1)", _A_GAP),
    Same("tmmu_core/planners/greedy.py", "smallest < 0", "0", "(1)", _A_GAP),
    Same("tmmu_core/plan/analysis/waste.py", "first, last = np.full(2 * leaves, -1", "1", "(2)", _NONE_YET),
    Same(
        *("tmmu_core/planners/exact/apart.py", "group = list(range(n + k + 1))", "1", "(2)"),
        "a group more, that nobody is in",
    ),
    Same(
        *("tmmu_core/planners/exact/model.py", "if i < j and unit_of[i] != unit_of[j]", "i < j", "(i <= j)"),
        "nobody is odd with itself",
    ),
    Same(
        "tmmu_core/planners/exact/run.py", "ThreadPoolExecutor(1)", "1", "(2)", "a thread more, that has nothing to do"
    ),
    Same(
        *("tmmu_core/plan/analysis/uplift.py", "if at + size > offset and end > at:", "end > at", "(end >= at)"),
        "a place that begins where another ends is on the grid already, and is raised to itself",
    ),
    Same(
        *("tmmu_core/fit/order/exact.py", "if given >= 0 and self.arena_of[given] == a"),
        *("given >= 0 and self.arena_of[given] == a", "(given >= 0)"),
        "where a place is taken over nothing is added to other arenas, and what was alive there has been counted",
    ),
    Same(
        *("tmmu_core/judge/places.py", "apart = (root != root[head])", "root != root[head]", "(root == root[head])"),
        "then every storage is looked at row by row, to the same verdict",
    ),
    Same(
        *("tmmu_core/plan/making/summary.py", "steps = max(steps, 1)", "1", "(2)"),
        "a step more behind the only one, in which nobody lives",
    ),
    Same(
        *("tmmu_core/planners/bounds.py", "begun - ended)", "begun - ended", "(begun + ended)"),
        "who is not left out by counting is looked at pair by pair",
    ),
    Same("tmmu_core/judge/sweep.py", "self._firsts: list[int] = [-1]", "1", "(2)", "below every start, as -1 is"),
    Same("tmmu_core/judge/sweep.py", "at = bisect_left(self._chunks[c], start, key", "0", "(1)", _FURTHER_BACK),
    Same("tmmu_core/judge/sweep.py", "at = bisect_left(self._chunks[c], start, key", "1", "(2)", _FURTHER_BACK),
    Same("tmmu_core/judge/sweep.py", "if at < 0 and c > 0:", "at < 0", "(at <= 0)", _FURTHER_BACK),
    Same("tmmu_core/judge/sweep.py", "if at < 0 and c > 0:", "at < 0 and c > 0", "(c > 0)", _FURTHER_BACK),
    Same("tmmu_core/judge/sweep.py", "at = len(self._chunks[c]) - 1", "1", "(2)", _FURTHER_BACK),
    Same("tmmu_core/judge/whole.py", "ends.update(walked)", "ends.update(walked)", "pass", "what ends is walked again"),
    Same(
        *("tmmu_core/fit/order/exact.py", "touches[s, bits(touchers)] = 1", "1", "(2)"),
        "it is only asked whether sums of it are 0",
    ),
    Same(
        *("tmmu_core/fit/recompute/search.py", "return int(np.argmax(idle)) if idle else 0", "0", "(1)"),
        "without an arena none is asked for",
    ),
    Same(
        *("tmmu_core/judge/places.py", "mine = (base >= 0) & (storage[base] == storage)", "0", "(1)"),
        "those that are not told together are looked at one by one, to the same findings",
    ),
    Same(
        *("tmmu_core/fit/recompute/cut.py", "2 + len(at.before) + len(nodes), np.concatenate(tails)", "2", "(3)"),
        "a vertex that no edge touches",
    ),
    Same(
        *("tmmu_core/fit/recompute/unwrite.py", 'if node.node_id in moving and node.instr == "copy_in"'),
        *('node.node_id in moving and node.instr == "copy_in"', "(node.node_id in moving)"),
        "what is copied out is read by those alone that copy it in, and they are taken out",
    ),
    Same("tmmu_core/sweep/running.py", "self._submitted = 0", "0", "(1)", "what names are counted from"),
)


def reason_of(site: Site, line: str) -> str:
    """Why this mutant cannot be told from the original; empty where nothing says so."""
    for same in SAME:
        if (same.file, same.old, same.new) == (site.file, site.old, site.new) and same.line in line:
            return same.why
    return ""
