"""Findings, recomputed certificates and the verdict of a check. Findings are values; nothing is raised."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["error", "warning"]

Examined = Literal["graph", "rows", "totals"]

MOST_PER_RULE = 50
"""Maximum number of findings that are listed per rule."""


@dataclass(frozen=True)
class Finding:
    """One violated rule (``error``), or a condition to know about (``warning``)."""

    rule: str
    """A key of ``verify.RULES`` or of ``lint.RULES``."""
    severity: Severity
    message: str
    """One sentence with the tensors, arenas and figures concerned."""
    tensor: str = ""
    other: str = ""
    """The second tensor of a pair."""
    arena: str = ""
    step: int = -1


@dataclass(frozen=True)
class Certificate:
    """The part of an arena's certificate that the judge recomputed."""

    arena: str
    status: str
    """``optimal``: the extent equals the recomputed bound. ``claimed``: the file claims a larger bound."""
    lower_bound_bytes: int
    """The recomputed lower bound, at most the bound of the file."""
    claimed_bytes: int | None
    """The bound that the file claims, if it is larger."""
    witness: tuple[str, ...] = ()
    witness_step: int = -1
    reuse_cost_lower_bound: int | None = None
    """The recomputed lower bound of the reuse cost; ``None`` for a plan without reuse penalties."""


@dataclass(frozen=True, repr=False)
class Verdict:
    """The rules that were checked and their findings. ``ok``: no finding is an error."""

    findings: tuple[Finding, ...] = ()
    checked: tuple[str, ...] = ()
    """Names of the rules that were checked."""
    left_out: tuple[tuple[str, str], ...] = ()
    """``(rule, reason)`` of the rules that were not checked: not applicable, or an input is missing."""
    certificates: tuple[Certificate, ...] = ()
    """The recomputed lower bound and status per arena, by name; empty for a plan with invalid columns."""
    examined: Examined = "rows"
    """The scope of the check: ``graph`` (its rows and its graph), ``rows``, or ``totals`` (of a digest)."""

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings with severity ``error``."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings with severity ``warning``."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def __repr__(self) -> str:
        return f"<Verdict {str(self)[:200]!r}, {counted(len(self.checked), 'rule')} checked>"

    def __str__(self) -> str:
        if self.ok:
            return "verified" + (f", {counted(len(self.warnings), 'warning')}" if self.warnings else "")
        return summary(len(self.errors), self.errors[0].message)


def counted(n: int, noun: str) -> str:
    """Format a count with its noun: ``1 warning``, ``1,200 warnings``."""
    return f"{n:,} {noun}" + ("s" if n != 1 else "")


def summary(count: int, first: str) -> str:
    """Summarize findings in one line: their number and the first message."""
    return f"{counted(count, 'finding')}{', the first' if count != 1 else ''}: {first}"


def limited(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return at most :data:`MOST_PER_RULE` findings per rule, then the number of further findings of each rule."""
    by_rule: dict[str, list[Finding]] = {}
    listed: list[Finding] = []
    for finding in findings:
        of_rule = by_rule.setdefault(finding.rule, [])
        of_rule.append(finding)
        if len(of_rule) <= MOST_PER_RULE:
            listed.append(finding)
    for rule, of_rule in by_rule.items():
        if (more := len(of_rule) - MOST_PER_RULE) > 0:
            listed.append(Finding(rule, of_rule[0].severity, f"… and {more:,} more findings of this rule."))
    return tuple(listed)


def error(rule: str, message: str, **fields: Any) -> Finding:
    """Return a finding with severity ``error``."""
    return Finding(rule, "error", message, **fields)


def warning(rule: str, message: str, **fields: Any) -> Finding:
    """Return a finding with severity ``warning``."""
    return Finding(rule, "warning", message, **fields)
