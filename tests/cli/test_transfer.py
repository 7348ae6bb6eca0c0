"""``tacit transfer``: what it writes, what it refuses, and how it goes on after any end."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.torch import load_file

from tacit.accounting import epsilon
from tacit.accounting.serialization import from_dict
from tacit.cli import main
from tacit.data import load
from tacit.ledger import Ledger
from tacit.recipes.transferring import pate, splits
from tacit.recipes.transferring.splits import parts_of
from tacit.statement import Statement
from tacit.transfer import ConfidentGNMax
from tacit.transfer.students import train_student

from ..data.writing import idx
from ..forked import Forked
from . import transfer_child

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RELEASED = {"released-cost.safetensors"}
FILES = {"model.safetensors", "history.jsonl", "answers.csv", "statement.json", "run.json",
         "report.html", "report.md"}  # fmt: skip
QUICK = ["--student", "plain", "--student-epochs", "2"]
SMALL = ["--teachers", "6", "--epochs", "2", "--queries", "150", "--answers", "80",
         "--data-dependent", "true", "--order", "4", *QUICK]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of pate on digits in a process of its own: its folder and what it printed."""
    out = tmp_path_factory.mktemp("pate") / "run"
    asked = ["transfer", "pate", "--out", str(out), "--aggregator", "confident",
             "--teachers", "25", "--queries", "150", "--answers", "80", "--threshold", "12",
             "--set", "screening_sigma=10", "--sigma", "5", "--data-dependent", "true",
             "--order", "4"]  # fmt: skip
    process = Forked(lambda: main(asked), env={})
    printed, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return out, printed


# ---- what comes out


def test_a_run_leaves_its_files_and_ends_with_the_report(finished: tuple[Path, str]) -> None:
    out, printed = finished
    assert {one.name for one in out.iterdir()} == FILES | RELEASED
    assert printed.splitlines()[-1] == f"The report is at {out / 'report.html'}"


def test_the_claim_is_the_declared_event_and_the_telling(finished: tuple[Path, str]) -> None:
    out, _ = finished
    record = json.loads((out / "run.json").read_text())
    statement = Statement.from_json((out / "statement.json").read_text())
    chosen = record["settings"]
    declared = ConfidentGNMax(
        threshold=chosen["threshold"], screening_sigma=chosen["screening_sigma"],
        sigma=chosen["sigma"],
    ).declared(queries=chosen["queries"], answers=chosen["answers"])  # fmt: skip
    parts = from_dict(statement.event).events
    assert parts[0] == declared
    assert len(parts) == 2
    assert statement.epsilon == pytest.approx(epsilon(from_dict(statement.event), 1e-5))
    assert record["epsilon"] == pytest.approx(statement.epsilon)
    assert statement.configuration == record["configuration"]


def test_the_data_dependent_figure_stands_apart(finished: tuple[Path, str]) -> None:
    out, printed = finished
    statement = Statement.from_json((out / "statement.json").read_text())
    figure = statement.data_dependent
    assert figure is not None
    assert figure.epsilon != statement.epsilon
    assert figure.failure < figure.delta == 1e-5
    assert "data-dependent figure, released with noise" in " ".join(printed.split())
    report = (out / "report.md").read_text()
    assert "released beside the claim, and none itself" in report
    assert "It is not the guarantee of this run" in report


def test_the_statement_says_what_is_public_and_what_stays_private(
    finished: tuple[Path, str],
) -> None:
    statement = Statement.from_json((finished[0] / "statement.json").read_text())
    assert any("the public images are public" in one for one in statement.assumptions)
    assert any("each record is in one teacher only" in one for one in statement.assumptions)
    assert any("teachers or their votes" in one for one in statement.not_promised)
    assert "the student's weights" in statement.releases


def test_answers_are_labels_of_public_images(finished: tuple[Path, str]) -> None:
    head, *lines = (finished[0] / "answers.csv").read_text().splitlines()
    pairs = [tuple(map(int, line.split(","))) for line in lines]
    assert head == "query,label"
    assert 0 < len(pairs) <= 80
    assert all(0 <= query < 150 and 0 <= label < 10 for query, label in pairs)
    assert len({query for query, _ in pairs}) == len(pairs)


