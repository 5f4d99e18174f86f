"""The clauses of the five documents, each with a row in ``docs/conformance.md``: headings and their named parts.

A clause of the first document has only its number; those of other documents begin with the document's number.
"""

HEADER = tuple(f"0.{letter}" for letter in "0ABCDEFGHIJKLMN")
MODEL = tuple(f"I.{letter}" for letter in "ABCDE")
VALIDATION = ("VII.A", "VII.B", "VII.C", "VIII.A", "VIII.B", "VIII.C")
OPERATORS = (
    *("PrepareMemory_v2", "AnalyzeLiveness_v1", "AssignLogicalSlots_v1", "MapToVirtualAddresses_v1", "ZeroTensor_v1"),
)

DOCUMENTS: dict[str, tuple[str, ...]] = {
    "000": (
        *HEADER,
        "0.Z",
        *MODEL,
        *(f"II.{letter}" for letter in "FGHIKJ"),
        *("3", "4"),
        *OPERATORS,
        *("PlanMemory_v2", "ApplyPlan_v1", "DebugFillTensor_v1", "CommitExecution_v1"),
        *("6", "6 guarantees", "7 logging rule", "7 trace schema", "7 metric schema", "7 comparability"),
        *VALIDATION,
        *("10 contents", "10 serialization", "10 restore", "10 dynamic/alias policy"),
    ),
    "001": (
        *(clause for clause in HEADER if clause != "0.J"),
        *MODEL,
        *("3", "4"),
        *OPERATORS,
        *("6", "6 guarantees", "7 trace schema", "7 metric schema"),
        *VALIDATION,
        *("10 contents", "10 serialization", "10 restore"),
    ),
    "002": (
        *("purpose", "dependencies", "r10-a AllocationPlan", "r10-a MemoryBinding", "r10-b first-fit decreasing"),
        *("r10-b align_up", "r10-b peak", "r10-c is_valid", "exit criteria"),
    ),
    "003": (
        *("ArenaRole", "TensorBinding", "TensorLifetime", "add_op", "merge", "TensorAllocation", "ArenaUsage"),
        *("is_staged", "allocate", "MemoryConstraint", "MemoryPlan", "get_allocation", "MemoryPlannerType"),
        *("TensorAttributes", "MemoryFreeBlock", "MemoryActiveBlock"),
    ),
    "004": (
        *("render_plan", "RenderArena", "RenderConstantBlob", "RenderMemoryPlan", "staged_constant_arenas"),
        *("has_staged_constants", "all_arenas", "build_render_plan"),
    ),
}


def rows_wanted() -> list[str]:
    """Return every clause, the first cell of its rows."""
    return [
        clause if document == "000" else f"{document} {clause}"
        for document, clauses in DOCUMENTS.items()
        for clause in clauses
    ]
