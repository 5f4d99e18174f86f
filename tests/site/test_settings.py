"""``docs/reference/settings.md`` lists exactly the environment variables that the program reads."""

import ast
import re

import pytest

from tests.support.paths import ROOT
from tmmu_core.base.errors import AllocationFailure
from tmmu_core.base.limits import LIMITS

NO_VARIABLES = {AllocationFailure.code_id, "TMMU_ERROR"}
"""Words of the same form: codes of errors."""


@pytest.mark.slow
def test_every_setting_is_documented_with_its_option() -> None:
    named = set()
    for folder in ("tmmu_core", "app"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    named |= {node.value} if re.fullmatch(r"TMMU_[A-Z_]*[A-Z]", node.value) else set()
    limits = {limit.variable: f"--max-{limit.name} N" for limit in LIMITS}
    table = re.findall(
        r"^\| `(TMMU_\w+)` \| (?:`([^`]+)`)? ?\|",
        (ROOT / "docs" / "reference" / "settings.md").read_text(),
        re.MULTILINE,
    )
    assert {name for name, _ in table} == (named - NO_VARIABLES) | set(limits)
    assert {name: option for name, option in table if name in limits} == limits
