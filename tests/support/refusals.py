"""Errors reduced to what two implementations must agree on."""

from collections.abc import Callable
from typing import Any

from tmmu_core.base.errors import ContractError


def result_or_refusal(compute: Callable[[], Any]) -> Any:
    """Return the result, or the refusal as code, reason, condition, node, tensor and arena."""
    try:
        return compute()
    except ContractError as error:
        details = error.diagnostics
        arena = details["arena"] if error.code_id == "ARENA_TOO_SMALL" else ""
        tensor = "" if details.get("capacity") else details.get("tensor") or ""
        return (
            error.code_id,
            details.get("reason"),
            details.get("condition"),
            details.get("node_id") or "",
            tensor,
            arena,
        )