def test_the_model_is_the_one_whose_accuracy_is_told(finished: tuple[Path, str]) -> None:
    record = json.loads((finished[0] / "run.json").read_text())
    parts = parts_of(load("digits"))
    some = np.arange(len(parts.public)) % 10
    student = train_student(parts.public, some, classes=10, method="graph", epochs=1)
    student.model.load_state_dict(load_file(finished[0] / "model.safetensors"))
    judged = parts.data.test
    right = float(np.mean(student.predict(np.asarray(judged.inputs)) == judged.labels))
    assert record["test_accuracy"] == right
    assert right > 0.6


def test_the_report_is_written_again(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = finished
    before = (out / "report.md").read_text()
    assert main(["report", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["summary"]["recipe"] == "pate-digits"
    assert told["summary"]["labelled"] == len((out / "answers.csv").read_text().splitlines()) - 1
    assert told["statement"]["data_dependent"]["order"] == 4.0
    assert (out / "report.md").read_text() == before


def test_a_finished_run_is_shown_again(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, printed = finished
    assert main(["transfer", "--resume", "--out", str(out)]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("method", ["knn", "rknn"])
def test_json_is_all_of_standard_output(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    given = ["--epsilon", "2", "--seed", "1", *QUICK]
    assert main(["transfer", method, "--out", str(out), "--json", *given]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["recipe"] == f"{method}-digits"
    assert told["epsilon"] == pytest.approx(2.0, rel=1e-6)
    assert told["epsilon"] <= 2.0 * (1.0 + 1e-9)
    assert told["data_dependent_epsilon"] is None
    assert set(told["files"]) == FILES


def test_votes_made_elsewhere_are_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = np.concatenate([part.labels for part in (load("digits").train, load("digits").test)])
    counts = 30 * np.eye(10, dtype=np.int64)[labels[1000:1100]]
    np.save(tmp_path / "counts.npy", counts)
    np.save(tmp_path / "labels.npy", np.repeat(labels[np.newaxis, 1000:1100], 30, axis=0))
    for holds in ("counts", "labels"):
        out = tmp_path / holds
        given = ["--votes", str(tmp_path / f"{holds}.npy"), "--holds", holds, "--queries", "100",
                 "--answers", "60", "--sigma", "1", *QUICK]  # fmt: skip
        assert main(["transfer", "pate", "--out", str(out), *given]) == 0, capsys.readouterr().err
        rows = [line.split(",") for line in (out / "answers.csv").read_text().splitlines()[1:]]
        assert len(rows) == 60
        assert all(labels[1000 + int(query)] == int(told) for query, told in rows)
        record = json.loads((out / "run.json").read_text())
        assert record["data"]["train"] == 0
        assert "checksum would tell" in record["data"]["files"][f"{holds}.npy"]
        statement = Statement.from_json((out / "statement.json").read_text())
        assert any("made elsewhere" in one for one in statement.assumptions)


ASKED = {
    "active": ["--asked", "active", "--rounds", "3", "--sigma", "1"],
    "active and screened": ["--asked", "active", "--rounds", "2", "--aggregator", "confident",
                            "--threshold", "30", "--set", "screening_sigma=1", "--sigma", "1"],
    "interactive": ["--aggregator", "interactive", "--threshold", "25", "--sigma", "1",
                    "--set", "screening_sigma=1", "--confidence", "1"],
    "sparse-vector": ["--aggregator", "sparse-vector", "--stability-scale", "0.4"],
}  # fmt: skip


@pytest.mark.parametrize("case", ASKED)
def test_every_way_to_ask_and_to_answer_is_an_option(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of votes that agree the labels are right, and the ledger is charged what is claimed."""
    labels = np.concatenate([part.labels for part in (load("digits").train, load("digits").test)])
    np.save(tmp_path / "counts.npy", 60 * np.eye(10, dtype=np.int64)[labels[1000:1100]])
    out, url = tmp_path / "run", f"sqlite:///{tmp_path}/budget.db"
    queries = (
        ["--queries", "40"] if case == "sparse-vector" else ["--queries", "40", "--answers", "36"]
    )
    given = ["--votes", str(tmp_path / "counts.npy"), *queries, *ASKED[case], *QUICK]
    arguments = ["transfer", "pate", "--out", str(out), "--ledger", url, *given]
    assert main(arguments) == 0, capsys.readouterr().err
    assert {one.name for one in out.iterdir()} == FILES
    rows = [line.split(",") for line in (out / "answers.csv").read_text().splitlines()[1:]]
    assert 0 < len(rows) <= (40 if case == "sparse-vector" else 36)
    assert all(labels[1000 + int(query)] == int(label) for query, label in rows)
    beyond = any(int(query) >= 40 for query, _ in rows)
    assert beyond == case.startswith("active")  # chosen among all that were voted on
    statement = Statement.from_json((out / "statement.json").read_text())
    chosen = pate.Settings(**json.loads((out / "run.json").read_text())["settings"])
    assert epsilon(from_dict(statement.event), 1e-5) == pytest.approx(
        epsilon(chosen.event("add-remove"), 1e-5), rel=1e-9
    )
    spent, _ = ledger_state(url)()
    assert spent == pytest.approx(statement.epsilon, rel=1e-5)
    assert spent <= statement.epsilon * (1.0 + 1e-9)


def test_the_help_names_every_way_to_ask_and_to_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["transfer", "--help"]) == 0
    shown = capsys.readouterr().out
    for word in ("--asked", "active", "--aggregator", "interactive", "sparse-vector"):
        assert word in shown


def test_all_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transfer"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("pate", "knn", "rknn", "svhn", "98.5 at"))
    assert main(["transfer", "--list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["methods"]) == 15


def test_settings_follow_epsilon(capsys: pytest.CaptureFixture[str]) -> None:
    noises = []
    for given in ("0.5", "2"):
        arguments = ["transfer", "knn", "--settings", "--epsilon", given, "--json"]
        assert main(arguments) == 0
        noises.append(json.loads(capsys.readouterr().out)["settings"]["sigma"]["value"])
    assert noises[0] > 2.0 * noises[1]


def test_the_published_setting_is_the_default_for_mnist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--data-dependent", "false", "--settings", "--json"]
    assert main(["transfer", "pate", "--dataset", "mnist", *given]) == 0
    found = json.loads(capsys.readouterr().out)
    values = {name: one["value"] for name, one in found["settings"].items()}
    assert (values["teachers"], values["queries"], values["answers"]) == (250, 640, 286)
    assert (values["threshold"], values["screening_sigma"], values["sigma"]) == (200, 150, 40)
    assert found["epsilon"] == pytest.approx(2.5426, abs=5e-5)


# ---- refusals


REFUSED = {
    "unknown method": (["knm"], "did you mean 'knn'?"),
    "unknown data": (["knn", "--dataset", "mnits"], "did you mean 'mnist'?"),
    "unknown option": (["knn", "--epsilonn", "3"], "did you mean --epsilon?"),
    "unknown setting": (["pate", "--set", "treshold=3"], "did you mean --threshold?"),
    "a δ that gives one away": (["knn", "--delta", "0.5"], "delta must be below 1/1000 for 1000"),
    "another method's setting": (["knn", "--teachers", "3"], "neither an option nor a setting"),
    "no value": (["knn", "--epsilon"], "requires an argument"),
    "contradiction": (["knn", "--queries", "5", "--set", "queries=6"], "contradict"),
    "epsilon and noise": (["pate", "--epsilon", "1", "--sigma", "4"], "contradict each other"),
    "epsilon 0": (["knn", "--epsilon", "0"], "--epsilon must be a positive"),
    "epsilon word": (["knn", "--epsilon", "three"], "--epsilon must be a number"),
    "delta 1": (["knn", "--delta", "1"], "--delta must lie strictly"),
    "sigma 0": (["pate", "--sigma", "0"], "sigma must be"),
    "sigma below 0": (["pate", "--sigma", "-3"], "sigma must be"),
    "too many queries": (["knn", "--queries", "501"], "queries must be at most the 500"),
    "too many answers": (["pate", "--queries", "5", "--answers", "6"], "answers must be at most"),
    "no answers": (["pate", "--answers", "0"], "answers must be a whole number"),
    "too many centres": (["rknn", "--centres", "501"], "centres must be at most the 500"),
    "k 0": (["knn", "--k", "0"], "k must be a whole number"),
    "rate 2": (["knn", "--rate", "2"], "rate must lie between 0 and 1"),
    "rate 0": (["knn", "--rate", "0"], "rate must be above 0"),
    "teachers without images": (["pate", "--teachers", "1001"], "at most the 1,000 private images"),
    "no teachers": (["pate", "--teachers", "0"], "teachers must be a whole number"),
    "epochs 0": (["pate", "--epochs", "0"], "epochs must be a whole number"),
    "lr below 0": (["pate", "--lr", "-1"], "lr must be a positive"),
    "student epochs 0": (["rknn", "--student-epochs", "0"], "student_epochs must be a"),
    "student": (["rknn", "--student", "clever"], "student must be one of"),
    "cost of laplace": (["pate", "--aggregator", "laplace", "--data-dependent", "true"],
                        "data_dependent must be false"),
    "cost of stable votes": (["pate", "--aggregator", "sparse-vector", "--data-dependent", "true"],
                             "data_dependent must be false"),
    "active and interactive": (["pate", "--asked", "active", "--aggregator", "interactive"],
                               "asked must be first or middles"),
    "more rounds than answers": (["pate", "--asked", "active", "--rounds", "41"],
                                 "rounds must be at most the 40 answers"),
    "failure 0": (["pate", "--aggregator", "sparse-vector", "--failure", "0"], "failure must"),
    "too little noise": (["pate", "--aggregator", "sparse-vector", "--stability-scale", "0.05"],
                         "promise nothing"),
    "aggregator": (["pate", "--aggregator", "loud"], "aggregator must be one of"),
    "order 1": (["pate", "--data-dependent", "true", "--order", "1"], "order must be above 1"),
    "seed": (["knn", "--seed", "x"], "--seed must be a whole number"),
    "device": (["knn", "--device", "tpu"], "--device must be auto"),
    "data": (["knn", "--data", "/nowhere/at/all"], "--data must be a folder"),
    "votes nowhere": (["pate", "--votes", "/nowhere/votes.npy"], "cannot be read"),
    "budget alone": (["knn", "--budget", "x"], "needs --ledger"),
    "ledger nowhere": (["rknn", "--ledger", "/nowhere/at/all/b.db"], "does not exist"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_line_and_leaves_nothing(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, words = REFUSED[case]
    out = tmp_path / "deep" / "run"
    status = main(["transfer", *arguments, *([] if case == "no value" else ["--out", str(out)])])
    said = capsys.readouterr()
    assert status == 2, said
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert words in line
    assert not out.parent.exists()


def refuse(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["transfer", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_files_of_ones_own_are_taken_when_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(splits.PUBLIC, "mnist", 120)
    draw, folder, out = np.random.default_rng(0), tmp_path / "mnist", tmp_path / "run"
    folder.mkdir()
    for part, count in (("train", 300), ("t10k", 200)):
        images = draw.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    asked = ["rknn", "--dataset", "mnist", "--data", str(tmp_path), "--out", str(out),
             "--features", "pixels", "--keep", "16", "--centres", "20", *QUICK]  # fmt: skip
    assert "has only 235,216 of 47,040,016 bytes" in refuse(asked, capsys)
    assert not out.exists()
    assert main(["transfer", *asked, "--unverified"]) == 0
    told = json.loads((out / "run.json").read_text())["data"]["files"]
    # By a checksum whoever knows the other records could try any guess at one.
    assert set(told.values()) == {"unverified"}
    assert main(["transfer", "--resume", "--out", str(out)]) == 0


def test_votes_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run")]
    path = tmp_path / "votes.npy"
    np.save(path, np.full((20, 10), 3))
    given = ["pate", "--votes", str(path), *out]
    assert "holds votes on 20 images" in refuse(given, capsys)
    np.save(path, np.full((200, 7), 3))
    assert "on 7 classes, not on 10" in refuse(given, capsys)
    path.write_text("nothing")
    assert "is no .npy file" in refuse(given, capsys)
    assert not (tmp_path / "run").exists()


def test_resuming_needs_a_run_and_no_contradiction(
    tmp_path: Path, finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["--resume", "--out", str(finished[0])]
    assert "holds no run" in refuse(["--resume", "--out", str(tmp_path / "none")], capsys)
    assert "--resume needs --out" in refuse(["--resume"], capsys)
    assert "--epsilon 2.0 contradicts" in refuse([*again, "--epsilon", "2"], capsys)
    assert "--queries 100 contradicts" in refuse([*again, "--queries", "100"], capsys)
    assert "METHOD knn contradicts" in refuse(["knn", *again], capsys)
    assert "--dataset mnist contradicts" in refuse([*again, "--dataset", "mnist"], capsys)
    assert "--ledger x.db contradicts" in refuse([*again, "--ledger", "x.db"], capsys)
    assert "holds a run already" in refuse(["pate", "--out", str(finished[0])], capsys)
    assert not (tmp_path / "none").exists()


def test_each_command_resumes_its_own_runs(
    tmp_path: Path, finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "digits", "--epochs", "1", "--out", str(tmp_path / "run")]) == 0
    line = refuse(["--resume", "--out", str(tmp_path / "run")], capsys)
    assert "'digits' is no transfer" in line
    assert main(["train", "--resume", "--out", str(finished[0])]) == 2
    assert "is of no recipe: go on with it (tacit transfer --resume" in capsys.readouterr().err


# ---- stopping and going on


class Child:
    """A process whose votes are slow, its standard error read line by line."""

    def __init__(self, folder: Path, *arguments: str, each: float) -> None:
        self.log = folder / "asked"
        self.told: list[str] = []
        env = {"ASKED": str(self.log), "EACH": str(each)}
        self.process = Forked(lambda: transfer_child.command("transfer", *arguments), env)

    def wait_for(self, word: str) -> None:
        """Reads until a line begins with ``word``."""
        for line in self.process.stderr:
            self.told.append(line.rstrip())
            if line.startswith(word):
                return
        pytest.fail(f"{word!r} never came: {self.told}")

    def end(self) -> int:
        self.out, rest = self.process.communicate(timeout=600)
        self.told += [line for line in rest.splitlines() if line.strip()]
        return self.process.returncode

    @property
    def asked(self) -> list[int]:
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []


def go_on(folder: Path, out: Path) -> list[int]:
    """Brings the run in ``out`` to its end in this process; all that was ever asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pate, "label", transfer_child.slow)
        patch.setenv("ASKED", str(folder / "asked"))
        patch.setenv("EACH", "0")
        assert main(["transfer", "--resume", "--out", str(out)]) == 0
    return [int(line) for line in (folder / "asked").read_text().split()]


def judge(out: Path, asked: list[int]) -> dict[str, Any]:
    """The run has come to its end, whole, and nothing was asked twice."""
    assert {one.name for one in out.iterdir()} == FILES | RELEASED
    assert len(asked) == len(set(asked))
    rows = (out / "answers.csv").read_text().splitlines()[1:]
    assert {int(row.split(",")[0]) for row in rows} <= set(asked)
    statement = Statement.from_json((out / "statement.json").read_text())
    found: dict[str, Any] = json.loads((out / "run.json").read_text())
    assert statement.epsilon <= found["epsilon"] * (1.0 + 1e-9)
    return found


def test_ctrl_c_saves_and_resuming_asks_no_query_twice(tmp_path: Path) -> None:
    out = tmp_path / "run"
    child = Child(tmp_path, "pate", "--out", str(out), *SMALL, each=0.1)
    child.wait_for("asked 4")
    child.process.send_signal(signal.SIGINT)
    assert child.end() == 130, child.told
    assert child.told[-1].endswith(f"go on with: tacit transfer --resume --out {out}")
    assert child.out == ""
    before = child.asked
    assert (out / "private").is_dir()
    assert (out / "private").stat().st_mode & 0o077 == 0
    asked = go_on(tmp_path, out)
    assert len(asked) > len(before)
    judge(out, asked)
    # Nothing was in flight, so that nothing is lost: the queries are all there.
    assert sorted(asked) == list(range(len(asked)))


def test_a_killed_run_goes_on_and_asks_no_query_twice(tmp_path: Path) -> None:
    out, url = tmp_path / "run", f"sqlite:///{tmp_path}/budget.db"
    state = ledger_state(url)
    child = Child(tmp_path, "pate", "--out", str(out), *SMALL, "--ledger", url, each=0.1)
    child.wait_for("asked 18")
    child.process.kill()
    child.end()
    before, (spent, granted) = child.asked, state()
    assert granted > 0
    asked = go_on(tmp_path, out)
    found = judge(out, asked)
    assert asked[: len(before)] == before
    # Charged once: the whole was declared before the first query was asked.
    assert state()[0] == pytest.approx(spent)
    assert spent == pytest.approx(found["epsilon"])


def test_a_run_killed_before_its_first_query_keeps_its_teachers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    child = Child(tmp_path, "pate", "--out", str(out), *SMALL, each=0.2)
    child.wait_for("labelling")
    child.process.kill()
    child.end()
    assignment = (out / "private" / "teachers" / "assignment").read_bytes()
    kept: list[bytes] = []

    def slow(*given: Any, **named: Any) -> Any:
        kept.append((out / "private" / "teachers" / "assignment").read_bytes())
        return asking(*given, **named)

    asking = transfer_child.slow
    monkeypatch.setattr(transfer_child, "slow", slow)
    judge(out, go_on(tmp_path, out))
    assert kept == [assignment]


def test_ctrl_c_before_anything_was_made_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    child = Child(tmp_path, "rknn", "--out", str(out), each=5.0)
    child.wait_for("features")  # not sooner: imports of others may swallow a KeyboardInterrupt
    child.process.send_signal(signal.SIGINT)
    assert child.end() == 130, child.told
    assert not out.parent.exists()


# ---- ledgers


def ledger_state(url: str) -> Callable[[], tuple[float, int]]:
    def state() -> tuple[float, int]:
        with Ledger(url, create=False) as ledger:
            assert ledger.verify().ok
            budget = ledger.budget("digits")
            return budget.spent().epsilon, budget.state.granted

    return state


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """What a run tells that a budget opened so refuses: nothing is left of it, nor charged."""

    def run(method: str, small: list[str], *limits: float, **more: Any) -> list[str]:
        url, out = f"sqlite:///{tmp_path}/budget.db", tmp_path / "run"
        with Ledger(url) as ledger:
            ledger.open("digits", *limits, **more)
        assert main(["transfer", method, "--out", str(out), *small, "--ledger", url]) == 2
        assert not out.exists()
        assert ledger_state(url)() == (0.0, 0)
        return capsys.readouterr().err.splitlines()

    return run


@pytest.mark.parametrize("method", ["pate", "rknn"])
def test_a_budget_that_does_not_hold_a_run_refuses_it_beforehand(
    method: str, refused: Callable[..., list[str]]
) -> None:
    small = SMALL if method == "pate" else QUICK
    told = refused(method, small, 0.1, 1e-5, composition="declared")
    assert any("has no room for" in line for line in told)


def test_a_budget_for_users_is_refused_in_one_line(refused: Callable[..., list[str]]) -> None:
    opened, line = refused("rknn", QUICK, 100.0, 1e-4, unit="user")
    assert "opened the budget 'digits'" in opened
    assert "unit must be that of the budget 'digits', 'user'" in line


def test_the_noise_is_found_for_the_budgets_neighbours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, out = f"sqlite:///{tmp_path}/budget.db", tmp_path / "run"
    with Ledger(url) as ledger:
        ledger.open("mine", 1.5, 1e-5, adjacency="replace-one", composition="declared")
    given = ["--set", "noise=gaussian", "--epsilon", "1", *QUICK, "--ledger", url]
    assert main(["transfer", "rknn", "--out", str(out), *given, "--budget", "mine"]) == 0
    statement = Statement.from_json((out / "statement.json").read_text())
    assert statement.adjacency == "replace-one"
    assert statement.epsilon == pytest.approx(1.0, rel=1e-6)
    with Ledger(url, create=False) as ledger:
        assert ledger.budget("mine").spent().epsilon == pytest.approx(1.0, rel=1e-6)
    assert "replaced" in (out / "report.md").read_text()
    capsys.readouterr()
