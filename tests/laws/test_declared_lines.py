"""What a module declares where it is read, constants and defaults, is what its golden lines say."""

from __future__ import annotations

import pytest

from tests.declared import declared, files, kept


@pytest.mark.parametrize("file", files())
def test_a_module_declares_what_its_golden_lines_say(file: str) -> None:
    assert declared(file) == kept().get(file, [])


def test_every_golden_line_is_of_a_module() -> None:
    assert set(kept()) <= set(files())
