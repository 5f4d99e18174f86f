"""The table of pages, in the order of the navigation."""

PAGES: tuple[tuple[str, str], ...] = (
    ("plan", "Plan"),
    ("fix", "Fix"),
    ("compare", "Compare"),
    ("graph", "Graph"),
    ("scale", "Scale"),
    ("export", "Export"),
)
"""``(name, title)`` of each page. ``name`` is its folder in ``app/pages/`` and its address, except that the address of
the first page is ``/``."""

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
"""Old address of a moved page → ``(page, view)`` that replaces it; the view is "" for the first view of the page."""
