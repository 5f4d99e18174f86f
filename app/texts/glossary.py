"""The definitions in ``docs/glossary.md``, shown as hover texts."""

import re
from functools import cache
from html import escape

from tmmu_core.base.app_package import project_path

PATH = project_path("docs/glossary.md")
_ENTRY = re.compile(r"^\s*(?:[-*|]\s*)?\*\*(?P<term>[^*]+?)\*\*\s*(?:\([^)]*\))?\s*(?:[-—–:|.]\s*)?(?P<text>.*)$")


def parse(text: str) -> dict[str, str]:
    """Return term (lower case) → definition. An entry begins with its terms in bold and ends at a blank line."""
    entries: dict[str, str] = {}
    terms: list[str] = []
    for line in text.splitlines():
        match = _ENTRY.match(line)
        if match:
            terms = [part.strip().lower() for part in re.split(r"[,/]", match["term"]) if part.strip()]
            for term in terms:
                entries.setdefault(term, match["text"].strip(" |"))
        elif not line.strip() or line.startswith("#"):
            terms = []
        else:
            for term in terms:
                entries[term] = f"{entries[term]} {line.strip()}".strip()
    return {term: re.sub(r"[*`]|\[([^\]]+)\]\([^)]*\)", r"\1", text) for term, text in entries.items()}


@cache
def definitions() -> dict[str, str]:
    """Return all definitions; {} if the docs are not installed."""
    return parse(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}


@cache
def _terms() -> tuple[re.Pattern[str], dict[str, str]]:
    """Return ``(pattern, term → definition)``; the pattern finds all terms and their plurals, longest first."""
    known = {form: text for term, text in definitions().items() for form in (term, f"{term}s")}
    known |= definitions()
    longest = "|".join(re.escape(form) for form in sorted(known, key=lambda form: (-len(form), form)))
    # A term inside a tensor's or a file's name is not marked.
    return re.compile(rf"(?<![\w./@:#=-])(?:{longest})(?![\w/@=-]|\.\w)"), known


def explained(html: str) -> str:
    """Return escaped HTML with the definition of each glossary term as hover text of its first occurrence."""
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
    **dict.fromkeys(("tensor live", "memory held", "buffer of", "used by"), "storage"),
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
"""Label of a card or a column → its term, for labels that differ from their term."""


def define(label: str) -> str:
    """Return the definition of a term, or of the term of a label; "" for an unknown one."""
    return definitions().get(TERM_OF.get(label, label).lower(), "")
