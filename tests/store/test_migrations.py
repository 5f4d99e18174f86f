"""The revisions make the tables that the code names, and the code names the last of them."""

from __future__ import annotations

from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

import tmmu_core.store
from tmmu_core.store.store import Store
from tmmu_core.store.tables import HEAD, METADATA, U64

REVISIONS = ScriptDirectory(str(Path(tmmu_core.store.__file__).parent / "migrations"))


def test_the_revisions_make_the_tables(url: str) -> None:
    store = Store.at(url, create=True)
    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
    store.close()


def test_the_last_revision_is_the_one_that_is_read() -> None:
    assert REVISIONS.get_heads() == [HEAD]


def test_opening_again_changes_nothing(url: str) -> None:
    Store.at(url, create=True).close()
    store = Store.at(url)
    assert store.lines() == ()
    store.close()


def test_nothing_but_the_number_of_a_run_counts_up_by_itself() -> None:
    made = {
        name: str(CreateTable(table).compile(dialect=postgresql.dialect())) for name, table in METADATA.tables.items()
    }
    assert {name: text.count("SERIAL") for name, text in made.items() if "SERIAL" in text} == {"runs": 1}


def test_the_keys_that_the_code_names_are_those_that_the_revisions_make(url: str) -> None:
    store = Store.at(url, create=True)
    with store.engine.connect() as connection:
        made = {name: inspect(connection).get_pk_constraint(name)["constrained_columns"] for name in METADATA.tables}
    store.close()
    assert made == {name: [column.name for column in table.primary_key] for name, table in METADATA.tables.items()}


def test_whole_numbers_of_64_bits_come_back_and_sort_as_themselves_up_to_half_of_them() -> None:
    kind, dialect = U64(), postgresql.dialect()
    numbers = (None, 0, 1, 2**63 - 1, 2**63, 2**64 - 1)
    kept = [kind.process_bind_param(number, dialect) for number in numbers]
    assert kept == [None, 0, 1, 2**63 - 1, -(2**63), -1]
    assert tuple(kind.process_result_value(number, dialect) for number in kept) == numbers
