"""The canvas component, which draws lifetimes, slots and the arena map of a plan, and the drawing of the graph."""
