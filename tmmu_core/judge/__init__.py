"""The judge: verifier, lint and reference simulator. It shares no code with the planners.

It sees graphs, plans and the nouns of liveness (``graph``, ``liveness.model``, ``plan.model``), and recomputes
everything else slowly from the contract: :mod:`.whole` valid graphs, :mod:`.runs` what runs when, :mod:`.lives` what
lives when and where it shares bytes, :mod:`.simulator` where it lies, :mod:`.canonical` what it hashes to.
:mod:`.verifier` and :mod:`.lint` hold a plan against that.
"""
