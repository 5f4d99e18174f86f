"""Classes under the names of the source documents: the r10 planner and heliaAOT's memory plan."""
