"""The operators of the specification, with the function that implements each (TMMU v2 0.G, 0.H).

The ``failure_operator`` of an error record is one of these names.
"""

from collections.abc import Mapping

SPEC_VERSION = "UML_OS.TMMU.PrepareMemory_v2"  # the main operator of the specification

OPERATORS: Mapping[str, str] = {
    SPEC_VERSION: "tmmu_core.runtime.apply:prepare_memory",
    "UML_OS.TMMU.PlanMemory_v2": "tmmu_core.plans.making.engine:solve",
    "UML_OS.TMMU.ApplyPlan_v1": "tmmu_core.runtime.apply:apply_plan",
    "UML_OS.Model.AnalyzeLiveness_v1": "tmmu_core.liveness.analyse:analyse",
    "UML_OS.TMMU.AssignLogicalSlots_v1": "tmmu_core.planners.slots:assign_slots",
    "UML_OS.TMMU.MapToVirtualAddresses_v1": "tmmu_core.planners.slots:slot_offsets",
    "UML_OS.TMMU.ZeroTensor_v1": "tmmu_core.runtime.apply:Applied.enter",
    "UML_OS.TMMU.DebugFillTensor_v1": "tmmu_core.runtime.apply:Applied.debug_fill",
    "UML_OS.TMMU.CommitExecution_v1": "tmmu_core.runtime.apply:commit_execution",
    "UML_OS.Error.Emit_v1": "tmmu_core.base.errors:ContractError.record",
}
