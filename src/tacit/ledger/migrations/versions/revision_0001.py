"""The entries: one table that only grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SQLITE = (
    "CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END",
    "CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END",
)
POSTGRESQL = (
    "CREATE FUNCTION tacit_entries_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'entries are never changed or removed'; END $$",
    "CREATE TRIGGER entries_no_change BEFORE UPDATE OR DELETE ON entries "
    "FOR EACH ROW EXECUTE FUNCTION tacit_entries_refuse()",
    "CREATE TRIGGER entries_no_truncate BEFORE TRUNCATE ON entries "
    "FOR EACH STATEMENT EXECUTE FUNCTION tacit_entries_refuse()",
)


def upgrade(op: Operations) -> None:
    """Makes the table, and triggers that refuse to change or remove a row.

    ``op`` is given: Alembic's own is one for all threads, and would be another ledger's.
    """
    op.create_table(
        "entries",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
            autoincrement=False,
        ),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("budget", "kind", "at", "body", "previous", "hash")
        ),
    )
    dialect = op.get_bind().dialect.name
    for statement in SQLITE if dialect == "sqlite" else POSTGRESQL:
        op.execute(statement)


def downgrade() -> None:
    """There is no way back: it would remove what was charged."""
    raise NotImplementedError("a ledger is never taken apart")
