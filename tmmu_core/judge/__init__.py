"""The judge: verifier, lint and reference implementation of the contract. It shares no code with the planners."""
