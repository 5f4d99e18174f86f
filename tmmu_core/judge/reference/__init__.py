"""The reference implementation of the contract, in plain Python."""
