"""``tacit report``: a real run's report written again, or one line and status 2."""

from __future__ import annotations

import json

import pytest

import tacit
from tacit.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of the recipe that needs no data from elsewhere."""
    pytest.importorskip("sklearn")
    from tacit import recipes  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("runs") / "demo"
    recipes.run("digits", epsilon=3, settings={"epochs": 2}, folder=folder, progress=False)
    return folder


def test_the_report_is_written_and_named(run, capsys):
    (run / "report.html").unlink(missing_ok=True)
    assert main(["report", str(run)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    first, second, last = out.splitlines()
    assert first.startswith("digits: ")
    assert "differentially private with ε = 3 and δ = 1e-5 for every single example" in second
    assert last == f"The report is at {run / 'report.html'}"
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert (run / "report.md").is_file()


def test_json_is_the_statement_and_the_summary(run, capsys):
    assert main(["report", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["report"] == str(run / "report.html")
    claim = tacit.Statement.from_json(json.dumps(found["statement"]))
    assert claim.epsilon == pytest.approx(3.0)
    assert found["summary"]["recipe"] == "digits"
    assert found["summary"]["configuration"] == claim.configuration
    assert [one["epoch"] for one in found["summary"]["history"]] == [1, 2]


def refused(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


def test_a_folder_without_a_run_is_refused(tmp_path, capsys):
    refused(["report", str(tmp_path)], "holds no run; name the folder that --out named", capsys)
    refused(["report", str(tmp_path / "none")], "holds no run", capsys)
    refused(["report"], "Missing argument 'DIR'", capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_tampered_statement_is_refused(run, tmp_path, capsys):
    for name in ("run.json", "history.jsonl"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    plain = json.loads((run / "statement.json").read_text())
    (tmp_path / "statement.json").write_text(json.dumps(plain | {"epsilon": 1.0}))
    refused(["report", str(tmp_path)], "epsilon must be at least the 3", capsys)
    plain["figures"]["mu"] *= 0.9
    (tmp_path / "statement.json").write_text(json.dumps(plain))
    refused(["report", str(tmp_path)], "figures must be those of the event, whose mu is", capsys)
    assert not (tmp_path / "report.html").exists()


def test_a_folder_that_cannot_be_written_is_refused(run, capsys, monkeypatch):
    def full(_: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tacit.reports.run_report.write_summary", full)
    refused(["report", str(run)], f"{run} cannot be written: No space left on device", capsys)
