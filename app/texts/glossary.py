"""The definitions in ``docs/glossary.md``, shown as hover texts."""

import re
from functools import cache
from html import escape

from tmmu_core.base.app_package import project_path

PATH = project_path("docs/glossary.md")
_ENTRY = re.compile(r"^\*\*([^*]+)\*\* — (.+)$", re.M)  # (terms separated by commas, definition)


@cache
def definitions() -> dict[str, str]:
    """Return term (lower case) → definition; {} if the docs are not installed."""
    entries = _ENTRY.findall(PATH.read_text(encoding="utf-8")) if PATH.exists() else []
    return {term: text.replace("`", "") for terms, text in entries for term in terms.lower().split(", ")}


@cache
def _terms() -> tuple[re.Pattern[str], dict[str, str]]:
    """Return ``(pattern, term → definition)`` of all terms and their plurals; the pattern prefers longer terms."""
    definition_of = {f"{term}s": definition for term, definition in definitions().items()} | definitions()
    alternatives = "|".join(re.escape(term) for term in sorted(definition_of, key=lambda term: (-len(term), term)))
    # The pattern does not match a part of the name of a tensor or a file.
    return re.compile(rf"(?<![\w./@:#=-])(?:{alternatives})(?![\w/@=-]|\.\w)"), definition_of


def explained(html: str) -> str:
    """Return ``html``, an escaped text, with the definition of each term as hover text at its first occurrence."""
    pattern, definition_of = _terms()
    if not definition_of:
        return html
    shown: set[str] = set()

    def mark(found: re.Match[str]) -> str:
        definition = definition_of[found[0]]
        if definition in shown:
            return found[0]
        shown.add(definition)
        return f'<abbr title="{escape(definition, quote=True)}">{found[0]}</abbr>'

    return pattern.sub(mark, html)


TERM_OF = {
    **dict.fromkeys(("memory held", "buffer of", "used by"), "storage"),
    **dict.fromkeys(("written by", "first write"), "birth"),
    **dict.fromkeys(("last read", "memory freed", "freed"), "death"),
    **dict.fromkeys(("idle", "idle steps", "bytes × idle steps", "longest idle range"), "idle step"),
    **dict.fromkeys(("previous in slot", "next in slot", "use of slot", "tensors"), "tenant"),
    **dict.fromkeys(("operator", "producer"), "node"),
    "tensor live": "live range",
    "memory": "platform memory",
    "view of": "view",
    "reuses": "taken",
    "spilled": "spill",
    "steps": "step",
    "hex": "offset",
}
"""Label in a card or table → term of the glossary, for labels that are not terms."""


def define(label: str) -> str:
    """Return the definition of a term, or of a label's term; "" for an unknown label."""
    return definitions().get(TERM_OF.get(label, label).lower(), "")
