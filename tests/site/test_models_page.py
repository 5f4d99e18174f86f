"""``docs/measured/models.md`` lists every real model, and no plan is above that of a peer."""

from __future__ import annotations

from benchmarks import models
from sample_graphs import make


def table() -> dict[str, list[str]]:
    """Model → its cells."""
    lines = [line for line in models.PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert tuple(rows[0]) == models.COLUMNS
    return {row[0]: row for row in rows[1:] if len(row) == len(models.COLUMNS)}


def test_page_has_a_row_for_every_real_model() -> None:
    samples = {sample.file.split(".")[0] for sample in make.CATALOGUE if sample.group == make.MODEL}
    others = {file.stem for file in models.TFLITE.glob("*.tflite")} | {
        file.name.split(".")[0] for file in models.XLA_DUMPS
    }
    assert set(table()) == samples | others


def test_no_best_plan_is_above_its_peers() -> None:
    peers = {name: row[-1] for name, row in table().items() if row[-1]}
    assert len(peers) == len(models.PEERS) + len(models.XLA_DUMPS)
    for name, peer in peers.items():
        assert int(table()[name][7].replace(",", "")) <= int(peer.rpartition(" ")[2].replace(",", ""))


def row(name: str, bound: int, best: int, within: int = 0) -> models.Row:
    return models.Row(name, "", 1, 1, 1, bound, best, best, "", 0, 0, 0, "XLA 9" if within else "", within)


def test_remaining_gap_is_explained() -> None:
    assert "no plan is below" in models.gaps([row("a", 7, 7)])
    text = models.gaps([row("a", 7, 7), row("b", 1_000, 2_000)])
    assert "b (1,000 bytes)" in text.replace("\n", " ")
    assert "Hand-offs" in text
    assert "step of the alignment" in models.gaps([row("c", 7, 9)]).replace("\n", " ")


def test_page_has_the_temporaries_of_every_dump() -> None:
    assert "d: XLA 9; its temporaries at best within their allocation 8;" in models.dumps([row("d", 7, 7, 8)]).replace(
        "\n", " "
    )
