"""The one component that draws rectangles: lifetimes, slots and the arena map, on one 2-D canvas."""
