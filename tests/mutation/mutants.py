# ruff: noqa: E501 - a mutant is a line of the production code, told whole
"""The mutants: each breaks one clause of the contract in one place of the production code."""

from __future__ import annotations

from dataclasses import dataclass

LAW = "tests/laws/test_equivalence.py::test_planner_and_reference_agree_on_any_graph"
LARGE = "tests/laws/test_equivalence.py::test_planner_and_reference_agree_on_larger_graphs"
REFUSALS = "tests/laws/test_equivalence.py::test_planner_and_reference_refuse_the_same_hand_offs"
WASTE = "tests/laws/test_equivalence.py::test_the_waste_ledger_sums_to_the_extent_at_every_step"
HANDOFFS = "tests/liveness/test_handoffs.py"
RANGES = "tests/liveness/test_ranges.py"
STORAGES = "tests/liveness/test_storages.py"
BACKWARD = "tests/liveness/test_backward.py"
FOUND = "tests/laws/test_found_once.py"
CANONICAL = "tests/judge/test_canonical.py"


@dataclass(frozen=True)
class Mutant:
    """``old`` stands in ``file`` exactly once and is replaced by ``new``; one of ``tests`` must fail."""

    clause: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _in(room: str, *rows: tuple[str, str, str, str, tuple[str, ...]]) -> tuple[Mutant, ...]:
    return tuple(
        Mutant(clause, "/".join(filter(None, ("tmmu_core", room, file))), old, new, tests)
        for file, clause, old, new, tests in rows
    )


LIVENESS = _in(
    "liveness",
    ("timeline.py", "§1 loading is a step too", "first = 1 if graph.inputs else 0", "first = 0", (RANGES, LAW)),
    (
        "ranges.py",
        "§1 a dead tensor lives [b, b + 1)",
        "np.maximum(last_read, birth) + 1",
        "np.where(last_read >= 0, last_read + 1, birth + 2)",
        (LAW,),
    ),
    (
        "ranges.py",
        "§1 refused: death = k + 1",
        "np.maximum(last_read, birth) + 1",
        "np.where(last_read >= 0, last_read + 2, birth + 1)",
        (LAW,),
    ),
    ("ranges.py", "§1 graph output: death = T", "    death[index.is_output] = end\n", "", (RANGES, LAW)),
    ("ranges.py", "§1 persistent: [0, T)", "    death[index.is_persistent] = end\n", "", (RANGES, LAW)),
    ("ranges.py", "§2 mode forward holds saved to T", "        death[saved] = end\n", "        pass\n", (RANGES, LAW)),
    ("ranges.py", "§2 saving a view saves its base", "    saved[roots[saved]] = True\n", "", (STORAGES, LAW, LARGE)),
    ("ranges.py", "§2 inference ignores the mark", "if timeline.retain:", "if True:", (RANGES, LAW)),
    ("order.py", "§2 ready ties to the lowest id", "ready = [r for", "ready = [-r for", (RANGES, LAW)),
    (
        "timeline.py",
        "§2 mode selects the timeline",
        'np.ones(len(index.node_ids), np.bool_) if mode == "backward" else index.is_forward',
        "np.ones(len(index.node_ids), np.bool_)",
        (RANGES, LAW),
    ),
    (
        "backward.py",
        "§2 N more steps in reverse",
        "for node in reversed(forward):",
        "for node in forward:",
        (BACKWARD,),
    ),
    (
        "backward.py",
        "§2 parameter gradients live to T",
        "outputs=(*graph.outputs, *kept),",
        "outputs=graph.outputs,",
        (BACKWARD,),
    ),
    (
        "backward.py",
        "§2 saved operands are read",
        "(_saved(node, marked) if retain and edges else ())",
        "()",
        (BACKWARD,),
    ),
    (
        "backward.py",
        "§2 gradients accumulate",
        "if x in gradients]  # nobody reads",
        "if False]  # nobody reads",
        (BACKWARD, LARGE),
    ),
    (
        "remat.py",
        "§2 later readers read the copy",
        "_remat(name) if name in dropped else name for",
        "name for",
        (BACKWARD, LAW),
    ),
    (
        "handoffs.py",
        "§1 n has one output",
        "np.diff(index.out_ptr)[node] > 1,",
        "np.diff(index.out_ptr)[node] > 9,",
        (HANDOFFS, LAW),
    ),
    ("handoffs.py", "§1 a giver is not persistent", "groups)[x_group],", "groups)[x_group] & False,", (HANDOFFS, LAW)),
    (
        "handoffs.py",
        "§1 a giver is no graph output",
        "            index.is_output[x],\n",
        "            index.is_output[x] & False,\n",
        (HANDOFFS, LAW),
    ),
    (
        "handoffs.py",
        "§1 a giver is not saved",
        "            ranges.saved[x],\n",
        "            ranges.saved[x] & False,\n",
        (HANDOFFS, LAW),
    ),
    (
        "handoffs.py",
        "§1 no other live member",
        "_others_death(groups)[x] > step",
        "_others_death(groups)[x] > step + 1",
        (FOUND, HANDOFFS, STORAGES, LAW),
    ),
    ("handoffs.py", "§1 both lie in one arena", "arena_of[x] != arena_of[y],", "arena_of[x] < -9,", (HANDOFFS, LAW)),
    (
        "handoffs.py",
        "§1 no must_not_alias between them",
        "            must_not,\n",
        "            must_not & False,\n",
        (HANDOFFS, LAW),
    ),
    (
        "handoffs.py",
        "§1 one giver for a taker",
        "refused_by[free[~first_of_step]] = ALREADY_TAKEN",
        "pass",
        (HANDOFFS, LAW),
    ),
    (
        "handoffs.py",
        "§1 n permits it",
        'kind is None or kind == "any" for kind in kinds',
        "kind is None or isinstance(kind, str) for kind in kinds",
        (HANDOFFS, LAW),
    ),
    (
        "analyse.py",
        "§1 granted: death(x) = k",
        "death[handoffs[:, 1]] = handoffs[:, 0]",
        "death[handoffs[:, 1]] = handoffs[:, 0] + 1",
        (HANDOFFS, LAW),
    ),
)

