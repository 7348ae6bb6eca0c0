"""What the self-test has run of the engine, and what it has not: lines and branches."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tacit.auditing.replay.coverage import Goal, Seen, Tracer, coverage, goals_of
from tacit.randomness import device_noise
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
    described = [goal.describe() for goal in goals_of(path)]
    assert described == [
        "4", "4→past", "6", "7", "7→8", "7→past", "8", "8→9", "8→past", "9", "12", "12→13", "13",
    ]  # fmt: skip


def test_a_kernel_is_for_a_gpu_alone() -> None:
    path = Path(styles.__file__).with_name("kernels.py")
    assert not goals_of(path, gpu=False)
    assert len(goals_of(path, gpu=True)) > 20


DEVICES = """
    class Noise:
        def __init__(self, device):
            if device.type == "cpu":
                self.words = 1
            else:
                self.generator = 2

        def serves(self):
            if self.device.type != "cuda":
                return False
            return self.scale < 3

        def repaired(self):
            from tacit.training.clipping import kernels

            return kernels.repair(self)

        def plain(self):
            return _fewer(self)


    def _fewer(noise):
        return noise
"""


def test_what_only_a_device_runs_is_counted_apart(tmp_path: Path) -> None:
    path = tmp_path / "devices.py"
    path.write_text(textwrap.dedent(DEVICES))
    lines = [goal.first for goal in goals_of(path, gpu=False) if goal.into is None]
    assert lines == [4, 5, 10, 11, 20, 24]
    more = {goal.first for goal in goals_of(path, gpu=True)} - set(lines)
    assert more == {7, 12, 17}


def test_noise_of_a_device_is_for_a_gpu_alone() -> None:
    path = Path(device_noise.__file__)
    assert not goals_of(path, gpu=False)
    assert len(goals_of(path, gpu=True)) > 100


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


def test_what_others_have_seen_is_not_looked_at_again() -> None:
    names, path = ("a.weight", "b.weight"), styles.__file__
    first = Tracer()
    with first:
        styles.groups_of(styles.Flat(), 1.0, names)
    second = Tracer(known=first.seen)
    with second:
        styles.groups_of(styles.PerLayer(), 1.0, names)
    assert second.arcs[path] > first.arcs[path]
    assert coverage(second.arcs).met > coverage(first.arcs).met


def test_of_runs_of_one_kind_the_first_is_looked_at_for_long() -> None:
    names, seen = ("a.weight", "b.weight"), []

    def busy() -> None:
        """Nothing of the engine's."""

    tracer = Tracer()
    flat, layers = styles.Flat(), styles.PerLayer()
    for kind, style in (("one", flat), ("one", layers), ("another", layers)):
        with tracer.run(kind):
            for _ in range(3_000):
                busy()
            styles.groups_of(style, 1.0, names)
        seen.append(coverage(tracer.arcs).met)
    assert 0 < seen[0] == seen[1] < seen[2]


def test_a_kind_that_was_looked_at_in_another_setting_is_looked_at_for_less_long() -> None:
    def busy() -> None:
        """Nothing of the engine's."""

    first = Tracer()
    with first.run("a kind"):
        busy()
    for kind, sees in (("a kind", False), ("another", True)):
        tracer = Tracer(known=first.seen)
        with tracer.run(kind):
            for _ in range(16_000):
                busy()
            styles.groups_of(styles.Flat(), 1.0, ("a.weight",))
        assert (coverage(tracer.arcs).met > 0) == sees


def test_what_two_have_seen() -> None:
    one = Seen({"a": {(1, 2)}, "b": {(3, 4)}}, frozenset({"x"}))
    other = Seen({"b": {(4, 5)}, "c": {(6, 7)}}, frozenset({"y"}))
    both = Seen({"a": {(1, 2)}, "b": {(3, 4), (4, 5)}, "c": {(6, 7)}}, frozenset({"x", "y"}))
    assert one.joined(other) == both


def test_a_run_that_has_shown_nothing_for_long_is_looked_at_again_after_a_step() -> None:
    def busy() -> None:
        """Nothing of the engine's."""

    for looks in (False, True):
        tracer = Tracer(idle=100)
        with tracer.run("a kind"):
            for _ in range(200):
                busy()
            if looks:
                tracer.look_again()
            styles.groups_of(styles.Flat(), 1.0, ("a.weight",))
        assert (coverage(tracer.arcs).met > 0) == looks
