"""Check the relations and the reuse cost of a plan pair by pair, in O(rows²).

Like :mod:`.all_pairs` it is short enough to check by reading, and shares no code with the planners or the verifier.
"""

from collections.abc import Iterator

from tmmu_core.plans.model import Constraints, Plan, TensorRow


def relation_faults(plan: Plan) -> Iterator[str]:
    """Yield a text for every violated separation, colocation, pin and reserved range, and for a wrong reuse cost."""
    terms, paid = plan.constraints or Constraints(), set()
    rows = list(plan.rows())
    for a in rows:
        if terms.pinned.get(name_of(a), a.offset_bytes) != a.offset_bytes:
            yield f"{a.tensor_id} is not at its pinned offset"
        for low, high in terms.reserved.get(a.arena, ()):
            if max(a.offset_bytes, low) < min(a.offset_bytes + a.size_bytes, high):
                yield f"{a.tensor_id} uses reserved bytes"
        for b in rows:
            pair, share = (name_of(a), name_of(b)), share_bytes(a, b)
            if share and pair in terms.separations:
                yield f"{a.tensor_id} and {b.tensor_id} are not separated"
            if a.offset_bytes != b.offset_bytes and pair in terms.colocations:
                yield f"{a.tensor_id} and {b.tensor_id} are not colocated"
            paid |= {k for k, term in enumerate(terms.reuse_penalties) if share and set(term[:2]) == set(pair)}
    cost = sum(terms.reuse_penalties[k][2] for k in paid)
    if plan.constraints is not None and plan.metrics["totals"]["reuse_cost"] != cost:
        yield f"the reuse cost is {cost}"


def name_of(row: TensorRow) -> str:
    """Return the tensor of a row, which may be one of its live parts."""
    return row.tensor_id.split("@part")[0]


def share_bytes(a: TensorRow, b: TensorRow) -> bool:
    """Return whether two rows have a byte in common, at whatever steps."""
    end = min(a.offset_bytes + a.size_bytes, b.offset_bytes + b.size_bytes)
    return a.arena == b.arena and max(a.offset_bytes, b.offset_bytes) < end
