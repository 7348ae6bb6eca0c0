"""What the self-test has run of the engine, and what it has not: lines and branches."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tacit.auditing.replay.coverage import Goal, Tracer, coverage, goals_of
from tacit.training import styles

SOURCE = '''
    def public(x):
        """Says something."""
        if x < 0:
            raise ValueError(_why(x))
        total = 0
        for one in range(x):
            if one:
                total += (
                    one
                )
        while True:
            return total


    def _why(x):
        return f"{x} is negative"


    class Protocol:
        def nothing(self):
            ...
'''


def test_goals_are_statements_and_ways_but_no_refusals(tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text(textwrap.dedent(SOURCE))
    told = [goal.describe() for goal in goals_of(path)]
    assert told == [
        "4", "4→past", "6", "7", "7→8", "7→past", "8", "8→9", "8→past", "9", "12", "12→13", "13",
    ]  # fmt: skip


def test_a_kernel_is_for_a_gpu_alone() -> None:
    path = Path(styles.__file__).with_name("kernels.py")
    assert not goals_of(path, gpu=False)
    assert len(goals_of(path, gpu=True)) > 20


def test_a_statement_over_several_lines_is_met_by_any_of_them() -> None:
    assert Goal(9, 11).met_by([(8, 10)])
    assert not Goal(9, 11).met_by([(10, 12)])
    assert Goal(8, 8, (9, 11)).met_by([(8, 10)])
    assert Goal(8, 8, (9, 11), past=True).met_by([(8, 7)])
    assert not Goal(8, 8, (9, 11), past=True).met_by([(8, 9), (7, 12)])


def test_a_tracer_sees_which_way_was_taken() -> None:
    names = ("a.weight", "a.bias", "b.weight")
    seen = []
    for style in (styles.Flat(), styles.PerLayer()):
        tracer = Tracer()
        with tracer:
            styles.groups_of(style, 1.0, names)
        seen.append(coverage(tracer.arcs))
    (flat, layers), path = seen, "training/styles.py"
    assert len(layers.missed[path]) < len(flat.missed[path])
    assert 0 < flat.met < layers.met < layers.goals
    assert flat.share < 0.05
