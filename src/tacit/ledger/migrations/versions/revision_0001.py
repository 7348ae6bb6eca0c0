"""The entries: one table that only grows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SQLITE = (
    "CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END",
    "CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END",
)
_POSTGRESQL = (
    "CREATE FUNCTION tacit_entries_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'entries are never changed or removed'; END $$",
    "CREATE TRIGGER entries_no_change BEFORE UPDATE OR DELETE ON entries "
    "FOR EACH ROW EXECUTE FUNCTION tacit_entries_refuse()",
    "CREATE TRIGGER entries_no_truncate BEFORE TRUNCATE ON entries "
    "FOR EACH STATEMENT EXECUTE FUNCTION tacit_entries_refuse()",
)


def upgrade() -> None:
    """Makes the table, and triggers that refuse to change or remove a row."""
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
    for statement in _SQLITE if dialect == "sqlite" else _POSTGRESQL:
        op.execute(statement)


def downgrade() -> None:
    """There is no way back: it would remove what was charged."""
    raise NotImplementedError("a ledger is never taken apart")
