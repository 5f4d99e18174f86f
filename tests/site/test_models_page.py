"""``docs/measured/models.md`` lists every real model, and no plan is above that of a peer."""

from benchmarks import models
from sample_graphs import make


def table() -> dict[str, list[str]]:
    """Return model → its cells."""
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
