"""Whole transfers on digits: what comes out, what is claimed, and what is charged."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tacit.accounting import Composed, epsilon
from tacit.accounting.serialization import from_dict
from tacit.data import load
from tacit.errors import BudgetExceeded, DataError, InvalidArgument
from tacit.ledger import Ledger
from tacit.recipes import Interrupted
from tacit.recipes import run as run_recipe
from tacit.recipes.transferring import (
    METHODS,
    Transferred,
    knn,
    pate,
    rknn,
    run,
    student,
    teacher_votes,
)
from tacit.recipes.transferring.method import chosen as chosen_for
from tacit.recipes.transferring.method import find
from tacit.recipes.transferring.runner import recipe_of
from tacit.recipes.transferring.splits import Parts, parts_of
from tacit.runs.kept import Kept
from tacit.transfer import Votes

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.accounting.events import Adjacency

QUICK = {"student": "plain", "student_epochs": 2}
SMALL = {
    "pate": {
        "teachers": 6, "epochs": 2, "aggregator": "confident", "queries": 60, "answers": 30,
        "threshold": 6.0, "screening_sigma": 10.0, **QUICK
    },  # about half of the queries pass: that none does is out of the question
    "knn": {"queries": 60, "answers": 30, **QUICK},
    "rknn": {"centres": 30, **QUICK},
}  # fmt: skip
GAUSSIAN = {"aggregator": "gaussian", "threshold": None, "screening_sigma": None}  # None: left out
ELSEWHERE = {"teachers": None, "epochs": None}


@pytest.fixture(scope="module")
def parts() -> Parts:
    return parts_of(load("digits"))


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    whole = load("digits")
    return np.concatenate([whole.train.labels, whole.test.labels])[1000:1500]


def carry_out(method: str, **given: Any) -> Transferred:
    changed = SMALL[method] | given.pop("settings", {})
    settings = {name: value for name, value in changed.items() if value is not None}
    return run(method, settings=settings, seed=0, progress=False, **given)


@pytest.mark.parametrize("method", METHODS)
def test_a_student_and_its_claim_come_out(method: str) -> None:
    done = carry_out(method)
    assert 0 < done.labelled <= (500 if method == "rknn" else 30)
    assert done.labels.shape == (500,)
    assert set(np.unique(done.labels)) <= {-1, *range(10)}
    way = find(method)
    declared = type(way.defaults["digits"])(**done.settings).event("add-remove")
    spent = epsilon(from_dict(done.statement.event), 1e-5)
    assert spent <= epsilon(declared, 1e-5) * (1.0 + 1e-9)
    assert spent == pytest.approx(epsilon(declared, 1e-5), rel=1e-6)
    assert done.statement.epsilon == pytest.approx(spent)
    assert any("public images are public" in one for one in done.statement.assumptions)
    # Neighbours have one more or one less, and run.json, which is published, says how many.
    assert student.COUNT in done.statement.assumptions
    assert done.notes[0].startswith(f"{done.labelled:,} of 500 public images")


def test_students_learn_what_the_crowd_knows(truth: np.ndarray) -> None:
    """The defaults on digits: far above chance (10 %), with labels mostly right."""
    done = run("rknn", epsilon=4.0, seed=0, progress=False)
    assert np.mean(done.labels == truth) > 0.7
    assert done.accuracy > 0.8


@pytest.mark.parametrize("method", METHODS)
def test_labels_of_public_images_and_evaluation_decide_nothing(
    method: str, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the student is trained with holds neither."""
    seen: list[Any] = []
    taught = student.train_student

    def noting(images: Any, labels: Any, **given: Any) -> Any:
        seen.append((images, labels, given))
        return taught(images, labels, **given)

    monkeypatch.setattr(student, "train_student", noting)
    carry_out(method, data=parts)
    ((images, labels, given),) = seen
    assert images is parts.public
    assert len(labels) == len(parts.public)
    assert not any(value is parts.data.test for value in given.values())


def test_the_claim_covers_the_telling_and_the_figure_stands_apart() -> None:
    done = carry_out("pate", settings={"data_dependent": True, "order": 4.0})
    plain = carry_out("pate")
    assert done.statement.epsilon > plain.statement.epsilon
    assert plain.statement.data_dependent is None
    figure = done.statement.data_dependent
    assert figure is not None
    assert figure.order == 4.0
    assert figure.failure == pytest.approx(1e-6)
    chosen = pate.Settings(**done.settings)
    assert from_dict(done.statement.event) == chosen.event("add-remove")