SHARING = _in(
    "liveness",
    (
        "groups.py",
        "§3 a storage holds its alias group",
        "if alias is not None and ranges.planned[i]:",
        "if False:",
        (STORAGES, LAW),
    ),
    (
        "groups.py",
        "§3 in-place output joins the storage",
        "                join(x, y)\n",
        "                pass\n",
        (STORAGES, LAW),
    ),
    (
        "groups.py",
        "§3 II.G alias_group_refcount == 1",
        "strangers or lives[a].lives_through(step, (x, y)))",
        "strangers)",
        (STORAGES, LAW),
    ),
    (
        "groups.py",
        "§3 II.G saved_for_backward == false",
        '("saved_for_backward", bool(ranges.saved[x])),',
        "",
        (STORAGES, LAW),
    ),
    (
        "groups.py",
        "§3 II.G liveness stays valid",
        '("read_later", bool(ranges.last_read[x] > step)),',
        "",
        (STORAGES, LAW),
    ),
    ("groups.py", "§3 one input gives to one output", "(twice or strangers or", "(strangers or", (FOUND,)),
    ("groups.py", "§3 storages are not glued together", "(twice or strangers or", "(twice or", (FOUND,)),
    (
        "groups.py",
        "§3 y lies where x lies",
        "int(ranges.view_offset[x]) + placed.get(int(ranges.roots[x]), 0)",
        "int(ranges.view_offset[x])",
        (FOUND, STORAGES, LAW, LARGE),
    ),
    (
        "views.py",
        "§3 views of views resolve to the root",
        "offsets[views] + offsets[reached]",
        "offsets[views]",
        (STORAGES, LAW),
    ),
    (
        "analyse.py",
        "§3 the first-born names the storage",
        "first[g] = min(first.get(g, key), key)",
        "first[g] = max(first.get(g, key), key)",
        (STORAGES, LAW),
    ),
    (
        "analyse.py",
        "§3 range = hull",
        "np.maximum.at(hull_end, row, death[planned])",
        "hull_end[row] = death[planned]",
        (STORAGES, LAW),
    ),
    (
        "analyse.py",
        "§3 size = the greatest",
        "ends = groups.offset[planned] + row_bytes",
        "ends = np.uint64(0) + row_bytes",
        (FOUND, STORAGES, LAW),
    ),
    (
        "analyse.py",
        "§3 alignment = the greatest",
        "max(int(alignment[s]), asked)",
        "asked",
        (STORAGES, LAW, LARGE),
    ),
    (
        "analyse.py",
        "§3 bases before views",
        "key = (int(birth[m]), bool(base[m] >= 0), ids[m], m)",
        "key = (int(birth[m]), False, ids[m], m)",
        (STORAGES, LAW, LARGE),
    ),
    (
        "analyse.py",
        "§3 pairs inside a storage contradict",
        "for other in others[a == b].tolist()]",
        "for other in others[:0].tolist()]",
        (STORAGES, LAW),
    ),
    (
        "analyse.py",
        "§4 an arena must be declared",
        "missing = sorted(used - set(arenas or DEFAULT_ARENAS) - {OFFLOAD_ARENA})",
        "missing = list[str]()",
        (FOUND,),
    ),
    (
        "analyse.py",
        "§4 optimizer state has its own arena",
        '    if "optimizer_state" in arenas:\n',
        "    if False:\n",
        (FOUND,),
    ),
    (
        "analyse.py",
        "§1 sort by birth, −nbytes, id",
        "~index.nbytes[head], ranges.birth[head]",
        "index.nbytes[head], ranges.birth[head]",
        (LAW,),
    ),
)

