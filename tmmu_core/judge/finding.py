"""What the judge says: findings, and the verdict that they make. Values, never errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["error", "warning"]

MOST_PER_RULE = 50
"""A plan that breaks one rule a million times is told so fifty times, and how often in all."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a plan (``error``) or worth knowing (``warning``)."""

    rule: str
    """A word to test for; the verifier's are in ``verifier.RULES``, the lint's in ``lint.RULES``."""
    severity: Severity
    message: str
    """A sentence that names everything concerned."""
    tensor: str = ""
    other: str = ""
    """The second tensor, where two are concerned."""
    arena: str = ""
    step: int = -1


@dataclass(frozen=True, repr=False)
class Verdict:
    """What was checked and what was found. ``ok``: no error among the findings (warnings may be)."""

    findings: tuple[Finding, ...] = ()
    checked: tuple[str, ...] = ()
    """Names of the rules that were tried."""
    left_out: tuple[tuple[str, str], ...] = ()
    """``(rule, why)`` of those that were not: they do not apply to this plan, or what they ask was not given."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make the verdict red."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that do not."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def __repr__(self) -> str:
        return f"<Verdict {str(self)[:200]!r}, {counted(len(self.checked), 'rule')} checked>"

    def __str__(self) -> str:
        if self.ok:
            return "verified" + (f", {counted(len(self.warnings), 'warning')}" if self.warnings else "")
        return said(len(self.errors), self.errors[0].message)


def counted(n: int, noun: str) -> str:
    """``1 warning``, ``1,200 warnings``."""
    return f"{n:,} {noun}" + ("s" if n != 1 else "")


def said(found: int, first: str) -> str:
    """How many findings there are, and what the first says, in a line."""
    return f"{counted(found, 'finding')}{', the first' if found != 1 else ''}: {first}"


def shortened(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The first :data:`TOLD_PER_RULE` of every rule, and one more saying how many there were."""
    kept: list[Finding] = []
    seen: Counter[str] = Counter()
    severity: dict[str, Severity] = {}
    for finding in findings:
        seen[finding.rule] += 1
        severity.setdefault(finding.rule, finding.severity)
        if seen[finding.rule] <= MOST_PER_RULE:
            kept.append(finding)
    for rule, count in seen.items():
        if count > MOST_PER_RULE:
            kept.append(Finding(rule, severity[rule], f"… and {count - MOST_PER_RULE:,} more findings of this rule."))
    return tuple(kept)


def error(rule: str, message: str, **fields: Any) -> Finding:
    """A finding that makes a plan invalid."""
    return Finding(rule, "error", message, **fields)
