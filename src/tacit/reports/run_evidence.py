"""What in a run's folder was compared with the thing itself: its files, its ledger, its signature.

Whatever could not be compared stays the word of whoever wrote it, and the report says so.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tacit._validation import printable
from tacit.accounting.serialization import as_dict, from_dict
from tacit.errors import CheckpointError, LedgerError, TacitError
from tacit.runs.folder import MODEL
from tacit.runs.results import non_finite
from tacit.statement import Assessed
from tacit.statement.preprocessing import without_preprocessing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.ledger import BudgetState, ReservationState
    from tacit.runs.record import RunRecord
    from tacit.statement import Charge, Statement

_CHUNK: Final = 1 << 20
_SQLITE: Final = re.compile(r"sqlite:///(?P<path>[^?#]+)")


@dataclass(frozen=True)
class Evidence:
    """What is proved, checked and claimed; ``warnings`` are what must not be overlooked."""

    findings: tuple[Assessed, ...]
    warnings: tuple[str, ...]


def gather(
    folder: Path,
    record: RunRecord,
    statement: Statement,
    *,
    ledger: str | None = None,
    signed_by: bytes | None = None,
) -> Evidence:
    """Compares what is there with the statement.

    Args:
        folder: The folder of the run.
        record: Its record.
        statement: Its statement, which has proved itself.
        ledger: The address of the ledger that it must be charged in; left out, a file at the
            place that the statement names is looked at if there is one, and no server is asked.
        signed_by: The public key in PEM that must have signed the statement.

    Guarantee:
        Nothing is ``"checked"`` that was not compared here. A file, a ledger or a signature that is
        not the one that the statement is about is refused.
    """
    if signed_by is not None:
        _check_signer(folder, statement, signed_by)
    found = {one.subject: one for one in files_of(folder, statement)}
    if statement.charge is not None or ledger is not None:
        found["ledger"] = _ledger(statement, ledger)
    if signed_by is not None:
        found["signature"] = _signer(statement)
    own = [found.pop(one.subject, one) for one in statement.findings()]
    return Evidence(
        (*own, *found.values(), *_of_record(record)), tuple(_warnings(folder, statement))
    )


def _warnings(folder: Path, statement: Statement) -> Iterator[str]:
    if statement.signature is not None and not statement.signature_fits():
        yield "the signature does not fit: the statement was changed after it was signed."
    model = folder / MODEL
    if model.is_file():
        yield from (f"{MODEL} is {one}." for one in _problems(model))


# ---- files


def files_of(folder: Path, statement: Statement) -> Iterator[Assessed]:
    """The released files, each compared with the statement; one that is another is refused."""
    for name, digest in statement.files.items():
        path = folder / name
        if not path.is_file():
            yield Assessed(name, "claimed", f"{name} has SHA-256 {digest}", "it is not here")
            continue
        if _digest(path) != digest:
            raise CheckpointError(
                f"{path} is not the file this statement is about; bring that one back, or remove it"
            )
        yield Assessed(name, "checked", f"{name} is the file of the statement", f"SHA-256 {digest}")
    if MODEL not in statement.files and (folder / MODEL).is_file():
        yield Assessed(MODEL, "claimed", f"{MODEL} is the model of the statement",
                      "the statement names no checksum of it")  # fmt: skip


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found.update(chunk)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    return found.hexdigest()


def _problems(path: Path) -> Iterator[str]:
    """What is wrong with the numbers of a model; its tensors are read, and nothing is run."""
    from safetensors import SafetensorError  # noqa: PLC0415 - only where there is a model
    from safetensors.torch import load_file  # noqa: PLC0415

    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, MemoryError) as error:
        reason = printable(" ".join(str(error).split()))[:200]
        raise CheckpointError(f"{path} is no model in safetensors: {reason}") from None
    yield from non_finite(tensors)


# ---- the ledger


def _ledger(statement: Statement, address: str | None) -> Assessed:
    charge = statement.charge
    if charge is None:
        raise CheckpointError(
            "the statement names no entry of a ledger, so that there is nothing to look up; leave "
            "out --ledger"
        )
    said = (
        f"it is charged to the budget {charge.budget!r} in {charge.location}, as of {charge.head}"
    )
    url = address or _file_of(charge)
    if url is None:
        return Assessed("ledger", "claimed", said, "no ledger is there; --ledger names one")
    try:
        reason = _difference(statement, charge, url)
    except (LedgerError, OSError):
        if address is not None:
            raise
        # Why would tell of a file of the reader's that a stranger has named, and reports travel.
        unread = "what is there cannot be read as a ledger; --ledger says why"
        return Assessed("ledger", "claimed", said, unread)
    if reason is None:
        return _looked_up(statement, charge, said)
    if address is None and reason == _ANOTHER:
        return Assessed("ledger", "claimed", said, reason)
    raise CheckpointError(f"the statement is not of the ledger {printable(url)}: {reason}")


def _looked_up(statement: Statement, charge: Charge, said: str) -> Assessed:
    """What was compared with a ledger that does not contradict the statement."""
    if charge.reservation is None:
        how = "the ledger holds this entry; no reservation is named whose charge could be compared"
        return Assessed("ledger", "claimed", said, how)
    how = "the ledger holds this entry, and charges no less"
    if any(one.charged for one in statement.preprocessing):
        how += " for the training; the charge of preprocessing was not looked up"
    return Assessed("ledger", "checked", said, how)


_ANOTHER: Final = "the ledger there is another one"


def _file_of(charge: Charge) -> str | None:
    """The ledger's own address if it is a file that is here; a server is not asked unbidden."""
    found = _SQLITE.fullmatch(charge.location)
    try:
        return charge.location if found is not None and Path(found["path"]).is_file() else None
    except (OSError, ValueError):
        return None


