"""The judge: verifier, lint and reference implementation. It shares no code with the planners.

From the contract, :mod:`.reference.schedule` computes the steps of a graph, :mod:`.reference.liveness` the live ranges
and storages, and :mod:`.canonical_hashes` the hashes, all slowly. :mod:`.verifier` and :mod:`.lint` compare a plan with
these results.
"""
