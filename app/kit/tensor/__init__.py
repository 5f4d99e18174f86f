"""The drawing of a plan, the tables of tensors, and the cards of the selected tensor."""
