"""The judge: verifier, lint and reference simulator. It shares no code with the planners.

It sees graphs, plans and the nouns of liveness (``graph``, ``liveness.model``, ``plan.model``), and works everything
else out again, slowly and from the contract: :mod:`.whole` what a graph may say, :mod:`.runs` what runs when,
:mod:`.lives` what lives when and where it shares bytes, :mod:`.simulator` where it lies, :mod:`.canonical` what it
hashes to. :mod:`.verifier` and :mod:`.lint` hold a plan against that.
"""
