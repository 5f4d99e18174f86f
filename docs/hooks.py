"""Hooks of the documentation site: add the list of decisions, the help of the commands, and the viewer page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent


def on_config(config: Any) -> Any:
    """Add the decisions to the navigation, sorted by number."""
    decisions = [{_title(path): f"decisions/{path.name}"} for path in sorted((DOCS / "decisions").glob("*.md"))]
    if not any("Decisions" in entry for entry in config.nav):
        config.nav.append({"Decisions": decisions})
    return config


def on_post_build(config: Any) -> None:
    """Write the page ``viewer.html``, which opens plans without a server."""
    from app.report.html_report import viewer_page

    (Path(config["site_dir"]) / "viewer.html").write_bytes(viewer_page())


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the Markdown of a page; the page of the command line gets the texts of ``--help``."""
    return (
        markdown.replace("<!-- commands -->", commands()) if page.file.src_uri == "reference/commands.md" else markdown
    )


def commands() -> str:
    """Return each command with its help and options as Markdown."""
    import typer

    from app.cli.main import build

    group: Any = typer.main.get_command(build())
    parts = []
    for name, command in group.commands.items():
        parts += [f"## tmmu {name}", "", _plain(command.help or ""), "", "| option | |", "|---|---|"]
        for option in command.params:
            words = ", ".join(f"`{word}`" for word in option.opts if word.startswith("-")) or f"`{option.name.upper()}`"
            parts.append(f"| {words} | {_plain(getattr(option, 'help', None) or '')} |")
        parts.append("")
    return "\n".join(parts)


def _plain(text: str) -> str:
    return re.sub(r"([\[\]|<>*_])", r"\\\1", " ".join(text.split()))


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
