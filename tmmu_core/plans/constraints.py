"""Constraints and costs of a placement beyond live ranges, by tensor id (contract §12, "Reuse costs")."""

import msgspec


class Constraints(msgspec.Struct, frozen=True, omit_defaults=True):
    """Relations between the tensors of a plan. A tensor with gaps has one row per live part; an id means all of them.

    Tensors of zero bytes share no byte and are free of every relation.
    """

    separations: tuple[tuple[str, str], ...] = ()
    """Pairs that share no byte at any step."""
    colocations: tuple[tuple[str, str], ...] = ()
    """Pairs at one offset."""
    exclusions: tuple[tuple[str, str], ...] = ()
    """Pairs that may share bytes although their live ranges overlap: they are never live together."""
    pinned: dict[str, int] = {}
    """Tensor → its offset."""
    reserved: dict[str, tuple[tuple[int, int], ...]] = {}
    """Arena → reserved byte ranges."""
    reuse_penalties: tuple[tuple[str, str, int], ...] = ()
    """``[first, second, cost]``: the cost is paid once where the byte ranges of the two overlap."""
