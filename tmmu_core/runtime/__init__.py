"""The plan applied: real memory, zero and debug fill, commit, and the shadow replay that proves a plan by running."""