PLACES = _in(
    "planners",
    ("slots.py", "§5 lowest free slot first", "slot[i] = heappop(free)\n        else:\n            slot[i] = opened\n            opened += 1\n    return", "slot[i] = free.pop()\n        else:\n            slot[i] = opened\n            opened += 1\n    return", (LAW, LARGE)),
    ("slots.py", "§5 expire at death ≤ birth", 'problem.birth, side="right")', 'problem.birth, side="left")', (LAW,)),
    ("slots.py", "§3 must_not_alias keeps slots apart", "apart = others[first[i] : first[i + 1]]", "apart = others[:0]", ("tests/judge/test_verifier.py", STORAGES, LAW)),
    ("slots.py", "§3 zero-size is backed by 1 byte", "size = np.ones(slots, np.uint64)", "size = np.zeros(slots, np.uint64)", (LAW, STORAGES)),
    ("slots.py", "§4 prefix sums are aligned up", "(end + alignment - 1) // alignment * alignment", "end", (LAW,)),
    ("slots.py", "§4 align_k is the greatest", "np.maximum.at(alignment, slot, problem.alignment)", "pass", (LAW, STORAGES)),
    ("slots.py", "§5 a slot is as large as its largest", "np.maximum.at(size, slot, problem.size)", "size[slot] = np.maximum(problem.size, np.uint64(1))", (LAW,)),
) + _in(
    "plan",
    ("making/rows.py", "§9 generation counts tenants", "return number, number - start[number]", "return number, number - number", (LAW,)),
    ("making/rows.py", "§3 view address = base + offset", "placement.offset[storage] + liveness.offset_in_storage[rows]", "placement.offset[storage]", (STORAGES, LAW)),
    ("figures/metrics.py", "§4 committed bytes are whole pages", "align_up(extent, page_size) if page_size else extent", "extent", (LAW,)),
    ("making/summary.py", "§4 extent > capacity is refused", "if summary.extent_bytes <= summary.capacity_bytes:", "if True:", (LAW,)),
)  # fmt: skip