def test_teachers_that_agree_have_a_small_told_figure(
    monkeypatch: pytest.MonkeyPatch, truth: np.ndarray
) -> None:
    counts = 250 * np.eye(10, dtype=np.int64)[truth]
    monkeypatch.setattr(pate, "votes_of", lambda _job, images: Votes(counts[: len(images)]))
    published = {
        "threshold": 200.0,
        "screening_sigma": 150.0,
        "sigma": 40.0,
        "data_dependent": True,
    }
    done = carry_out("pate", settings=published | {"queries": 500, "answers": 250})
    figure = done.statement.data_dependent
    assert figure is not None
    assert figure.epsilon < 0.5 * done.statement.epsilon
    known = done.labels >= 0
    assert (done.labels[known] == truth[known]).mean() > 0.95  # noise may turn one in 20,000


def test_queries_in_the_middle_of_clusters_are_asked(
    monkeypatch: pytest.MonkeyPatch, parts: Parts
) -> None:
    seen: list[Any] = []

    def votes(_job: Any, images: Any) -> Votes:
        seen.append(images)
        return Votes(np.full((len(images), 10), 3))

    monkeypatch.setattr(pate, "votes_of", votes)
    done = carry_out("pate", settings={"asked": "middles", **GAUSSIAN}, data=parts)
    answered = np.flatnonzero(done.labels >= 0)
    asked = {image.tobytes() for image in seen[0]}
    assert len(answered) == 30
    assert all(parts.public[place].tobytes() in asked for place in answered)
    assert not np.array_equal(seen[0], parts.public[:60])


def test_rounds_share_the_queries_out_and_cost_the_same() -> None:
    one, two = (carry_out("knn", settings={"rounds": rounds}, epsilon=4.0) for rounds in (1, 2))
    assert two.statement.epsilon == pytest.approx(one.statement.epsilon, rel=1e-6)
    assert two.settings["sigma"] == pytest.approx(one.settings["sigma"], rel=1e-6)
    first, second = (
        [len(asked), cap]
        for asked, cap in knn.rounds_of(
            knn.DEFAULTS["digits"].__class__(**two.settings), np.arange(60)
        )
    )
    assert first == second == [30, 15]


def test_all_images_of_a_cluster_or_the_middle_one_are_labelled() -> None:
    few = carry_out("rknn", settings={"labelled": "middles"})
    all_ = carry_out("rknn", settings={"labelled": "all"})
    assert 20 < few.labelled <= 30
    assert all_.labelled == 500


def test_votes_for_the_images_themselves_are_pooled(truth: np.ndarray) -> None:
    """Two votes an image drown in the noise, those for 20 images do not."""
    settings = {"centres": 0, "features": "pixels", "scale": 1.0}
    alone, together = (
        float(np.mean(carry_out("rknn", settings=settings | {"pooled": pooled}).labels == truth))
        for pooled in (1, 20)
    )
    assert alone < 0.6
    assert together > 0.75


def test_the_event_of_reverse_votes_is_what_is_charged() -> None:
    for noise in ("laplace", "gaussian"):
        done = carry_out("rknn", settings={"noise": noise, "k": 2}, epsilon=1.0)
        chosen = rknn.DEFAULTS["digits"].__class__(**done.settings)
        claimed = epsilon(from_dict(done.statement.event), 1e-5)
        declared = chosen.event("add-remove")
        assert claimed == pytest.approx(epsilon(declared, 1e-5), rel=1e-6)
        assert claimed <= 1.0 * (1.0 + 1e-9)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_second_round_has_a_table_of_its_own_in_the_features_of_the_first_student(
    noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, Any]] = []
    voted = rknn.ReverseKnn.label

    def noting(self: Any, private: Any, labels: Any, points: Any, **given: Any) -> Any:
        tally = voted(self, private, labels, points, **given)
        seen.append((points.shape[1], tally.released.event))
        return tally

    monkeypatch.setattr(rknn.ReverseKnn, "label", noting)
    done = carry_out("rknn", settings={"rounds": 2, "noise": noise}, epsilon=3.0)
    (first, one), (second, other) = seen
    assert first == 36  # HOG of 8×8
    assert second != first
    assert from_dict(done.statement.event) == Composed(one, other)
    assert 3.0 * (1.0 - 1e-3) < done.statement.epsilon <= 3.0 * (1.0 + 1e-9)


