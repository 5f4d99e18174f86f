"""Recomputing, room by room, beside the plainest that says the same."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.build import graph, node, tensor, view
from tests.fit.test_edges import from_a_parameter, scripted
from tests.fits import drawn_choice, member, recompute_of, seeds
from tmmu_core.fit.asking import Question
from tmmu_core.fit.recompute import cut, deeper, moves, simulate
from tmmu_core.fit.recompute.cut import Boundary, boundary, cheapest, minimum_cut
from tmmu_core.fit.recompute.deeper import Idle, _above, _offers, _step, idle_at
from tmmu_core.fit.recompute.model import I64, RecomputeModel, connected_parts, recompute_model
from tmmu_core.fit.recompute.moves import go_on_of
from tmmu_core.fit.recompute.search import LADDER, Search
from tmmu_core.fit.recompute.simulate import Choice, Run, run
from tmmu_core.fit.recompute.write import drops_of, with_drops, written
from tmmu_core.graph.model import Node, Tensor

SEEDS = seeds()


def plainest_cut(model: RecomputeModel, at: Boundary, price: I64, unit: int) -> set[int]:
    """Of all sets of nodes run again the cheapest, by trying each; of several the one that is in all of them."""
    before = set(at.before.tolist())
    nodes = sorted({int(model.producer[s]) for s in before if model.droppable[s]})
    reads = [set(model.in_idx[model.in_ptr[n] : model.in_ptr[n + 1]].tolist()) for n in range(len(model.node_at))]
    by_cost: dict[int, list[set[int]]] = {}
    for number in range(1 << len(nodes)):
        again = {n for k, n in enumerate(nodes) if number >> k & 1}
        cost = sum(int(model.made_of[n]) // unit + 1 for n in again)
        for s in before:
            if at.needed[s] or any(s in reads[n] for n in again):
                there_anyway = not model.droppable[s] and (at.needed[s] or model.held[s])
                held = not there_anyway and not (model.droppable[s] and int(model.producer[s]) in again)
                cost += held * (int(price[s]) // unit)
        by_cost.setdefault(cost, []).append(again)
    return set.intersection(*by_cost[min(by_cost)])


@pytest.mark.parametrize("seed", SEEDS[:24])
def test_a_cut_is_the_cheapest_of_all_sets_of_nodes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = recompute_of(seed), random.Random(f"cut/{seed}")
    for finest in (cut.FINEST, 2000, 40):
        monkeypatch.setattr(cut, "FINEST", finest)
        for position in rng.sample(range(len(model.node_at)), min(2, len(model.node_at))):
            at = boundary(model, position)
            price = np.array([rng.choice((0, 1, 5, 400, 3 * int(size))) for size in model.size], np.int64)
            nodes = {int(model.producer[s]) for s in at.before.tolist() if model.droppable[s]}
            if len(nodes) > 8:
                continue
            unit = max(1, (int(price[at.before].sum()) + sum(int(model.made_of[n]) for n in nodes)) // finest)
            assert set(np.flatnonzero(cheapest(model, at, price)).tolist()) == plainest_cut(model, at, price, unit)


# -- the problem -------------------------------------------------------------------------------------------------------


def test_the_source_is_on_its_own_side_and_the_sink_is_not() -> None:
    one = np.array([1], np.int64)
    for side in (minimum_cut(2, 0 * one, one, one), minimum_cut(2, one, 0 * one, one)):
        assert side.tolist() == [True, False]


def in_names(model: RecomputeModel) -> dict[str, Any]:
    """All that the model says, by names."""
    names = [model.name_of(s) for s in range(len(model.size))]
    count = len(model.node_at)
    ins = [[names[s] for s in model.in_idx[model.in_ptr[n] : model.in_ptr[n + 1]]] for n in range(count)]
    outs = [{names[s] for s in model.out_idx[model.out_ptr[n] : model.out_ptr[n + 1]]} for n in range(count)]
    pairs = [
        [names[model.in_idx[e]] for e in model.pair_idx[model.pair_ptr[n] : model.pair_ptr[n + 1]]]
        for n in range(count)
    ]
    columns = ("producer", "droppable", "movable", "size", "kept_place", "held", "at_start")
    of_storage = {column: dict(zip(names, getattr(model, column).tolist(), strict=True)) for column in columns}
    of_node = {column: getattr(model, column).tolist() for column in ("makeable", "made_of", "late", "expires")}
    arenas = dict(zip(model.liveness.arenas, zip(model.fixed.tolist(), model.spare.tolist(), strict=True), strict=True))
    homes = {name: model.liveness.arenas[a] for name, a in zip(names, model.arena.tolist(), strict=True)}
    ids = [model.node_id(n) for n in range(count)]
    return {
        **of_storage,
        **of_node,
        "in": ins,
        "out": outs,
        "pairs": pairs,
        "arenas": arenas,
        "homes": homes,
        "ids": ids,
    }


@pytest.mark.parametrize("seed", SEEDS[:28])
def test_a_problem_is_the_same_whichever_tensor_and_node_stand_first(seed: int) -> None:
    question = member(seed).question
    wanted = in_names(recompute_of(seed))
    ir = question.graph
    assert ir.execution_order
    model, rng = recompute_of(seed), random.Random(f"turned/{seed}")
    one = drawn_choice(model, rng)
    one.away[:] = False
    for flags, storages in ((one.used, model.in_idx), (one.born, model.out_idx), (one.again, model.in_idx)):
        flags &= model.droppable[storages]
    again = not run(model, one).valid or one.again.any()
    drops, whole = drops_of(model, one), ir if again else written(model, one)
    for by in (1, 2, 3, len(ir.tensors) // 2, len(ir.tensors) - 1):
        turned = msgspec.structs.replace(
            ir, tensors=(*ir.tensors[by:], *ir.tensors[:by]), nodes=(*ir.nodes[by:], *ir.nodes[:by])
        )
        model = recompute_model(replace(question, graph=turned))
        assert in_names(model) == wanted
        if by == 2 and not again:
            choice = with_drops(model, Choice.nothing(model), drops)
            assert run(model, choice).total == run(recompute_of(seed), one).total
            after = written(model, choice)
            assert after.execution_order == whole.execution_order
            assert {each.node_id: each for each in after.nodes} == {each.node_id: each for each in whole.nodes}
            assert {each.id: each for each in after.tensors} == {each.id: each for each in whole.tensors}


def problem(tensors: list[Tensor], nodes: list[Node], reads: str = "x", gives: str = "y") -> RecomputeModel:
    order = tuple(each.node_id for each in nodes)
    return recompute_model(Question(graph(tensors, nodes, reads, gives, execution_order=order)))


def which(model: RecomputeModel, column: str) -> set[str]:
    return {model.name_of(s) for s in np.flatnonzero(getattr(model, column)).tolist()}


def relu(name: str, reads: str, writes: str, **more: Any) -> Node:
    return node(name, reads, writes, instr="Relu", **{"inplace": "none", **more})


def test_what_is_alone_in_its_storage_may_be_dropped_and_an_input_may_leave() -> None:
    tensors = [tensor(name) for name in "abcdefg"]
    tensors += [tensor("x", role="input"), tensor("w", role="parameter"), tensor("y"), view("v", "a")]
    grouped = {"b": "two", "c": "two", "d": "one"}
    tensors = [msgspec.structs.replace(each, alias_group_id=grouped.get(each.id)) for each in tensors]
    tensors = [msgspec.structs.replace(each, must_not_alias=("f",) if each.id == "e" else ()) for each in tensors]
    nodes = [
        *(relu("n0", "x w", "a"), relu("n1", "a", "b"), relu("n2", "b", "c"), relu("n3", "c", "d")),
        *(relu("n4", "d", "e"), relu("n5", "e", "f"), relu("n6", "f v", "g"), relu("n7", "g a", "y")),
    ]
    model = problem(tensors, nodes)
    assert which(model, "droppable") == {"a", "g"}
    assert which(model, "movable") == {"a", "g", "x"}
    assert model.producer[model.droppable].tolist() == [0, 6]
    assert set(model.producer.tolist()) == {-1, 0, 1, 2, 3, 4, 5, 6, 7} - {2}
    assert (which(model, "held"), which(model, "at_start")) == ({"y"}, {"x"})


def test_what_a_scope_reads_or_makes_stays() -> None:
    tensors = [*(tensor(name) for name in "abcd"), tensor("x", role="input"), tensor("y")]
    nodes = [
        *(relu("n0", "x", "a"), relu("n1", "a", "b", params={"scope": "loop"}), relu("n2", "b", "c")),
        *(relu("n3", "c", "d", params={"scope": ""}), relu("n4", "d a", "y")),
    ]
    model = problem(tensors, nodes)
    assert which(model, "droppable") == {"c", "d"}
    assert which(model, "movable") == {"c", "d", "x"}
    assert model.makeable.tolist() == [True, False, True, True, True]


def test_what_is_written_over_ends_what_reads_it() -> None:
    """``x`` is written over by n2 and again, as ``x1``, by n4: n0, which reads it, runs again no later than n2."""
    tensors = [tensor("x", role="input"), *(tensor(name) for name in ("a", "b", "x1", "x2", "c", "y"))]
    nodes = [
        *(relu("n0", "x", "a"), relu("n1", "a", "b"), relu("n2", "x", "x1", in_place_write=((0, 0),))),
        *(relu("n3", "x1 a", "c"), relu("n4", "x1", "x2", in_place_write=((0, 0),)), relu("n5", "c a b x2", "y")),
    ]
    model = problem(tensors, nodes)
    never = 2**62
    assert model.expires.tolist() == [2, never, never, 4, never, never]
    assert which(model, "droppable") == {"a", "b", "c"}
    assert model.makeable.tolist() == [True, True, False, True, False, True]


@pytest.mark.parametrize(
    ("permission", "taken"),
    [
        ("none", []),
        ("any", ["a", "a", "b"]),
        (None, ["a", "a", "b"]),
        ((), []),
        (((2, 0), (0, 0), (1, 0)), ["b", "a", "a"]),
        (((1, 0), (2, 0)), ["b"]),
        (((0, 0), (1, 0)), ["a", "a"]),
    ],
)
def test_a_place_is_taken_over_as_the_node_permits(permission: Any, taken: list[str]) -> None:
    """The node reads ``a`` twice, then ``b`` and a parameter: of the first both must be permitted."""
    tensors = [tensor("x", role="input"), tensor("a"), tensor("b"), tensor("w", role="parameter"), tensor("y")]
    nodes = [relu("n0", "x", "a"), relu("n1", "x", "b"), relu("n2", "a a b w", "y", inplace=permission)]
    model = problem(tensors, nodes)
    assert in_names(model)["pairs"][2] == taken


def test_the_first_that_is_written_over_ends_what_reads_several() -> None:
    names = ("a", "b", "x1", "z1")
    tensors = [tensor("x", role="input"), tensor("z", role="input"), *(tensor(name) for name in names), tensor("y")]
    over = {"in_place_write": ((0, 0),)}
    nodes = [
        *(relu("n0", "x z", "a"), relu("n1", "z x", "b"), relu("n2", "z", "z1", **over), relu("n3", "x", "x1", **over)),
        relu("n4", "a b x1 z1", "y"),
    ]
    assert problem(tensors, nodes, "x z").expires.tolist() == [2, 2, 2**62, 2**62, 2**62]


# -- runs --------------------------------------------------------------------------------------------------------------


class PlainRun:
    """Nodes one after the other; before each what it reads and is not there, and first what that is made of."""

    def __init__(self, model: RecomputeModel, choice: Choice) -> None:
        self.model, self.choice = model, choice
        self.life: dict[int, int] = {}
        self.dropped, self.ever, self.gone = set[int](), set[int](), set[int]()
        self.of, self.birth, self.last, self.first_life = [], [], [], []  # type: ignore[var-annotated]
        self.node, self.further, self.at, self.reads = [], [], [], []  # type: ignore[var-annotated]
        self.first: list[int] = []
        self.waiting: list[int] = []
        self.flops = self.moved = 0
        self.valid = True
        if model.timeline.has_inputs_step:
            for s in np.flatnonzero(model.at_start).tolist():
                self.life[s] = self.lives(s, 0, True)
            self.step(-1, False, 0)
        for k in range(len(model.node_at)):
            self.given(k)

    def lives(self, s: int, step: int, first: bool) -> int:
        for column, value in ((self.of, s), (self.birth, step), (self.last, step), (self.first_life, first)):
            column.append(value)
        return len(self.of) - 1

    def step(self, node: int, further: bool, at: int) -> int:
        for column, value in ((self.node, node), (self.further, further), (self.at, at), (self.reads, [])):
            column.append(value)
        return len(self.node) - 1

    def edges(self, n: int) -> list[int]:
        return list(range(self.model.in_ptr[n], self.model.in_ptr[n + 1]))

    def births(self, n: int) -> list[int]:
        return self.model.out_idx[self.model.out_ptr[n] : self.model.out_ptr[n + 1]].tolist()

    def read(self, n: int, step: int) -> None:
        for e in self.edges(n):
            x = self.life[int(self.model.in_idx[e])]
            self.last[x] = step
            self.reads[step].append(x)

    def make(self, s: int, k: int) -> None:
        if s not in self.dropped or not self.valid:
            return
        if self.choice.away[s]:
            self.life[s] = self.lives(s, self.step(-1, False, k), False)
            self.dropped.discard(s)
            self.moved += int(self.model.size[s])
            return
        n = int(self.model.producer[s])
        for e in self.edges(n):
            self.make(int(self.model.in_idx[e]), k)
        if self.model.expires[n] < k or not self.valid:
            self.valid = False
            return
        step = self.step(n, True, k)
        self.flops += int(self.model.made_of[n])
        self.read(n, step)
        self.waiting += [e for e in self.edges(n) if self.choice.again[e]]
        for y in self.births(n):
            x = self.lives(y, step, False)
            if y in self.dropped and not self.choice.away[y]:
                self.life[y] = x
                self.dropped.discard(y)

    def given(self, k: int) -> None:
        model, choice = self.model, self.choice
        self.waiting = []
        for e in self.edges(k):
            self.make(int(model.in_idx[e]), k)
        if not self.valid:
            return
        step = self.step(k, False, k)
        self.first.append(step)
        self.read(k, step)
        let_go = []
        for o, y in zip(range(model.out_ptr[k], model.out_ptr[k + 1]), self.births(k), strict=True):
            self.life[y] = self.lives(y, step, True)
            let_go.append((y, bool(choice.born[o])))
        let_go += [(int(model.in_idx[e]), True) for e in self.waiting]
        let_go += [(int(model.in_idx[e]), bool(choice.used[e])) for e in self.edges(k)]
        for s, whether in let_go:
            (self.dropped.add if whether else self.dropped.discard)(s)
            self.ever |= {s} if whether else set()
        for s, _ in let_go:
            if s in self.dropped and choice.away[s] and s not in self.gone:
                self.gone.add(s)
                self.moved += int(model.size[s])
                self.last[self.life[s]] = self.step(-1, False, k)

    def live(self) -> list[list[int]]:
        """Bytes alive in each arena at each step."""
        model, taken = self.model, set()
        for t, n in enumerate(self.node):
            for e in model.pair_idx[model.pair_ptr[n] : model.pair_ptr[n + 1]].tolist() if n >= 0 else ():
                x = self.reads[t][e - int(model.in_ptr[n])]
                s = self.of[x]
                kept = model.kept_place[s] and self.first_life[x] and (s not in self.ever or model.late[self.at[t]])
                if self.last[x] == t and self.birth[x] < t and not model.held[s] and not kept:
                    larger = model.size[model.out_idx[model.out_ptr[n]]] > model.size[s]
                    taken |= set() if larger else {x}
                    break
        table = [[0] * len(self.node) for _ in model.fixed]
        for x, s in enumerate(self.of):
            ends = len(self.node) if model.held[s] and self.first_life[x] else self.last[x] + (x not in taken)
            for t in range(self.birth[x], ends):
                table[int(model.arena[s])][t] += int(model.size[s])
        return table


def said(found: Run) -> list[Any]:
    lives = found.lives
    columns = (lives.of, lives.birth, lives.last, lives.node, lives.further, found.at, found.first, found.live)
    reads = [lives.reads[lives.read_ptr[t] : lives.read_ptr[t + 1]].tolist() for t in range(len(lives.node))]
    return [found.flops, found.moved, *(column.tolist() for column in columns), reads]


def drawn_choices(seed: int) -> list[Choice]:
    model, rng = recompute_of(seed), random.Random(f"plain/{seed}")
    return [Choice.nothing(model), *(drawn_choice(model, rng) for _ in range(6))]


@pytest.mark.parametrize("seed", SEEDS[:32])
def test_a_run_is_what_running_node_by_node_comes_to(seed: int) -> None:
    model = recompute_of(seed)
    for choice in drawn_choices(seed):
        found, plain = run(model, choice), PlainRun(model, choice)
        assert found.valid == plain.valid
        if not found.valid:
            continue
        columns = (plain.of, plain.birth, plain.last, plain.node, plain.further, plain.at, plain.first)
        assert said(found) == [plain.flops, plain.moved, *columns, plain.live(), plain.reads]
        more = len(plain.node) - len(model.node_at) - int(model.timeline.has_inputs_step)
        peaks = [max(row, default=0) + int(fixed) for row, fixed in zip(plain.live(), model.fixed, strict=True)]
        assert (found.extra_steps, found.peaks.tolist(), found.total) == (more, peaks, sum(peaks))
        bare = found.without_curves()
        assert (bare.flops, bare.total, bare.live.shape) == (found.flops, found.total, (len(model.fixed), 0))
        assert [len(column) for column in vars(bare.lives).values()] == [0, 0, 0, 0, 0, 1, 0]


def test_what_comes_back_is_given_up_where_there_is_no_more_room_for_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is counted so that lives are what is short: nodes write more than they read."""
    monkeypatch.setattr(simulate, "_run", getattr(simulate._run, "py_func", simulate._run))
    tensors = [tensor("x", role="input"), *map(tensor, "abcdefgy")]
    nodes = [relu("n0", "x", "a b c d"), relu("n1", "a", "e f g"), relu("n2", "x", "y")]
    model = problem(tensors, nodes)
    choice = Choice.nothing(model)
    choice.used[model.in_ptr[0]] = choice.away[model.in_idx[model.in_ptr[0]]] = True  # x, behind n0
    plain = PlainRun(model, choice)
    assert (plain.valid, len(plain.of)) == (True, 10)  # nine storages, one of them twice
    monkeypatch.setattr(simulate, "ROOM", -3)
    most = len(plain.of) - len(model.size) + 3 * len(model.out_idx)
    for spare, valid in ((most, True), *((most - less, False) for less in (1, 2, 3, 4))):
        monkeypatch.setattr(simulate, "SPARE", spare)
        assert run(model, choice).valid is valid


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_a_run_is_given_up_where_there_is_no_more_room(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many more steps, lives and reads than are given as there is room for, and not one more."""
    # As plain Python limits can be changed, and a write behind a column's end is an error.
    monkeypatch.setattr(simulate, "_run", getattr(simulate._run, "py_func", simulate._run))
    model = recompute_of(seed)
    for choice in drawn_choices(seed)[1:4]:
        plain = PlainRun(model, choice)
        if not plain.valid:
            continue
        steps, lives, reads = len(plain.node), len(plain.of), sum(map(len, plain.reads))
        positions, storages, births, edges = len(model.node_at), len(model.size), len(model.out_idx), len(model.in_idx)
        for room in (1, 2):
            most = {steps - room * positions, lives - storages - room * births, reads - room * edges}
            for spare in sorted({each + by for each in most for by in (-1, 0, 1)} & set(range(1, 10**6))):
                monkeypatch.setattr(simulate, "ROOM", room)
                monkeypatch.setattr(simulate, "SPARE", spare)
                assert run(model, choice).valid == (spare >= max(most))


def test_choices_are_joined_and_parted_gap_by_gap() -> None:
    one, other = (np.array(flags, np.bool_) for flags in ([0, 0, 1, 1], [0, 1, 0, 1]))
    a, b = (Choice(flags, flags[::-1].copy(), flags.copy(), flags[::-1].copy()) for flags in (one, other))
    both, less = [0, 1, 1, 1], [0, 0, 1, 0]
    assert [column.tolist() for column in vars(a | b).values()] == [both, both[::-1], both, both[::-1]]
    assert [column.tolist() for column in vars(a - b).values()] == [less, less[::-1], less, less[::-1]]
    copied = a.copy()
    for column in vars(copied).values():
        column[:] = True
    assert a.used.tolist() == a.again.tolist() == [0, 0, 1, 1]
    assert a.born.tolist() == a.away.tolist() == [1, 1, 0, 0]


# -- parts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS[:16])
def test_parts_hang_together_unless_by_what_many_share(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = recompute_of(seed), random.Random(f"parts/{seed}")
    for hub in (4, 2, 3):
        monkeypatch.setattr("tmmu_core.fit.recompute.model.HUB", hub)
        nodes = np.array([rng.random() < 0.8 for _ in model.node_at], np.bool_)
        members = np.flatnonzero(nodes).tolist()
        reads = {
            (n, int(model.producer[s]))
            for n in members
            for s in model.in_idx[model.in_ptr[n] : model.in_ptr[n + 1]]
            if model.producer[s] in members
        }
        near = {n: {n} for n in members}
        for n, maker in reads:
            if all(sum(end in pair for pair in reads) < hub for end in (n, maker)):
                near[n].add(maker)
                near[maker].add(n)
        wanted, left = [], set(members)
        while left:
            part = {min(left)}
            while (more := set().union(*(near[n] for n in part))) != part:
                part = more
            wanted.append(sorted(part))
            left -= part
        assert [part.tolist() for part in connected_parts(model, nodes)] == wanted


# -- further down ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS[:16])
def test_what_is_idle_at_a_step_is_there_before_it_and_read_behind_it(seed: int) -> None:
    model, rng = recompute_of(seed), random.Random(f"idle/{seed}")
    choice = drawn_choice(model, rng)
    choice.away[:] = False
    for flags, storages in ((choice.used, model.in_idx), (choice.born, model.out_idx), (choice.again, model.in_idx)):
        flags &= model.droppable[storages]
    for found in (run(model, Choice.nothing(model)), run(model, choice)):
        lives = found.lives
        if not found.valid:
            continue
        reads = [lives.reads[lives.read_ptr[t] : lives.read_ptr[t + 1]].tolist() for t in range(len(lives.node))]
        for step in range(len(lives.node)):
            for arena in range(len(model.fixed)):
                wanted = []
                for life, s in enumerate(lives.of.tolist()):
                    here = lives.birth[life] < step < lives.last[life] and life not in reads[step]
                    if not here or not model.droppable[s] or model.arena[s] != arena:
                        continue
                    before = [(t, at) for t in range(step) for at, other in enumerate(reads[t]) if other == life]
                    if before:
                        t, at = before[-1]
                        flag = ("again" if lives.further[t] else "used", int(model.in_ptr[lives.node[t]]) + at)
                    else:
                        t = int(lives.birth[life])
                        if lives.further[t]:
                            continue
                        flag = ("born", model.out_idx.tolist().index(s))
                    wanted.append(Idle(s, flag, int(model.producer[s])))  # type: ignore[arg-type]
                wanted.sort(key=lambda each: (each.maker, each.storage, each.flag))
                assert idle_at(model, found, step, arena) == wanted


def test_of_what_is_idle_all_together_or_most_of_it_or_the_largest_alone_is_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model: Any = SimpleNamespace(size=np.array([8, 16, 16, 4, 16]), made_of=np.array([5, 3, 3, 1, 2]))
    idle = [Idle(k, ("used", 10 - k), k) for k in range(5)]
    a, b, c, d, e = (each.flag for each in idle)
    alone = [[e], [c], [b], [a], [d]]
    assert list(_offers(idle, model)) == [
        *([a, b, c, d, e], [b, d], [b, c, e], [b, c, d], [b, c, d, e]),
        *alone,
    ]
    monkeypatch.setattr(deeper, "SINGLY", 2)
    assert list(_offers(idle, model))[5:] == alone[:2]
    assert list(_offers(idle[:2], model)) == [[a, b], [b], [a]]
    assert list(_offers(idle[:1], model)) == [[a]]
    assert list(_offers([], model)) == []


@pytest.mark.parametrize("seed", SEEDS[:8])
def test_a_step_down_is_the_drop_that_takes_most_off_for_its_cost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = recompute_of(seed)
    search = Search(model, lambda bytes_of: 0)
    live = search.nothing.run.live[search.arena]
    for most in (1, 2, 40):
        monkeypatch.setattr(deeper, "STEPS_LOOKED_AT", most)
        for level in (0, int(live.max()) // 2, int(live.max()) - 1):
            begun = search.weighed
            found = _step(search, search.nothing, level)
            weighed, wanted = 0, None
            above = sum(max(0, now - level) for now in live.tolist())
            assert _above(live, level) == above
            full = sorted((step for step, now in enumerate(live.tolist()) if now > level), key=lambda t: (-live[t], t))
            firsts = dict.fromkeys(int(search.nothing.run.at[step]) for step in full)
            steps = [next(t for t in full if search.nothing.run.at[t] == position) for position in firsts]
            for step in steps[:most]:
                worths = []
                for flags in _offers(idle_at(model, search.nothing.run, step, search.arena), model):
                    choice = Choice.nothing(model)
                    for name, place in flags:
                        getattr(choice, name)[place] = True
                    tried = run(model, choice)
                    weighed += 1
                    less = above - sum(max(0, now - level) for now in tried.live[search.arena].tolist())
                    if tried.valid and less > 0:
                        worths.append((less / (1 + tried.flops), tried))
                if worths:
                    wanted = max(worths, key=lambda pair: pair[0])[1]
                    break
            assert search.weighed - begun == weighed
            assert (found is None) == (wanted is None)
            if found is not None and wanted is not None:
                assert (found.run.flops, found.run.live.tolist()) == (wanted.flops, wanted.live.tolist())


def test_what_watches_is_asked_once_in_so_many_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "ASKED_EVERY", 3)
    asked_for: list[tuple[str, int, int]] = []

    def report(what: str, done: int, of: int) -> bool:
        asked_for.append((what, done, of))
        return len(asked_for) < 2

    go_on = go_on_of(report, "recompute")
    assert [go_on() for _ in range(7)] == [True, True, True, True, True, False, True]
    assert asked_for == [("recompute", 3, 0), ("recompute", 6, 0)]
    assert all(go_on_of(None, "recompute")() for _ in range(7))


def test_a_move_says_what_it_costs_and_never_less_than_nothing() -> None:
    def at(flops: int, steps: int, total: int) -> Any:
        return SimpleNamespace(flops=flops, extra_steps=steps, total=total)

    instrs = ["Relu", "Relu", "Tanh", "Gelu", "Add", "Mul", "Mul"]
    tensors = [tensor("x", role="input"), *(tensor(f"t{k}") for k in range(7)), tensor("y")]
    nodes = [
        node(f"n{k}", f"t{k - 1}" if k else "x", f"t{k}", instr=name, inplace="none") for k, name in enumerate(instrs)
    ]
    model = problem(tensors, [*nodes, relu("end", " ".join(f"t{k}" for k in range(7)), "y")])
    nothing = Choice.nothing(model)

    def move(count: int, before: Any, after: Any) -> Any:
        return moves._move(model, nothing, nothing, list(range(count)), (before, after))

    dear = move(7, at(5, 1, 100), at(9, 4, 60))
    assert (dear.cost.extra_flops, dear.cost.moved_bytes, dear.cost.extra_steps, dear.bytes) == (4, 0, 3, 40)
    assert dear.what == "recompute 't0' and 6 more (2 × Relu, 2 × Mul, Tanh, Gelu, …)"
    assert (dear.tensors, dear.nodes) == (tuple(f"t{k}" for k in range(7)), tuple(f"n{k}" for k in range(7)))
    free = move(5, at(5, 4, 60), at(3, 4, 60))
    assert (free.cost.extra_flops, free.cost.extra_steps, free.bytes) == (0, 0, 0)
    assert free.what == "recompute 't0' and 4 more (2 × Relu, Tanh, Gelu, Add)"
    assert move(1, at(0, 0, 0), at(1, 0, 0)).what == "recompute 't0' (Relu)"
    assert move(1, at(0, 1, 0), at(1, 0, 0)).cost.extra_steps == 0


@pytest.mark.parametrize(
    ("offers", "taken"),
    [
        ([(True, 5, [4, 4, 4]), (True, 6, [2, 4, 4])], 1),  # one byte off for 1 more operation, or three for 2 more
        ([(True, 5, [3, 4, 4]), (True, 9, [2, 4, 4])], 0),
        ([(True, 6, [3, 4, 4]), (True, 6, [5, 3, 3])], 0),  # of two alike the first
        ([(True, 4, [4, 4, 4]), (True, 2, [4, 4, 4])], 0),  # less than now counts as much as now
        ([(True, 4, [4, 4, 4]), (True, 5, [3, 4, 4])], 0),
        ([(True, 4, [4, 4, 4]), (True, 5, [2, 4, 4])], 1),
        ([(False, 4, [0, 0, 0]), (True, 9, [4, 4, 4])], 1),
        ([(True, 4, [5, 4, 4]), (True, 4, [5, 5, 3])], None),  # what takes nothing off
        ([], None),
    ],
)
def test_of_drops_the_one_that_takes_most_off_above_the_level_for_each_operation_more(
    offers: list[tuple[bool, int, list[int]]], taken: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a cost of 4 operations 5 bytes at the first step, and 4 at two more; the level is 2."""

    def at(valid: bool, flops: int, live: list[int]) -> Any:
        return SimpleNamespace(valid=valid, flops=flops, live=np.array([live]), at=np.array([0, 1, 2]))

    points = [SimpleNamespace(run=at(*offer)) for offer in offers]
    choice = Choice(*(np.zeros(len(offers), np.bool_) for _ in range(4)))
    now: Any = SimpleNamespace(run=at(True, 4, [5, 4, 4]), choice=choice)
    monkeypatch.setattr(deeper, "idle_at", lambda model, found, step, arena: [] if step else list(range(len(offers))))
    monkeypatch.setattr(deeper, "_offers", lambda idle, model: [[("used", k)] for k in idle])
    weigh = lambda choice: points[np.flatnonzero(choice.used)[0]]  # noqa: E731
    search: Any = SimpleNamespace(model=None, arena=0, weigh=weigh)
    found = _step(search, now, 2)
    assert found is (None if taken is None else points[taken])


def test_a_way_down_is_walked_until_it_is_there_or_enough_was_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 100 bytes, 20 of which are always there, to 40 less; each step takes 10 off.

    Where nothing is dropped there are 200: the way begins at what a cut left.
    """
    levels: list[int] = []

    def at(total: int) -> Any:
        return SimpleNamespace(run=SimpleNamespace(peaks=np.array([7, total])))

    def step(search: Any, point: Any, level: int) -> Any:
        levels.append(level)
        top = int(point.run.peaks[1]) - 20
        search.weighed += 2
        return at(int(point.run.peaks[1]) - 10) if level < top and top > 30 else None

    monkeypatch.setattr(deeper, "_step", step)

    def walked(way: tuple[int, int], last: int = 99, patience: int = 99) -> list[int]:
        levels.clear()
        asked_for = iter([True] * patience + [False] * 99)
        search: Any = SimpleNamespace(
            weighed=0,
            arena=1,
            nothing=at(200),
            model=SimpleNamespace(fixed=np.array([0, 20])),
            excess=lambda found: 40,
            go_on=lambda: next(asked_for),
        )
        return [int(point.run.peaks[1]) for point in deeper._way(search, at(100), way, last)]

    assert walked((100, 1)) == [90, 80, 70, 60]
    assert levels == [40, 40, 40, 40, 40]
    assert walked((100, 4)) == [90, 80, 70, 60]
    assert levels == [60, 53, 45, 40, 40]
    assert walked((120, 1)) == [90, 80, 70, 60, 50]
    assert levels == [32, 32, 32, 32, 32, 32][: len(levels)]
    assert walked((100, 1), last=3) == [90, 80]
    assert walked((100, 1), last=4) == [90, 80, 70]
    assert walked((100, 1), patience=2) == [90, 80]
    assert walked((100, 1), last=-1) == []


@pytest.mark.parametrize("most", range(6))
@pytest.mark.parametrize("patience", [3, 99])
def test_ways_are_walked_from_every_start_until_enough_was_weighed(
    most: int, patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two starts and six ways from each; weighing the start is 1, the way itself none. Odd FLOPs do not fit."""
    walked: list[Any] = []
    trimmed: list[Any] = []
    monkeypatch.setattr(deeper, "_way", lambda search, point, way, last: walked.append((way, last)) or [point])
    monkeypatch.setattr(deeper, "_held_again", lambda search, point: trimmed.append(point) or point)
    search: Any = SimpleNamespace(weighed=10, most=most, go_on=lambda: len(walked) < patience)

    def weigh(choice: Any) -> Any:
        search.weighed += 1
        return SimpleNamespace(run=SimpleNamespace(flops=search.weighed, total=0, extra_steps=0))

    search.weigh, search.excess = weigh, lambda found: int(found.flops % 2)
    start: Any = SimpleNamespace(choice=None, make=lambda: None)
    found = deeper.deepened(search, [start, start])
    each = min(6, most + 1)
    ways = [(way, 10 + first + most) for first in (0, each) for way in deeper.WAYS[:each]][:patience]
    assert walked == ways
    fits = [k for k in range(11, 11 + 2 * each) if k % 2 == 0][:3] if 2 * each < patience else []
    assert [point.run.flops for point in found] == [*range(11, 11 + len(ways)), *fits]
    assert [point.run.flops for point in trimmed] == fits


@pytest.mark.parametrize(
    ("cuts", "begun"),
    [
        # Over by 40 at the lowest, by 140 with nothing dropped: up to 60 and up to 80 over are near.
        ([(140, 0), (80, 5), (60, 20), (59, 21), (40, 90)], [(40, 90), (60, 20), (80, 5), (140, 0)]),
        ([(140, 0), (81, 5), (61, 20), (40, 90)], [(40, 90), (61, 20), (140, 0)]),
        ([(140, 0), (60, 3), (40, 90)], [(40, 90), (60, 3), (140, 0)]),  # each once
        ([(140, 0), (81, 5), (40, 90), (40, 80)], [(40, 80), (140, 0)]),
        ([(140, 0)], [(140, 0)]),
    ],
)
def test_below_cuts_it_goes_on_from_the_lowest_from_cheap_ones_near_it_and_from_nothing_dropped(
    cuts: list[tuple[int, int]], begun: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [SimpleNamespace(run=(over, flops), key=(flops, over)) for over, flops in cuts]
    seen: list[Any] = []
    monkeypatch.setattr(moves, "deepened", lambda search, starts: seen.extend(starts))
    search: Any = SimpleNamespace(excess=lambda run: run[0], nothing=points[0])
    found: Any = [(None, point) for point in points]
    moves._below(search, found)
    assert [point.run for point in seen] == begun


# -- what to drop ------------------------------------------------------------------------------------------------------


def test_where_no_cut_is_valid_the_ladder_is_climbed_once() -> None:
    search = Search(from_a_parameter(), lambda bytes_of: 0)
    tried = 0

    def dropping(nodes: object) -> Any:
        nonlocal tried
        tried += 1
        return SimpleNamespace(run=SimpleNamespace(valid=False))

    search.dropping = dropping  # type: ignore[method-assign,assignment]
    assert [point for _, point in search.climb()] == [search.nothing]
    assert tried == len(LADDER)


@pytest.mark.parametrize(("by", "order"), [("flops", [0, 2, 1, 3]), ("flops a byte", [3, 1, 2, 0])])
def test_parts_are_tried_by_what_they_cost_or_by_what_they_cost_a_byte(by: str, order: list[int]) -> None:
    """For each part the operations and the bytes: 12 for 4, 10 for 2, 11 for 3 and 6 for one; of none it is one."""
    search = scripted((12, 10, 11, 6), (4, 2, 3, 1), 0)
    parts = [np.array([k], np.int64) for k in range(4)]
    everyone = np.ones(4, np.bool_)
    assert [int(part[0]) for part in search._by_worth(parts, everyone, by)] == order
    nobody = scripted((3, 4, 4), (0, 2, 1), 0)
    assert [int(part[0]) for part in nobody._by_worth(parts[:3], np.ones(3, np.bool_), "flops a byte")] == [2, 0, 1]
    # What is not run again now costs nothing to hold instead.
    half = np.array([False, True, False, True])
    assert [int(part[0]) for part in search._by_worth(parts, half, "flops")] == [1, 3, 0, 2]


def test_what_is_as_dear_and_as_small_changes_nothing() -> None:
    search = scripted((10, 10, 0), (50, 50, 0), 50)
    first = np.array([True, False, False])
    nodes, _ = search._exchanged(first, search.dropping(first))
    assert nodes.tolist() == first.tolist()
    nodes, _ = search._tried((first, search.dropping(first)), [(np.array([2]), True)])
    assert nodes.tolist() == first.tolist()
    nodes, _ = search._tried((first, search.dropping(first)), [(np.array([0]), False)])
    assert nodes.tolist() == first.tolist()  # which does not fit


def test_a_drop_that_changes_nothing_is_left_where_it_is() -> None:
    """``a`` is dropped after its last use too, which costs nothing and saves nothing."""
    model = from_a_parameter()
    search = Search(model, lambda bytes_of: 0)
    choice = with_drops(model, Choice.nothing(model), [("a", "k")])
    point = search.weigh(choice)
    assert point.key == search.nothing.key
    assert drops_of(model, deeper._held_again(search, point).choice) == (("a", "k"),)


def test_a_node_may_be_called_as_a_further_run_is() -> None:
    tensors = [tensor("x", role="input"), *(tensor(name) for name in "aby")]
    nodes = [relu("n", "x", "a"), relu("n@remat", "a", "b"), relu("m", "a b", "y")]
    model = problem(tensors, nodes)
    for after, column in (("n@remat", "used"), ("m", "used"), ("n", "born"), ("m@remat", "again")):
        choice = with_drops(model, Choice.nothing(model), [("a", after)])
        assert [name for name in ("used", "born", "again") if getattr(choice, name).any()] == [column]
        assert drops_of(model, choice) == (("a", after),)
