"""The pages in the order of the navigation, and the addresses that redirect to a page."""

PAGES = tuple((name, name.capitalize()) for name in ("plan", "fix", "compare", "graph", "scale", "export"))
"""``(name, title)`` of each page. ``name``: its folder in ``app/pages/``, and its address (first page: ``/``)."""

FIRST_PAGE = PAGES[0][0]
REDIRECTS = {  # address of a view, or old address of a page → (page, view); "": the first view of the page
    **{view: (FIRST_PAGE, view) for view in ("peak", "device", "fragmentation", "snapshot", "reuse")},
    "fit": ("fix", ""),
    "planners": ("fix", "planners"),
    "history": ("compare", "history"),
    "shapes": ("scale", "shapes"),
    "ranks": ("scale", "ranks"),
    "report": ("export", ""),
}
