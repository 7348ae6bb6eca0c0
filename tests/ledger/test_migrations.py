from __future__ import annotations

from importlib.resources import files

import pytest
from alembic.script import ScriptDirectory

from tacit.ledger.migrations.versions import revision_0001
from tacit.ledger.store import VERSION

SCRIPTS = files("tacit.ledger").joinpath("migrations")


def test_newest_migration_is_the_version_that_is_written():
    scripts = ScriptDirectory(str(SCRIPTS))
    assert scripts.get_heads() == [VERSION]
    # Numbers in order, so that an older tacit can tell that tables are newer than it is.
    numbers = [int(one.revision) for one in scripts.walk_revisions()]
    assert numbers == list(range(len(numbers), 0, -1))


def test_there_is_no_way_back():
    with pytest.raises(NotImplementedError, match="never taken apart"):
        revision_0001.downgrade()
