"""The judge: verifier, lint and reference implementation. It shares no code with the planners.

It reads graphs and plans, and recomputes everything else slowly from the contract:
:mod:`.reference.schedule` steps, :mod:`.reference.liveness` live ranges and storages, :mod:`.canonical_hashes` hashes.
:mod:`.verifier` and :mod:`.lint` compare a plan with these results.
"""
