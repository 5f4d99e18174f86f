"""The pages, in the order of the navigation: the one list of them."""

PAGES: tuple[tuple[str, str], ...] = (
    ("plan", "Plan"),
    ("fix", "Fix"),
    ("compare", "Compare"),
    ("graph", "Graph"),
    ("scale", "Scale"),
    ("export", "Export"),
)
"""``(name, title)``: a page's file in ``views/`` and its address; its title. The first is where a session begins."""

FIRST = PAGES[0][0]
MOVED = {
    "peak": (FIRST, "peak"),
    "device": (FIRST, "device"),
    "fragmentation": (FIRST, "fragmentation"),
    "fit": ("fix", ""),
    "planners": ("fix", "planners"),
    "history": ("compare", "history"),
    "shapes": ("scale", "shapes"),
    "ranks": ("scale", "ranks"),
    "report": ("export", ""),
}
"""Address of an earlier version → page and view."""
