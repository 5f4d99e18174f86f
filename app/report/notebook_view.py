"""The drawing of a plan in a notebook: HTML that needs no network and no notebook extension."""

import base64
import json

from markupsafe import escape

from app.canvas.pack import pack_plan
from app.canvas.script import canvas_script
from app.report.html_report import first_arena
from tmmu_core.graph.native import unpacking
from tmmu_core.plans.model import Plan

HEIGHT = 420
"""Height of the drawing in pixels."""
ROOM = 110
"""Height of heading, curve of live bytes and legend in pixels."""

_PAGE = """<!doctype html><meta charset="utf-8"><title>plan</title><body style="margin:0;background:#fff">
<div id="map" style="font:14px system-ui,sans-serif"></div><script>{script}</script><script>
const state = {{ view: "map", link: "notebook", arena: {arena}, height: {height} }};
const map = document.getElementById("map"), plan = tmmuCanvas.unpack("{packed}");
plan.then((token) => tmmuCanvas.show(map, {{ plan: token, ...state }}, () => {{}}));
</script></body>"""


def notebook_view(plan: Plan, text: str) -> str:
    """Return HTML with ``text`` and an interactive arena map of a plan.

    The map is a document in an ``iframe``. It needs scripts, so only trusted notebooks show it.
    """
    packed = base64.b64encode(unpacking.pack(pack_plan(plan).data)).decode("ascii")
    page = escape(
        _PAGE.format(script=canvas_script(), packed=packed, height=HEIGHT, arena=json.dumps(first_arena(plan)))
    )
    frame = f'<iframe title="Arena map" srcdoc="{page}" style="width:100%;height:{HEIGHT + ROOM}px;border:0"></iframe>'
    return f'<div style="max-width:1100px"><code>{escape(text)}</code>{frame if len(plan) else ""}</div>'
