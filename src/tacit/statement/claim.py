"""One claim of differential privacy as a frozen value, proved again whenever it is read."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any, final

from tacit._validation import non_negative, one_line, open_probability, shown, text, unit_of_privacy
from tacit.accounting.events import check_adjacency
from tacit.errors import InvalidArgument, TacitError
from tacit.statement import evidence, fields, figures, signature, words
from tacit.statement.preprocessing import Access, accesses, check_charged, without_preprocessing
from tacit.statement.proof import check_claim, check_plan, proved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

    from tacit.accounting.events import Adjacency, Event
    from tacit.statement.evidence import Assessed
    from tacit.statement.fields import Charge
    from tacit.statement.figures import DataDependent, Figures
    from tacit.statement.signature import Signature


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One claim of differential privacy, complete enough for somebody else to check it.

    Args:
        epsilon: The ε that is claimed; infinite if the event has none at this δ.
        delta: The δ that goes with it.
        adjacency: Which data sets are neighbours.
        unit: Whom the claim protects: one ``"example"`` or one ``"user"``.
        accountant: The accountant that proves ``epsilon`` for ``event``.
        event: What was charged, as ``tacit.accounting.to_json`` writes it: all of it, with
            preprocessing first.
        plan: The plan of a training run, as ``Plan.as_dict`` writes it.
        steps_planned: How many steps the run was to take.
        steps_taken: How many it took.
        stopped_early: Why ``event`` is right although fewer steps were taken than planned.
        sampling: How records were sampled, in words.
        noise: Which noise was added, in words.
        assumptions: What must hold for the claim to hold.
        not_promised: What a reader might take the claim to say and it does not.
        tacit_version: The version that made the claim.
        torch_version: The version of PyTorch that carried it out, if one did.
        ledger: Where the charge is recorded, if it is.
        threat_model: Who is taken to see what.
        releases: What is released, in words.
        preprocessing: What was done with the data before the training, each with its event.
        tuning: How the hyper-parameters were found, and whether the claim covers that.
        randomness: Where random bits come from, and what floating point does to the claim.
        versions: Other software that took part, by name.
        configuration: The SHA-256 of the run's configuration.
        data_dependent: An ε that depends on the data and was released with noise: a figure beside
            the claim that is none itself.
        steps_lost: How many more steps were charged to attempts whose results are gone.
        files: The SHA-256 of each released file, by its name.
        charge: Where the ledger has it.
        void: Whether nothing of it holds: a fixed seed was used for sampling and noise.
        signature: Who claims it; made by ``signed``.

    Guarantee:
        ``epsilon`` is no smaller than what ``accountant`` proves for ``event`` at ``delta``, and
        with a plan ``event`` is made of the plan's steps, as many as were taken and lost at least:
        this is computed again whenever a statement is made or read, and one that claims less is
        refused. So are ``figures`` in JSON that are not those of the event. That the event is what
        happened is claimed; ``findings`` tells the two apart.

    >>> from tacit.accounting import Gaussian, epsilon
    >>> from tacit.accounting.serialization import as_dict
    >>> claim = Statement(
    ...     epsilon=epsilon(Gaussian(4.0), 1e-5), delta=1e-5, event=as_dict(Gaussian(4.0)),
    ...     sampling="none", noise="fast", tacit_version="0.1.0",
    ... )
    >>> Statement.from_json(claim.to_json()) == claim
    True
    >>> round(claim.figures().mu, 3)
    0.25
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = "add-remove"
    unit: str = "example"
    accountant: str = "exact"
    event: dict[str, Any] = field(hash=False)
    plan: dict[str, Any] | None = field(default=None, hash=False)
    steps_planned: int | None = None
    steps_taken: int | None = None
    stopped_early: str | None = None
    sampling: str
    noise: str
    assumptions: tuple[str, ...] = ()
    not_promised: tuple[str, ...] = ()
    tacit_version: str
    torch_version: str | None = None
    ledger: str | None = None
    threat_model: str | None = None
    releases: tuple[str, ...] = ()
    preprocessing: tuple[Access, ...] = ()
    tuning: str | None = None
    randomness: str | None = None
    versions: dict[str, str] = field(default_factory=dict, hash=False)
    configuration: str | None = None
    data_dependent: DataDependent | None = None
    steps_lost: int = 0
    files: dict[str, str] = field(default_factory=dict, hash=False)
    charge: Charge | None = None
    void: bool = False
    signature: Signature | None = None

    def __post_init__(self) -> None:
        open_probability("delta", self.delta)
        check_adjacency(self.adjacency)
        unit_of_privacy(self.unit)
        text("accountant", self.accountant)
        if type(self.void) is not bool:
            raise InvalidArgument(f"void must be true or false, got {self.void!r:.40}")
        fields.check_texts(self)
        fields.check_steps(self)
        normal = {
            "epsilon": _epsilon(self.epsilon),
            "delta": float(self.delta),
            "event": fields.own("event", self.event),
            "plan": None if self.plan is None else fields.own("plan", self.plan),
            "assumptions": fields.texts("assumptions", self.assumptions),
            "not_promised": fields.texts("not_promised", self.not_promised),
            "releases": fields.texts("releases", self.releases),
            "preprocessing": accesses(self.preprocessing),
            "versions": fields.versions_of(self.versions),
            "data_dependent": figures.data_dependent_of(self.data_dependent),
            "files": fields.files_of(self.files),
            "charge": fields.charge_of(self.charge),
            "signature": signature.read(self.signature),
        }
        for name, value in normal.items():
            object.__setattr__(self, name, value)
        check_charged(self.event, self.preprocessing)
        check_plan(self)
        check_claim(self)

    def figures(self) -> Figures:
        """What the event amounts to: the certified bracket, ε at several δ, μ, attacks' limits."""
        return figures.figures(self.event, self.delta, self.adjacency)

    def findings(self) -> tuple[Assessed, ...]:
        """What is proved from the statement itself, and what is only claimed in it."""
        return tuple(evidence.findings(self))

    def signed(self, key: Ed25519PrivateKey | bytes, by: str = "") -> Statement:
        """The statement with a signature by ``key``, an Ed25519 key or one in PEM.

        ``by`` is the name that readers are shown beside the key's fingerprint. A signature says who
        claims the statement. It proves nothing that is in it.

        >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        >>> from tacit.accounting import Gaussian
        >>> from tacit.accounting.serialization import as_dict
        >>> key = Ed25519PrivateKey.generate()
        >>> claim = Statement(
        ...     epsilon=2.0, delta=1e-5, event=as_dict(Gaussian(4.0)), sampling="none",
        ...     noise="fast", tacit_version="0.1.0",
        ... ).signed(key, by="the clinic")
        >>> claim.verify_signature(key.public_key())
        True
        """
        return replace(self, signature=signature.sign(self._signed_part(), key, by))

    def signature_fits(self) -> bool:
        """Whether the statement is as the key in its signature signed it; False without one."""
        held = self.signature
        return held is not None and signature.fits(self._signed_part(), held)

    def verify_signature(self, public_key: Ed25519PublicKey | bytes) -> bool:
        """Whether the owner of ``public_key``, a key or one in PEM, signed exactly this."""
        held = self.signature
        return held is not None and signature.same_key(held, public_key) and self.signature_fits()

    def _signed_part(self) -> dict[str, Any]:
        """All fields in JSON's types, but the signature; an infinite ε is None."""
        plain = asdict(self)
        del plain["signature"]
        plain["epsilon"] = self.epsilon if math.isfinite(self.epsilon) else None
        return plain

    def to_json(self) -> str:
        """The statement as one line of JSON, with its figures; an infinite ε is null."""
        held = None if self.signature is None else asdict(self.signature)
        plain = self._signed_part() | {"signature": held}
        plain["figures"] = self.figures().as_dict()
        return json.dumps(plain, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Statement:
        """Reads what ``to_json`` wrote, and checks the claim, its plan and its figures again.

        Only ``figures`` may be missing. A signature is read, and not yet verified.
        """
        plain = fields.parsed(text)
        _check_names(cls, plain)
        try:
            return _read(plain)
        except TacitError:
            raise
        except UNCHECKABLE as error:
            raise InvalidArgument(f"the statement cannot be checked: {shown(str(error))}") from None

    def describe(self) -> str:
        """The statement in words, for a reader who has only this."""
        return words.describe(self)


# What an accountant may say of numbers that are none, or of more than a machine holds.
UNCHECKABLE = (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


def _check_names(kind: type[Statement], plain: object) -> None:
    names = [one.name for one in fields_of(kind)]
    if not isinstance(plain, dict) or not set(names) <= set(plain) <= {*names, "figures"}:
        raise InvalidArgument(f"a statement needs exactly its fields: {_difference(names, plain)}")


def _difference(names: list[str], plain: object) -> str:
    """What a statement lacks, and what it has that is no field of it.

    >>> _difference(["epsilon", "delta"], {"delta": 1e-5, "figures": {}, "claim": 1})
    "missing: 'epsilon'; unknown: 'claim'"
    """
    if not isinstance(plain, dict):
        return f"got {shown(plain)}"
    missing = [name for name in names if name not in plain]
    unknown = [name for name in plain if name not in {*names, "figures"}]
    return "; ".join(
        f"{what}: {', '.join(map(shown, some[:4]))}{', …' if len(some) > 4 else ''}"
        for what, some in (("missing", missing), ("unknown", unknown))
        if some
    )


def _read(plain: dict[str, Any]) -> Statement:
    written = plain.pop("figures", None)
    if plain["epsilon"] is None:
        plain["epsilon"] = math.inf
    claim = Statement(**plain)
    if written is not None:
        figures.check_figures(written, claim.figures().as_dict())
    return claim


def _epsilon(epsilon: float) -> float:
    return math.inf if epsilon == math.inf else non_negative("epsilon", epsilon)


# ---- a statement with more in it


def extended(
    statement: Statement,
    *,
    releases: str | Sequence[str] = (),
    preprocessing: Sequence[tuple[str, Event | None]] = (),
    tuning: str | None = None,
    versions: Mapping[str, str] | None = None,
    configuration: str | None = None,
    threat_model: str | None = None,
    assumptions: str | Sequence[str] = (),
    not_promised: str | Sequence[str] = (),
    data_dependent: DataDependent | None = None,
    files: Mapping[str, str] | None = None,
) -> Statement:
    """``statement`` with these parts added; texts, one or several, come after those there are.

    A text of several lines becomes one line.

    Args:
        statement: The claim so far, for instance of a training run.
        releases: What else is released, in words.
        preprocessing: What was done to the data before, each with its event; None as the event
            says that it is the same whatever the data are, and so costs nothing.
        tuning: How the hyper-parameters were found and whether that is covered; replaces the text.
        versions: Names of software with their versions.
        configuration: The SHA-256 of the run's configuration.
        threat_model: Who sees what; replaces the text.
        assumptions: What else must hold.
        not_promised: What else is not promised.
        data_dependent: An ε that depends on the data, released with noise; replaces the figure.
        files: The SHA-256 of released files, by name.

    Guarantee:
        The event of the result is that of ``statement`` and all of ``preprocessing`` together, and
        its ε what the statement's accountant proves for them: never less than before. A signature
        does not cover what is added, and is dropped.

    >>> from tacit.accounting import Gaussian, epsilon
    >>> from tacit.accounting.serialization import as_dict
    >>> from tacit.statement import Statement
    >>> claim = Statement(
    ...     epsilon=epsilon(Gaussian(4.0), 1e-5), delta=1e-5, event=as_dict(Gaussian(4.0)),
    ...     sampling="none", noise="fast", tacit_version="0.1.0",
    ... )
    >>> more = extended(claim, preprocessing=[("a noisy mean", Gaussian(4.0))])
    >>> round(more.epsilon, 4) == round(epsilon(Gaussian(4.0 / 2**0.5), 1e-5), 4)
    True
    """
    added = tuple(_access(what, event) for what, event in preprocessing)
    event = _together(statement, added)
    return replace(
        statement,
        event=event,
        epsilon=max(statement.epsilon, _proved(statement, event)),
        preprocessing=(*statement.preprocessing, *added),
        releases=(*statement.releases, *_several("releases", releases)),
        assumptions=(*statement.assumptions, *_several("assumptions", assumptions)),
        not_promised=(*statement.not_promised, *_several("not_promised", not_promised)),
        tuning=statement.tuning if tuning is None else one_line(tuning),
        threat_model=statement.threat_model if threat_model is None else one_line(threat_model),
        versions=statement.versions | dict(versions or {}),
        configuration=statement.configuration if configuration is None else configuration,
        data_dependent=statement.data_dependent if data_dependent is None else data_dependent,
        files=statement.files | dict(files or {}),
        signature=None,
    )


def _several(name: str, given: str | Sequence[str]) -> tuple[str, ...]:
    several = [given] if isinstance(given, str) else list(given)
    return fields.texts(name, [one_line(one) if isinstance(one, str) else one for one in several])


def _access(what: str, event: Event | None) -> Access:
    from tacit.accounting.serialization import as_dict  # noqa: PLC0415 - only where one is

    said = one_line(what) if isinstance(what, str) else what
    return Access(said, None if event is None else as_dict(event))


def _together(statement: Statement, added: tuple[Access, ...]) -> dict[str, Any]:
    """Preprocessing first, in its order, then whatever the statement is about."""
    if not any(one.charged for one in added):
        return statement.event
    rest = without_preprocessing(statement.event, statement.preprocessing)
    before = [one.event for one in (*statement.preprocessing, *added) if one.charged]
    return {"kind": "Composed", "events": [*before, rest]}


def _proved(statement: Statement, event: dict[str, Any]) -> float:
    return proved(event, statement.delta, statement.accountant, statement.adjacency)
