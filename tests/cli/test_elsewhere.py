"""The command's tests pass anywhere: at another width, home, locale and clock, in a deep folder.

They are run once more in a process of their own. ``make test`` takes a part of them there, and
``make test-slow`` all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DEEP = "a-folder-with-a-long-name/" * 5  # beyond any width: lines that name a file are broken
SOME = (
    "test_audit.py::test_a_contradiction_is_status_1",
    "test_ledger.py::test_help",
    "test_plan.py::test_bad_input_is_refused_in_one_line_that_names_it",
    "test_plan.py::test_help_and_version",
    "test_plan.py::test_page_shows_every_accountant_in_plain_text",
    "test_plan.py::test_plot_makes_its_folder_and_says_where_it_is",
    "test_program.py::test_a_refusal_names_the_help_of_its_own_command",
    "test_report.py::test_the_report_is_written_and_named",
    "test_report.py::test_a_folder_without_a_run_is_refused",
    "test_report.py::test_a_tampered_statement_is_refused",
    "test_report.py::test_a_signature_says_who_claims_it_and_proves_nothing",
    "test_streams.py",
    "test_train.py::test_all_recipes_are_listed",
    "test_train.py::test_bad_input_is_one_line_and_leaves_nothing",
    "test_train.py::test_places_that_cannot_hold_a_run_are_refused",
    "test_transfer.py::test_all_methods_are_listed",
    "test_transfer.py::test_bad_input_is_one_line_and_leaves_nothing",
)
ALL = tuple(sorted(one.name for one in HERE.glob("test_*.py") if one != Path(__file__)))


def elsewhere(folder: Path) -> dict[str, str]:
    """The environment of somebody else."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    home = folder / "home"
    home.mkdir()
    return ours | {
        "COLUMNS": "60", "LINES": "10", "TZ": "Pacific/Kiritimati", "LANG": "C", "LC_ALL": "C",
        "HOME": str(home), "USER": "somebody", "LOGNAME": "somebody", "OMP_NUM_THREADS": "1",
    }  # fmt: skip


@pytest.mark.skipif(
    not sys.prefix.isascii(),
    reason="needs an environment whose path is ASCII: else Python itself does not start there",
)
@pytest.mark.parametrize(
    "tests", [SOME, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_the_tests_of_the_command_pass_elsewhere(tests: tuple[str, ...], tmp_path: Path) -> None:
    deep = tmp_path / DEEP
    deep.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         f"--basetemp={deep / 'run'}", *(str(HERE / one) for one in tests)],
        cwd=ROOT, env=elsewhere(tmp_path), capture_output=True, text=True, timeout=1800,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout.splitlines()[-1]