HASHES = _in(
    "",
    ("cbor.py", "§6 keys by their encoded bytes", "return sorted([(_key(key), key) for key in keys], key=_first)", "return [(_key(key), key) for key in keys]", (CANONICAL,)),
    ("cbor.py", "§6 shortest integers", "    if n < 0x100:\n", "    if n < 0xFF:\n", (CANONICAL,)),
    ("cbor.py", "§6 the one NaN", "_NAN if math.isnan(x) else", "", (CANONICAL,)),
) + _in(
    "plan",
    ("canonical.py", "§6 the token is in the plan hash", "return [token, rows]", "return [bytes(32), rows]", (LAW,)),
    ("canonical.py", "§6 the layout hash holds both tables", '["tmmu_layout_v1", [slots, addresses]]', '["tmmu_layout_v1", [slots]]', (LAW,)),
    ("canonical.py", "§6 rank is in the plan hash", "[*identity, slot", "[*identity._replace(rank=1), slot", (LAW,)),
    ("canonical.py", "§6 the tag of the plan hash", '"tmmu_plan_v1"', '"tmmu_plan_v2"', (LAW,)),
) + _in(
    "graph",
    ("native.py", "§6 defaults are omitted", 'if node.get("inplace") == "any":', "if False:", (LAW,)),
    ("dtypes.py", "§3 sub-byte dtypes round up", "(elements * width + 7) // 8", "elements * width // 8", (LAW, LARGE)),
)  # fmt: skip

EXACT = "tests/planners/test_exact.py"
GREEDY = "tests/planners/test_greedy.py"
SCOPES = "tests/graph/test_onnx_scopes.py"

CERTIFICATES = _in(
    "planners",
    ("columns.py", "§5 one life each, or gaps count", "bool((np.diff(self.part_of) == 1).all())", "len(self.part_lo) == len(self)", (GREEDY,)),
    ("portfolio.py", "§5 the crown goes last", "sequence = [*(i for i in sequence if i != crown), crown]", "sequence = [crown, *(i for i in sequence if i != crown)]", (GREEDY,)),
    ("exact/hunt.py", "§5 a part proves what its grain allows", "floor // models[0].grain * models[0].grain", "-(-floor // models[0].grain) * models[0].grain", (EXACT,)),
    ("exact/hunt.py", "§5 a bound is what was proven", "return self.bound if self.bound > self.floor else 0", "return self.bound", (EXACT,)),
    ("exact/apart.py", "§5 odd conflicts keep parts together", "            group[top(i)] = top(j)\n", "            pass\n", (EXACT,)),
    ("exact/propagate.py", "§5 a section that passes the capacity fails", "SECTIONS and low + rest > capacity:", "SECTIONS and low + rest >= capacity:", (EXACT,)),
    ("exact/propagate.py", "§5 only who fits lowest is lowest", "FIRSTS and second + rest > capacity", "FIRSTS and second + rest >= capacity", (EXACT,)),
    ("exact/propagate.py", "§5 a hole is met by who reaches into it", "if dominance and low >= hole + shape.neighbour[k, OVER]:", "if dominance and low >= hole:", (EXACT,)),
    ("exact/reasons.py", "§5 a failure hangs on every unit that fills the section", "capacity - total + 1)", "0)", (EXACT,)),
    ("exact/reasons.py", "§5 what lies below a hole is to blame as well", "                _blame(state.blame, unit[w, LEVEL])\n        elif", "                pass\n        elif", (EXACT,)),
    ("exact/steering.py", "§5 who failed goes first", "np.lexsort((self._rank(way, order), -level))", "np.lexsort((self._rank(way, order), level))", (EXACT,)),
) + _in(
    "judge",
    ("lint.py", "§7 a scope's steps stand together", "if steps[-1] - steps[0] + 1 == len(steps):", "if True:", ("tests/judge/test_lint.py",)),
) + _in(
    "graph",
    ("importers/onnx_scopes.py", "§8 a loop closes on what its body reads", "                [*made.operands, *made.captures],\n", "                [*made.operands],\n", (SCOPES,)),
)  # fmt: skip

MUTANTS: tuple[Mutant, ...] = (*LIVENESS, *SHARING, *PLACES, *HASHES, *CERTIFICATES)
