"""``tacit report``: a real run's report written again, or one line and status 2."""

from __future__ import annotations

import json
import shutil
import struct

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

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


@pytest.mark.usefixtures("drawn")
def test_the_report_is_written_and_named(run, capsys):
    (run / "report.html").unlink(missing_ok=True)
    assert main(["report", str(run)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    first, second, *found, last = out.splitlines()
    heads = [at for at, line in enumerate(found) if not line.startswith("  ")]
    proved, checked, claimed = (
        found[at:end] for at, end in zip(heads, [*heads[1:], None], strict=True)
    )
    assert first.startswith("digits: ")
    assert "differentially private with ε = 3 and δ = 1e-5 for every single example" in second
    assert proved[:2] == [
        "Proved (computed again here, from the event in the statement):",
        "  ε: the event's ε is at most 3 at δ = 1e-5 under add-remove",
    ]
    assert "  event: the event is that of 2 steps of the plan, and covers the 2 taken" in proved
    assert checked == [
        "Checked (compared with the file or the ledger itself):",
        "  model.safetensors: model.safetensors is the file of the statement",
    ]
    assert claimed[0].startswith("Claimed (the word of whoever wrote the statement")
    assert claimed[1].startswith(
        "  plan: the run sampled, clipped and added noise as the plan says"
    )
    assert "  signature: not signed" in claimed
    assert "  data, settings, software: the recipe is digits, and the data are digits" in claimed
    assert last == f"The report is at {run / 'report.html'}"
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "<svg" in (run / "report.html").read_text(encoding="utf-8")
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


# ---- the files that a statement is about


@pytest.fixture
def copy(run, tmp_path):
    """A copy of the run that a test may spoil."""
    return shutil.copytree(run, tmp_path / "copy")


def evidence(folder, capsys, *arguments):
    assert main(["report", str(folder), "--json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    return found, {one["subject"]: one for one in found["evidence"]}


def test_a_swapped_model_is_refused(copy, capsys):
    model = copy / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    refused(
        ["report", str(copy)],
        "model.safetensors is not the file this statement is about",
        capsys,
    )


def test_a_model_that_is_not_there_is_claimed(copy, capsys):
    _, found = evidence(copy, capsys)
    assert found["model.safetensors"]["standing"] == "checked"
    (copy / "model.safetensors").unlink()
    _, found = evidence(copy, capsys)
    assert found["model.safetensors"]["standing"] == "claimed"
    assert found["model.safetensors"]["how"] == "it is not here"


def test_a_statement_that_names_no_file_is_not_said_to_fit(copy, capsys):
    path = copy / "statement.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"files": {}}))
    _, found = evidence(copy, capsys)
    assert found["model.safetensors"]["standing"] == "claimed"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_of_nan_or_infinity_is_named_as_such(copy, capsys, value):
    model = copy / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-4] + struct.pack("<f", value))
    path = copy / "statement.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"files": {}}))
    assert main(["report", str(copy)]) == 0
    assert "Careful: model.safetensors is a model of no use: 1 of its" in capsys.readouterr().out
    assert "hold NaN or infinity" in (copy / "report.md").read_text(encoding="utf-8")


def test_a_model_that_is_no_safetensors_file_is_refused(copy, capsys):
    (copy / "model.safetensors").write_bytes(b"\xff" * 100)
    path = copy / "statement.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"files": {}}))
    refused(["report", str(copy)], "is no model in safetensors", capsys)


# ---- the signature


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two key pairs, and a password on a third."""
    folder = tmp_path_factory.mktemp("keys")
    for name, protection in (
        ("own", NoEncryption()),
        ("other", NoEncryption()),
        ("locked", BestAvailableEncryption(b"sesame")),
    ):
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)
        (folder / f"{name}.pem").write_bytes(pem)
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pub").write_bytes(public)
    return folder


def test_a_signature_says_who_claims_it_and_proves_nothing(copy, keys, capsys):
    before, unsigned = evidence(copy, capsys)
    assert unsigned["signature"]["what"] == "not signed"
    key, name = str(keys / "own.pem"), "Clinic [of](http://x)"
    _, found = evidence(copy, capsys, "--sign", key, "--name", name)
    assert found["signature"]["standing"] == "claimed"
    assert found["signature"]["what"].startswith(f"signed by {name} (sha256:")
    after, found = evidence(copy, capsys, "--signed-by", str(keys / "own.pub"))
    assert found["signature"]["standing"] == "checked"
    others = [one for one in before["evidence"] if one["subject"] != "signature"]
    assert [one for one in after["evidence"] if one["subject"] != "signature"] == others


def test_a_signature_of_somebody_else_or_of_something_else_is_refused(copy, keys, capsys):
    public = str(keys / "own.pub")
    refused(["report", str(copy), "--signed-by", public], "is not signed; sign it with", capsys)
    assert main(["report", str(copy), "--sign", str(keys / "other.pem")]) == 0
    capsys.readouterr()
    refused(["report", str(copy), "--signed-by", public], "is signed with another key", capsys)
    path = copy / "statement.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tuning": "all of it is covered"}))
    other = str(keys / "other.pub")
    refused(
        ["report", str(copy), "--signed-by", other], "has a signature that does not fit", capsys
    )
    assert main(["report", str(copy)]) == 0
    assert "Careful: the signature does not fit" in capsys.readouterr().out


def test_what_the_ledger_contradicts_is_not_signed(copy, keys, capsys, tmp_path):
    url = f"sqlite:///{tmp_path}/budget.db"
    with tacit.Ledger(url) as ledger:
        budget = ledger.open("data", epsilon=9.0, delta=1e-4)
        held = budget.charge(tacit.accounting.Gaussian(100.0))
        charge = {"ledger": ledger.identity, "location": "elsewhere", "budget": "data",
                  "reservation": held.number, "head": str(ledger.head)}  # fmt: skip
    path = copy / "statement.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"charge": charge}))
    before = path.read_bytes()
    asked = ["report", str(copy), "--sign", str(keys / "own.pem"), "--ledger", url]
    refused(asked, "is not of the ledger", capsys)
    assert path.read_bytes() == before


def test_a_key_with_a_password_asks_for_it(copy, keys, capsys, monkeypatch):
    key = str(keys / "locked.pem")
    monkeypatch.setattr("click.prompt", lambda *_, **__: "wrong")
    refused(["report", str(copy), "--sign", key], "with the right password", capsys)
    monkeypatch.setattr("click.prompt", lambda *_, **__: "sesame")
    assert main(["report", str(copy), "--sign", key]) == 0


def test_what_is_no_key_is_refused_in_one_line(copy, keys, tmp_path, capsys):
    (tmp_path / "none.pem").write_text("-----BEGIN NONSENSE-----")
    for option in ("--sign", "--signed-by"):
        assert main(["report", str(copy), "--sign", str(keys / "own.pem")]) == 0
        capsys.readouterr()
        arguments = ["report", str(copy), option]
        refused([*arguments, str(tmp_path / "none.pem")], "key must be a p", capsys)
        refused([*arguments, str(tmp_path / "nowhere")], f"{option} ", capsys)
    refused(["report", str(copy), "--name", "x"], "--name is for --sign", capsys)


# ---- a statement that was made to keep a reader busy


def test_a_statement_that_takes_too_long_is_refused(copy, capsys, monkeypatch):
    def forever(*_: object, **__: object) -> None:
        while True:
            pass

    monkeypatch.setattr("tacit.reports.run_folder.read", forever)
    monkeypatch.setattr("tacit.cli.report.MOST_SECONDS", 0.2)
    refused(["report", str(copy)], "cannot be checked within 0.2 seconds", capsys)
