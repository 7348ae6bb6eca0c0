"""The guide's page on data: its commands are commands, and its table is that of the sets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tacit.cli.data import data
from tacit.data.sets import SETS

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \|[^|]*\| ([\d,]+) / ([\d,]+) \|[^|]*\| ([^|]*) \|$", re.MULTILINE)


def test_the_commands_of_the_page_are_understood():
    block = re.search(r"^```bash\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert block
    seen = set()
    for line in block[1].splitlines():
        program, room, command, *arguments = shlex.split(line)
        assert (program, room) == ("tacit", "data")
        context = data.commands[command].make_context(command, arguments)
        assert {*context.params.get("names", ())} <= {*SETS}
        seen.add(command)
    assert seen == {*data.commands}


def test_the_table_of_the_page_is_that_of_the_sets():
    rows = ROW.findall(PAGE)
    assert [name for name, *_ in rows] == [*SETS]
    for name, train, test, licence in rows:
        known = SETS[name]
        assert (int(train.replace(",", "")), int(test.replace(",", ""))) == known.examples
        assert licence == known.licence
