"""What the rooms of graphs and of their readers answer on many small inputs, a line each, kept in golden files.

A *kind* is a function from a number to a line: it makes an input of that number and says what becomes of it, in words
and counts as far as they are short, with a digest of the rest. ``tests/laws/test_made.py`` compares each line with
the golden files ``made_of_*.json``; ``python -m tests.made`` writes these anew. Where an answer is meant to change, the
difference of lines is read like code; a digest that moved says which input to look at.
"""