def test_the_tables_of_all_rounds_are_charged_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off while the last student learns: both tables are there, and none is made anew."""
    settings, out = {"rounds": 2}, tmp_path / "run"
    taught, count = student.train_student, 0

    def failing(*given: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return taught(*given, **more)

    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("digits", 4.0, 1e-5, composition="declared")
        with monkeypatch.context() as patch:
            patch.setattr(student, "train_student", failing)
            with pytest.raises(Interrupted):
                carry_out("rknn", settings=settings, epsilon=3.0, folder=out, budget=budget)
        spent = budget.spent().epsilon
        assert spent == pytest.approx(3.0, rel=1e-3)
        monkeypatch.setattr(rknn.ReverseKnn, "label", None)
        done = carry_out(
            "rknn", settings=settings, epsilon=3.0, folder=out, budget=budget, resume=True
        )
        assert budget.spent().epsilon == spent
    assert done.labelled == 500
    assert (out / "released-votes-2.safetensors").exists()


# ---- votes made elsewhere


def test_votes_from_a_file_need_no_private_record(
    tmp_path: Path, parts: Parts, truth: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "v.npy", 40 * np.eye(10, dtype=np.int64)[truth[:60]])
    monkeypatch.setattr(teacher_votes, "Teachers", None)
    settings = {"votes": str(tmp_path / "v.npy"), "sigma": 1.0, "threshold": 0.0, **ELSEWHERE}
    done = carry_out("pate", settings=settings, data=parts)
    known = done.labels >= 0
    assert known.sum() == 30
    assert np.array_equal(done.labels[known], truth[known])
    assert any("votes were made elsewhere" in one for one in done.statement.assumptions)
    assert student.COUNT not in done.statement.assumptions


def test_no_fingerprint_of_votes_is_written(
    tmp_path: Path, parts: Parts, truth: np.ndarray
) -> None:
    """Who knows all votes but one could find that one from a checksum."""
    path, out = tmp_path / "v.npy", tmp_path / "run"
    np.save(path, 40 * np.eye(10, dtype=np.int64)[truth[:60]])
    carry_out("pate", settings={"votes": str(path), **ELSEWHERE}, data=parts, folder=out)
    digests = [hashlib.new(kind, path.read_bytes()).hexdigest() for kind in ("sha256", "md5")]
    for file in out.iterdir():
        text = file.read_bytes().decode(errors="replace")
        assert not any(digest in text for digest in digests), file


def test_votes_that_do_not_fit_are_refused_before_anything_begins(
    tmp_path: Path, parts: Parts
) -> None:
    path = tmp_path / "v.npy"
    np.save(path, np.full((59, 10), 4))
    with pytest.raises(DataError, match="holds votes on 59 images"):
        carry_out("pate", settings={"votes": str(path), **ELSEWHERE}, folder=tmp_path / "run")
    np.save(path, np.full((501, 10), 4))
    with pytest.raises(DataError, match="holds votes on 501 images, and 500 are public"):
        carry_out("pate", settings={"votes": str(path), **ELSEWHERE}, folder=tmp_path / "run")
    np.save(path, np.full((60, 10), 4))
    with pytest.raises(InvalidArgument, match="asked must be first"):
        carry_out(
            "pate", settings={"votes": str(path), "asked": "middles", **ELSEWHERE}, data=parts
        )
    with pytest.raises(DataError, match="cannot be read"):
        carry_out("pate", settings={"votes": str(tmp_path / "none.npy"), **ELSEWHERE})
    assert not (tmp_path / "run").exists()


# ---- folders and budgets


class StopAfter:
    """Says stop once it was asked so often."""

    def __init__(self, asked: int) -> None:
        self.left = asked

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("method", METHODS)
def test_a_folder_holds_results_and_nothing_private(method: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = carry_out(method, folder=out)
    assert {one.name for one in out.iterdir()} == {
        "answers.csv", "history.jsonl", "model.safetensors", "run.json", "statement.json",
        *(["released-votes.safetensors"] if method == "rknn" else []),
    }  # fmt: skip
    assert len((out / "answers.csv").read_text().splitlines()) == done.labelled + 1


@pytest.mark.parametrize("method", ["pate", "knn"])
def test_a_run_that_was_stopped_goes_on_with_what_it_was_told(method: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("digits", 40.0, 1e-5, composition="declared")
        with pytest.raises(Interrupted, match="stopped at the answers") as caught:
            carry_out(method, folder=out, budget=budget, stop=StopAfter(1))
        assert caught.value.resumable
        spent, granted = budget.spent().epsilon, budget.state.granted
        assert (out / "private").is_dir() is (method == "pate")
        done = carry_out(method, folder=out, budget=budget, resume=True)
        assert budget.spent().epsilon == spent
        assert budget.state.granted > granted
        assert done.statement.epsilon == pytest.approx(spent, rel=1e-6)
        assert done.statement.ledger is not None
    assert not (out / "private").exists()


def test_answers_that_were_told_before_a_stop_are_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:

        def failing(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

        patch.setattr("tacit.recipes.transferring.student.train_student", failing)
        with pytest.raises(Interrupted) as caught:
            carry_out("pate", settings={"data_dependent": True, "order": 4.0}, folder=out)
    assert caught.value.resumable
    before = [line for line in (out / "answers.journal").read_text().splitlines()
              if line.startswith('["tell"')]  # fmt: skip
    done = carry_out(
        "pate", settings={"data_dependent": True, "order": 4.0}, folder=out, resume=True
    )
    told = {tuple(map(int, line.split("]")[0].split(",")[1:])) for line in before}
    again = {(int(at), int(done.labels[at])) for at in np.flatnonzero(done.labels >= 0)}
    assert again == told


def test_a_round_of_active_queries_goes_on_with_the_images_it_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    active = {"asked": "active", "rounds": 2, "queries": 40, "answers": 40, **GAUSSIAN}
    with pytest.raises(Interrupted):
        carry_out("pate", settings=active, folder=out, stop=StopAfter(1))
    points = json.loads((out / "answers-1-points.journal").read_text())
    before = dict(
        tuple(map(int, line.split("]")[0].split(",")[1:]))
        for line in (out / "answers-1.journal").read_text().splitlines()
        if line.startswith('["tell"')
    )
    assert len(points) == 20 > len(before) > 0
    monkeypatch.setattr(pate, "spread", None)  # would choose again
    done = carry_out("pate", settings=active, folder=out, resume=True)
    assert [done.labels[points[query]] for query in before] == list(before.values())
    assert done.labelled == 40
    assert not list(out.glob("*.journal"))


def test_a_file_with_votes_on_other_images_does_not_go_on(
    parts: Parts, truth: np.ndarray, tmp_path: Path
) -> None:
    file = tmp_path / "counts.npy"
    active = {"asked": "active", "rounds": 2, "votes": str(file), **GAUSSIAN, **ELSEWHERE}
    for images in (100, 120):
        np.save(file, 30 * np.eye(10, dtype=np.int64)[truth[:images]])
        if images == 100:
            with pytest.raises(Interrupted):
                carry_out("pate", settings=active, data=parts, folder=tmp_path / "run",
                          stop=StopAfter(1))  # fmt: skip
    with pytest.raises(InvalidArgument, match="votes must be on the 100 images"):
        carry_out("pate", settings=active, data=parts, folder=tmp_path / "run", resume=True)


def test_the_interactive_student_sees_earlier_labels_and_public_images_alone(
    parts: Parts, truth: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, seen = 40 * np.eye(10, dtype=np.int64)[truth], []
    monkeypatch.setattr(pate, "votes_of", lambda _job, images: Votes(counts[: len(images)]))
    taught = student.train_student

    def noting(images: Any, labels: Any, **given: Any) -> Any:
        seen.append((images is parts.public, int((labels >= 0).sum()), given["method"]))
        return taught(images, labels, **given)

    monkeypatch.setattr(student, "train_student", noting)
    settings = {
        "aggregator": "interactive", "threshold": 20.0, "screening_sigma": 1.0, "sigma": 1.0,
        "every": 20,
    }  # fmt: skip
    done = carry_out("pate", settings=settings, data=parts)
    assert all(public for public, _, _ in seen)
    assert [method for *_, method in seen] == ["graph"] * (len(seen) - 1) + ["plain"]
    assert [number for _, number, _ in seen] == sorted(number for _, number, _ in seen)
    assert seen[0][1] == 20  # the first ones were compared with no student's scores
    known = done.labels >= 0
    assert (done.labels[known] == truth[known]).mean() > 0.8


def test_stable_votes_are_released_as_they_are(
    parts: Parts, truth: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = 60 * np.eye(10, dtype=np.int64)[truth]
    monkeypatch.setattr(pate, "votes_of", lambda _job, images: Votes(counts[: len(images)]))
    settings = {
        "aggregator": "sparse-vector", "threshold": None, "screening_sigma": None, "answers": None,
    }  # fmt: skip
    done = carry_out("pate", settings=settings, data=parts)
    assert done.labelled == 60
    assert np.array_equal(done.labels[:60], truth[:60])
    chosen = pate.Settings(**done.settings)
    assert from_dict(done.statement.event) == Composed(chosen.event("add-remove"))
    (charged,) = chosen.events("add-remove")
    for delta in (2e-6, 1e-5, 1e-3):
        assert epsilon(charged, delta) <= epsilon(chosen.event("add-remove"), delta) * (1 + 1e-7)


def test_deleting_what_is_private_makes_no_query_asked_again(tmp_path: Path) -> None:
    """The journal is not private, and lies beside: the teachers are trained anew, no more.

    What the first answers cost is not in the new votes, so that no figure is told.
    """
    out, told = tmp_path / "run", {"data_dependent": True, "order": 4.0}
    with pytest.raises(Interrupted):
        carry_out("pate", settings=told, folder=out, stop=StopAfter(1))
    before = [line for line in (out / "answers.journal").read_text().splitlines()
            if line.startswith('["tell"')]  # fmt: skip
    assert before
    shutil.rmtree(out / "private")
    done = carry_out("pate", settings=told, folder=out, resume=True)
    assert done.statement.data_dependent is None
    assert any("was not released" in note for note in done.notes)
    for line in before:
        query, label = map(int, line.split("]")[0].split(",")[1:])
        assert done.labels[query] == label


def test_votes_made_anew_are_never_taken_for_those_that_were_asked_first(tmp_path: Path) -> None:
    """Deleted once, and stopped once more: the votes of the second session are not the first's."""
    out, told = tmp_path / "run", {"data_dependent": True, "order": 4.0}
    with pytest.raises(Interrupted):
        carry_out("pate", settings=told, folder=out, stop=StopAfter(1))
    shutil.rmtree(out / "private")
    with pytest.raises(Interrupted):
        carry_out("pate", settings=told, folder=out, resume=True, stop=StopAfter(1))
    done = carry_out("pate", settings=told, folder=out, resume=True)
    assert done.statement.data_dependent is None
    assert any("was not released" in note for note in done.notes)


