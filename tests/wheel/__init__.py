"""The wheel: built, installed in an empty environment, and used."""
