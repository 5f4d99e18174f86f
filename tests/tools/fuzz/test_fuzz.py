"""A short run of the fuzzer (``make fuzz``)."""

from pathlib import Path
from random import Random

import pytest

from tests.tools.fuzz.links import parameters
from tests.tools.fuzz.targets import found, outcome, targets
from tmmu_core.formats.open_file import READERS

INPUTS = {"native": 15, "node-centric": 15, "torch": 8, "tflite": 8}
"""Number of inputs of slow targets: each graph is planned eight times."""
OF_A_LINK = 12


@pytest.mark.parametrize("name", targets())
def test_hostile_file_is_read_or_rejected(name: str) -> None:
    target = targets()[name]
    for k in range(OF_A_LINK if name.startswith("link-") else INPUTS.get(name, 60)):
        assert outcome(target, target.make(Random(f"taste/{name}/{k}"))) in ("read", "refused")


@pytest.mark.parametrize("path", found(), ids=lambda path: path.name)
def test_earlier_crash_is_read_or_rejected(path: Path) -> None:
    (ending,) = {path.suffix[1:]} & set(targets())
    assert outcome(targets()[ending], path.read_bytes()) == "refused"


def test_every_reader_and_link_parameter_is_fuzzed() -> None:
    wanted = {reader.name for reader in READERS} | {f"link-{key}" for key in parameters()}
    assert wanted <= set(targets())
