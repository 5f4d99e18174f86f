"""The definitions in ``docs/glossary.md``, shown as hover texts."""

import re
from functools import cache
from html import escape

from tmmu_core.base.app_package import project_path

PATH = project_path("docs/glossary.md")
_ENTRY = re.compile(r"^\*\*([^*]+)\*\* — (.+)$", re.M)  # synonyms in bold, separated by commas, and definition


@cache
def definitions() -> dict[str, str]:
    """Return term (lower case) → definition; {} if the docs are not installed."""
    entries = _ENTRY.findall(PATH.read_text(encoding="utf-8")) if PATH.exists() else []
    return {term: text.replace("`", "") for terms, text in entries for term in terms.lower().split(", ")}


@cache
def _terms() -> tuple[re.Pattern[str], dict[str, str]]:
    """Return ``(pattern, term → definition)`` of all terms and their plurals; the pattern prefers longer terms."""
    known = {f"{term}s": text for term, text in definitions().items()} | definitions()
    longest = "|".join(re.escape(form) for form in sorted(known, key=lambda form: (-len(form), form)))
    # A term inside a tensor's or a file's name is not marked.
    return re.compile(rf"(?<![\w./@:#=-])(?:{longest})(?![\w/@=-]|\.\w)"), known


def explained(html: str) -> str:
    """Return ``html``, an escaped text, with each definition as hover text where its term or a synonym first occurs."""
    finds, known = _terms()
    if not known:
        return html
    marked: set[str] = set()

    def mark(found: re.Match[str]) -> str:
        text = known[found[0]]
        if text in marked:
            return found[0]
        marked.add(text)
        return f'<abbr title="{escape(text, quote=True)}">{found[0]}</abbr>'

    return finds.sub(mark, html)


TERM_OF = {
    **dict.fromkeys(("memory held", "buffer of", "used by"), "storage"),
    **dict.fromkeys(("written by", "first write"), "birth"),
    **dict.fromkeys(("last read", "memory freed", "freed"), "death"),
    **dict.fromkeys(("idle", "idle steps", "bytes × idle steps", "longest idle range"), "idle step"),
    **dict.fromkeys(("previous in slot", "next in slot", "use of slot", "tensors"), "tenant"),
    **dict.fromkeys(("operator", "producer"), "node"),
    "tensor live": "live range",
    "view of": "view",
    "reuses": "taken",
    "spilled": "spill",
    "steps": "step",
    "hex": "offset",
}
"""Label of a card, a table or a column → its term, for labels that differ from their term."""


def define(label: str) -> str:
    """Return the definition of a term, or of the term of a label; "" for an unknown one."""
    return definitions().get(TERM_OF.get(label, label).lower(), "")