def test_a_figure_that_was_told_is_counted_although_the_votes_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told of the right votes, and lies in the folder."""

    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    out, told = tmp_path / "run", {"data_dependent": True, "order": 4.0}
    with monkeypatch.context() as patch:
        patch.setattr(student, "train_student", killed)
        with pytest.raises(Interrupted):
            carry_out("pate", settings=told, folder=out)
    assert (out / "released-cost.safetensors").exists()
    shutil.rmtree(out / "private")
    done = carry_out("pate", settings=told, folder=out, resume=True)
    assert done.statement.data_dependent is not None
    chosen = pate.Settings(**done.settings)
    assert from_dict(done.statement.event) == chosen.event("add-remove")


def test_a_resumed_run_has_the_votes_that_were_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept to the bit: training teachers again, or asking them again, need not give the same."""
    out, told = tmp_path / "run", {"data_dependent": True, "order": 4.0}
    with pytest.raises(Interrupted):
        carry_out("pate", settings=told, folder=out, stop=StopAfter(1))
    monkeypatch.setattr(teacher_votes, "Teachers", None)
    done = carry_out("pate", settings=told, folder=out, resume=True)
    assert done.statement.data_dependent is not None
    assert not (out / "private").exists()


def test_a_budget_that_is_too_small_refuses_before_a_teacher_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher_votes, "Teachers", None)
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("digits", 0.5, 1e-5, composition="declared")
        with pytest.raises(BudgetExceeded, match="has no room for"):
            carry_out(
                "pate", settings={"data_dependent": True}, folder=tmp_path / "run", budget=budget
            )
        assert budget.spent().epsilon == 0.0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", METHODS)
