"""Findings and the verdict of a check. Findings are values; nothing is raised."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from tmmu_core.plans.model import ArenaSummary

Severity = Literal["error", "warning"]

MOST_PER_RULE = 50  # maximum number of findings that are listed per rule and severity


@dataclass(frozen=True)
class Finding:
    """One violated rule (``error``), or a condition to know about (``warning``)."""

    rule: str  # a key of ``verify.RULES`` or ``lint.RULES``
    severity: Severity
    message: str  # one sentence with the tensors, arenas and figures concerned
    tensor: str = ""
    other: str = ""  # the second tensor of a pair
    arena: str = ""
    step: int = -1


@dataclass(frozen=True, repr=False)
class Verdict:
    """The rules that were checked and their findings. ``ok``: no finding is an error."""

    findings: tuple[Finding, ...] = ()
    checked: tuple[str, ...] = ()  # names of the rules that were checked
    not_checked: tuple[tuple[str, str], ...] = ()  # ``(rule, reason)``: not applicable, or an input is missing
    arenas: tuple[ArenaSummary, ...] = ()  # with recomputed bound and status; empty for invalid columns and for lint
    examined: Literal["graph", "rows", "totals"] = "rows"  # rows against the graph, rows alone, or totals of a digest

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not self.errors

    @property
    def only_over_capacity(self) -> bool:
        """Whether every error is an exceeded capacity; false without errors."""
        return not self.ok and all(error.rule == "capacity" for error in self.errors)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings with severity ``error``."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings with severity ``warning``."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def __repr__(self) -> str:
        return f"<Verdict {str(self)[:200]!r}, {_count(len(self.checked), 'rule')} checked>"

    def __str__(self) -> str:
        if self.ok:
            return "verified" + (f", {_count(len(self.warnings), 'warning')}" if self.warnings else "")
        total = len(self.errors)
        return f"{_count(total, 'error')}{', the first' if total > 1 else ''}: {self.errors[0].message}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("s" if n != 1 else "")


def limited(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return at most :data:`MOST_PER_RULE` findings per rule and severity, and findings that count the omitted ones."""
    total = Counter[tuple[str, Severity]]()
    listed: list[Finding] = []
    for finding in findings:
        key = finding.rule, finding.severity
        total[key] += 1
        if total[key] <= MOST_PER_RULE:
            listed.append(finding)
    for (rule, severity), count in total.items():
        if count > MOST_PER_RULE:
            omitted = _count(count - MOST_PER_RULE, "more finding")
            listed.append(Finding(rule, severity, f"… and {omitted} of this rule."))
    return tuple(listed)


def error(rule: str, message: str, **fields: Any) -> Finding:
    """Return a finding with severity ``error``."""
    return Finding(rule, "error", message, **fields)


def warning(rule: str, message: str, **fields: Any) -> Finding:
    """Return a finding with severity ``warning``."""
    return Finding(rule, "warning", message, **fields)