def _difference(statement: Statement, charge: Charge, url: str) -> str | None:
    """Why a ledger does not bear the statement out; None if it does."""
    from tacit.ledger import Ledger  # noqa: PLC0415 - only where one is looked at

    with Ledger(url, create=False) as ledger:
        if ledger.identity != charge.ledger:
            return _ANOTHER
        if not ledger.contains(charge.head):
            return f"it does not hold entry {charge.head}, which the statement names"
        budget = ledger.books.budgets.get(charge.budget)
        held = ledger.books.reservations.get(charge.reservation or 0)
    if budget is None:
        return f"it has no budget {charge.budget!r}"
    for name in ("adjacency", "unit"):
        own, claimed = getattr(budget, name), getattr(statement, name)
        if own != claimed:
            return f"{name} of its budget {budget.name!r} is {own!r}, not {claimed!r}"
    if charge.reservation is None:
        return None
    if held is None or held.budget != budget.name:
        return f"its budget {budget.name!r} has no reservation {charge.reservation}"
    return _shortfall(statement, budget, held)


def _shortfall(statement: Statement, budget: BudgetState, held: ReservationState) -> str | None:
    """Why a reservation is not that of the statement; its detail is only what somebody wrote."""
    from tacit.ledger.replay import alike  # noqa: PLC0415 - as above
    from tacit.ledger.verification import undercharged  # noqa: PLC0415 - as above

    said = f"reservation {held.number}"
    spent = (statement.steps_taken or 0) + statement.steps_lost
    if held.void:
        return f"{said} was ended before its first step, and is not charged"
    if held.granted < spent:
        return f"{said} was granted {held.granted} steps, not {spent}"
    plan = (held.detail or {}).get("plan")
    if plan is not None and statement.plan is not None and plan != statement.plan:
        return f"{said} is of another plan"
    training = without_preprocessing(statement.event, statement.preprocessing)
    if not alike(*(as_dict(from_dict(one)) for one in (held.event, training))):
        return f"{said} is of another event"
    return f"{said} charges less than its event costs" if undercharged(held, budget) else None


# ---- the signature


def _check_signer(folder: Path, statement: Statement, public: bytes) -> None:
    if statement.signature is None:
        raise CheckpointError(
            f"the statement in {folder} is not signed; sign it with 'tacit report --sign', or "
            "leave out --signed-by"
        )
    try:
        right = statement.verify_signature(public)
    except TacitError as error:
        raise CheckpointError(f"--signed-by names no key: {error}") from None
    if right:
        return
    wrong = (
        "is signed with another key"
        if statement.signature_fits()
        else "has a signature that does not fit"
    )
    signer = printable(statement.signature.signer)
    raise CheckpointError(f"the statement in {folder} {wrong}; it names {signer}")


def _signer(statement: Statement) -> Assessed:
    assert statement.signature is not None
    return Assessed(
        "signature",
        "checked",
        f"signed by {statement.signature.signer}",
        "with the key that the reader named; it says who claims the statement, not that it is true",
    )


def _of_record(record: RunRecord) -> Iterator[Assessed]:
    """What the run's record adds, none of which the statement covers."""
    yield Assessed("accuracy", "claimed", "the model reaches it on the held-out data",
                  "the data are not here")  # fmt: skip
    what, whose = (
        ("the model is of the class", "of the class ")
        if record.kind == "own"
        else ("the recipe is", "")
    )
    yield Assessed("data, settings, software", "claimed",
                  f"{what} {record.recipe}, and the data are {whose}{record.data['name']}",
                  "run.json says so, and nothing proves it")  # fmt: skip