def test_a_budget_for_users_is_refused_before_anything_begins(method: str, tmp_path: Path) -> None:
    """Each record is an example: of somebody with several of them, nothing is claimed."""
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("digits", 100.0, 1e-4, unit="user")
        with pytest.raises(InvalidArgument, match=r"unit must be .* 'user', got 'example'"):
            carry_out(method, folder=tmp_path / "run", budget=budget)
        assert budget.spent().epsilon == 0.0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "adjacency", ["replace-one", pytest.param("zero-out", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("composition", ["declared", pytest.param("basic", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("pate", {"data_dependent": True, "order": 4.0, **GAUSSIAN}), ("knn", {}),
        ("rknn", {"rounds": 2}), ("rknn", {"noise": "gaussian", "k": 2}),
    ],
)  # fmt: skip
def test_noise_charge_and_claim_are_those_of_the_budgets_neighbours(
    method: str, settings: dict[str, Any], composition: str, adjacency: Adjacency, tmp_path: Path
) -> None:
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("d", 100.0, 1e-5, adjacency=adjacency, composition=composition)
        done = carry_out(method, settings=settings, epsilon=6.0, budget=budget)
        spent = budget.spent().epsilon
    claim = done.statement
    assert claim.adjacency == adjacency
    assert 6.0 * (1.0 - 1e-3) < claim.epsilon <= 6.0 * (1.0 + 1e-9)
    assert epsilon(from_dict(claim.event), 1e-5, adjacency=adjacency) == pytest.approx(
        claim.epsilon
    )
    if composition == "declared":
        assert spent == pytest.approx(claim.epsilon, rel=1e-6)
    assert (claim.data_dependent is not None) is (method == "pate")


def test_settings_for_other_neighbours_are_refused_before_anything_begins(
    tmp_path: Path, parts: Parts
) -> None:
    """The command finds the noise before it opens the budget, which may be another by then."""
    way, out = find("rknn"), tmp_path / "run"
    given = SMALL["rknn"] | {"noise": "gaussian"}
    settings, limit = chosen_for(way, "digits", given, epsilon=1.0, delta=1e-5)
    recipe, _ = recipe_of(way, settings, parts)
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("digits", 9.0, 1e-4, adjacency="replace-one")
        with pytest.raises(InvalidArgument, match=r"at least the 1\.46\d* .* replace-one"):
            run_recipe(
                recipe, epsilon=limit, settings=settings, data=parts.data, folder=out,
                budget=budget, progress=False,
            )  # fmt: skip
        assert budget.spent().epsilon == 0.0
    assert not out.exists()


def test_a_figure_that_was_charged_and_lost_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the charge of the telling and its value: the labels are still there."""
    told = {"data_dependent": True, "order": 4.0}
    out = tmp_path / "run"

    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("digits", 40.0, 1e-5, composition="declared")
        with monkeypatch.context() as patch:
            patch.setattr(Kept, "keep_released", killed)
            with pytest.raises(Interrupted):
                carry_out("pate", settings=told, folder=out, budget=budget)
        done = carry_out("pate", settings=told, folder=out, budget=budget, resume=True)
        assert done.statement.data_dependent is None
        assert any("figure was not released" in note for note in done.notes)
        assert done.statement.epsilon < budget.spent().epsilon
    assert done.labelled > 0


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("pate", {"queries": 501}, "queries must be at most the 500"),
        ("pate", {"answers": 61}, "answers must be at most the 60"),
        ("pate", {"data_dependent": True, "aggregator": "laplace"}, "data_dependent must be false"),
        ("pate", {"smoothness": 0.0, "data_dependent": True}, "smoothness must be"),
        ("knn", {"rate": 0.0}, "rate must be above 0"),
        ("knn", {"rounds": 31}, "rounds must be at most answers"),
        ("rknn", {"k": 31}, "k must be at most the 30 centres"),
        ("rknn", {"pooled": 31}, "pooled must be at most the 30 centres"),
        ("rknn", {"centres": 0, "pooled": 501}, "pooled must be at most the 500 public images"),
        ("rknn", {"centres": 0, "labelled": "middles"}, "labelled must be all with 0 centres"),
        ("rknn", {"student_epochs": 0}, "student_epochs must be"),
        ("rknn", {"rounds": 0}, "rounds must be"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_begins(
    method: str, settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        carry_out(method, settings=settings, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_without_an_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pate, "votes_of", lambda _job, images: Votes(
        np.tile([6] + 9 * [0], (len(images), 1))
    ))  # fmt: skip
    with pytest.raises(InvalidArgument, match="nothing to learn from"):
        carry_out("pate", settings={"threshold": 1e6})
