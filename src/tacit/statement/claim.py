"""One claim of differential privacy as a frozen value, proved again whenever it is read."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, final

from tacit._validation import non_negative, open_probability, shown, text, unit_of_privacy
from tacit.accounting.events import check_adjacency
from tacit.errors import InvalidArgument, TacitError
from tacit.statement import (
    access,
    charge,
    checking,
    data_dependent,
    evidence,
    figures,
    signature,
    words,
)
from tacit.statement.proving import check_claim, check_plan

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

    from tacit.accounting.events import Adjacency
    from tacit.statement.access import Access
    from tacit.statement.charge import Charge
    from tacit.statement.data_dependent import DataDependent
    from tacit.statement.evidence import Finding
    from tacit.statement.figures import Figures
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
        data_dependent: An ε that depends on the data and was told with noise: a figure beside the
            claim that is none itself.
        steps_lost: How many more steps were charged to attempts whose results are gone.
        files: The SHA-256 of each released file, by its name.
        charge: Where the ledger has it.
        signature: Who claims it; made by ``signed``.

    Guarantee:
        ``epsilon`` is no smaller than what ``accountant`` proves for ``event`` at ``delta``, and
        with a plan ``event`` is made of the plan's steps, as many as were taken and lost at least:
        this is computed again whenever a statement is made or read, and one that claims less is
        refused. So are ``figures`` in JSON that are not those of the event. That the event is what
        happened is claimed; ``findings`` tells the two apart.

    >>> from tacit.accounting import Gaussian, epsilon
    >>> from tacit.accounting.serialization import to_plain
    >>> claim = Statement(
    ...     epsilon=epsilon(Gaussian(4.0), 1e-5), delta=1e-5, event=to_plain(Gaussian(4.0)),
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
    signature: Signature | None = None

    def __post_init__(self) -> None:
        open_probability("delta", self.delta)
        check_adjacency(self.adjacency)
        unit_of_privacy(self.unit)
        text("accountant", self.accountant)
        checking.check_texts(self)
        checking.check_steps(self)
        normal = {
            "epsilon": _epsilon(self.epsilon),
            "delta": float(self.delta),
            "event": checking.own("event", self.event),
            "plan": None if self.plan is None else checking.own("plan", self.plan),
            "assumptions": checking.texts("assumptions", self.assumptions),
            "not_promised": checking.texts("not_promised", self.not_promised),
            "releases": checking.texts("releases", self.releases),
            "preprocessing": access.accesses(self.preprocessing),
            "versions": checking.versions_of(self.versions),
            "data_dependent": data_dependent.read(self.data_dependent),
            "files": checking.files_of(self.files),
            "charge": charge.read(self.charge),
            "signature": signature.read(self.signature),
        }
        for name, value in normal.items():
            object.__setattr__(self, name, value)
        access.check_charged(self.event, self.preprocessing)
        check_plan(self)
        check_claim(self)

    def figures(self) -> Figures:
        """What the event amounts to: the certified bracket, ε at several δ, μ, attacks' limits."""
        return figures.figures(self.event, self.delta, self.adjacency)

    def findings(self) -> tuple[Finding, ...]:
        """What is proved from the statement itself, and what is only claimed in it."""
        return tuple(evidence.findings(self))

    def signed(self, key: Ed25519PrivateKey | bytes, by: str = "") -> Statement:
        """The statement with a signature by ``key``, an Ed25519 key or one in PEM.

        ``by`` is the name that readers are shown beside the key's fingerprint. A signature says who
        claims the statement. It proves nothing that is in it.

        >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        >>> from tacit.accounting import Gaussian
        >>> from tacit.accounting.serialization import to_plain
        >>> key = Ed25519PrivateKey.generate()
        >>> claim = Statement(
        ...     epsilon=2.0, delta=1e-5, event=to_plain(Gaussian(4.0)), sampling="none",
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

        Fields that older versions did not know may be missing, and ``figures`` too. A signature is
        read, and not yet verified.
        """
        plain = checking.parsed(text)
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
# What a statement had before it could say more: always there.
_OLDEST = 17


def _check_names(kind: type[Statement], plain: object) -> None:
    names = [one.name for one in fields(kind)]
    if not isinstance(plain, dict) or not set(names[:_OLDEST]) <= set(plain) <= {*names, "figures"}:
        got = sorted(plain) if isinstance(plain, dict) else plain
        raise InvalidArgument(
            f"a statement needs exactly the fields {names} (and figures), got {shown(got)}"
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
