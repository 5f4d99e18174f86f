"""How things are said: words, marks, definitions, refusals, the style sheet. Values in, text out."""
