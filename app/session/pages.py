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
    "snapshot": (FIRST, "snapshot"),
    "reuse": (FIRST, "reuse"),
    "fit": ("fix", ""),
    "planners": ("fix", "planners"),
    "history": ("compare", "history"),
    "shapes": ("scale", "shapes"),
    "ranks": ("scale", "ranks"),
    "report": ("export", ""),
}
"""Address of a view, or old address of a page → ``(page, view)``; the view is "" for the first view of the page."""
