"""The verifier: checks of a finished plan that share no code with the planners."""
