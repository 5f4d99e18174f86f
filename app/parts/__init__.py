"""Pieces that several pages share: the frame around them, the details of a tensor, the table, the pickers."""
