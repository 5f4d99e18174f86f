"""What liveness works out over columns, beside the plainest that says the same."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest

from tests.build import graph, node, tensor, view
from tmmu_core.graph.index import index_graph
from tmmu_core.liveness.timeline import build_timeline
from tmmu_core.liveness.views import view_roots
from tmmu_core.runtime.shadow_declared import _roots


@pytest.mark.parametrize("seed", range(8))
def test_a_view_of_views_lies_in_its_root_at_the_sum_of_all_offsets(seed: int) -> None:
    random = Random(f"roots/{seed}")
    count = 1 + random.randrange(12)
    names = [f"t{k}" for k in range(count)]
    random.shuffle(names)
    base = {name: random.choice(names[:k]) if k and random.randrange(4) else None for k, name in enumerate(names)}
    tensors = [
        tensor(name, 1000, role="input") if over is None else view(name, over, 1, 4 * random.randrange(3))
        for name, over in base.items()
    ]
    said = {t.id: t.view for t in tensors}
    # Long enough for all that looks into them.
    tensors = [t if t.view is None else msgspec.structs.replace(t, view=said[t.id]) for t in tensors]
    lengths = dict.fromkeys(names, 4)
    for name in reversed(names):
        over = base[name]
        if over is not None:
            lengths[over] = max(lengths[over], lengths[name] + said[name].byte_offset)  # type: ignore[union-attr]
    grown = [
        msgspec.structs.replace(
            t,
            shape=(lengths[t.id] // 4,),
            view=t.view and msgspec.structs.replace(t.view, byte_length=lengths[t.id]),
        )
        for t in tensors
    ]
    random.shuffle(grown)
    g = graph(grown, [node("n", " ".join(names), "")], " ".join(n for n in names if base[n] is None))
    index = index_graph(g)
    roots, offsets = view_roots(index)
    theirs = _roots(build_timeline(g, "inference", "inference"))
    for number, name in enumerate(index.tensor_ids):
        at, bytes_ = name, 0
        while base[at] is not None:
            bytes_, at = bytes_ + said[at].byte_offset, base[at]  # type: ignore[union-attr, assignment]
        assert (index.tensor_ids[roots[number]], int(offsets[number])) == (at, bytes_)
        assert (int(theirs[0][number]), int(theirs[1][number])) == (int(roots[number]), bytes_)
    assert roots.dtype == np.int64
