"""The ledger's tables, version by version, as Alembic migrations."""
