"""The claim as data: what a release guarantees, to whom, under which assumptions, and what not."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from decimal import ROUND_CEILING, Context, Decimal
from typing import TYPE_CHECKING, Any, final

from tacit._validation import non_negative, open_probability, unit_of_privacy, whole
from tacit.accounting.events import check_adjacency
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.accounting.events import Adjacency

_SLACK = 1e-9  # relative: what two builds of one accountant may differ by


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
        event: What was charged, as ``tacit.accounting.to_json`` writes it.
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

    Guarantee:
        ``epsilon`` is no smaller than what ``accountant`` proves for ``event`` at ``delta``: this
        is computed again whenever a statement is made or read, and one that claims less is refused.
        That the event is what happened is for the assumptions to say.

    >>> from tacit.accounting import Gaussian, epsilon
    >>> from tacit.accounting.serialization import to_plain
    >>> claim = Statement(
    ...     epsilon=epsilon(Gaussian(4.0), 1e-5), delta=1e-5, event=to_plain(Gaussian(4.0)),
    ...     sampling="none", noise="fast", tacit_version="0.1.0",
    ... )
    >>> Statement.from_json(claim.to_json()) == claim
    True
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

    def __post_init__(self) -> None:
        open_probability("delta", self.delta)
        check_adjacency(self.adjacency)
        unit_of_privacy(self.unit)
        _check_texts(self)
        _check_steps(self.steps_planned, self.steps_taken, self.stopped_early)
        normal = {
            "epsilon": math.inf
            if self.epsilon == math.inf
            else non_negative("epsilon", self.epsilon),
            "delta": float(self.delta),
            "event": _own("event", self.event),
            "plan": None if self.plan is None else _own("plan", self.plan),
            "assumptions": _texts("assumptions", self.assumptions),
            "not_promised": _texts("not_promised", self.not_promised),
        }
        for name, value in normal.items():
            object.__setattr__(self, name, value)
        _check_plan(self)
        _check_claim(self)

    def to_json(self) -> str:
        """The statement as one line of JSON; an infinite ε is null."""
        plain = asdict(self)
        plain["epsilon"] = self.epsilon if math.isfinite(self.epsilon) else None
        return json.dumps(plain, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Statement:
        """Reads what ``to_json`` wrote, and checks the claim again."""
        try:
            plain = json.loads(text)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"text must be JSON as written by to_json: {error}") from None
        names = [one.name for one in fields(cls)]
        if not isinstance(plain, dict) or set(plain) != set(names):
            raise InvalidArgument(f"a statement needs exactly the fields {names}, got {plain!r}")
        if plain["epsilon"] is None:
            plain["epsilon"] = math.inf
        return cls(**plain)

    def describe(self) -> str:
        """The statement in words, for a reader who has only this."""
        lines = [
            "This release is (ε, δ)-differentially private with "
            f"ε = {rounded_up(self.epsilon)} and δ = {self.delta} for every single "
            f"{self.unit}, under {self.adjacency}, as the accountant {self.accountant!r} proves.",
            f"Sampling: {self.sampling}. Noise: {self.noise}.",
        ]
        if math.isinf(self.epsilon):
            lines[0] = f"This release has no guarantee: its ε at δ = {self.delta} is infinite."
        if self.steps_planned is not None:
            reason = f" {self.stopped_early}" if self.stopped_early else ""
            lines.append(f"{self.steps_taken} of {self.steps_planned} steps were taken.{reason}")
        lines += [f"It assumes: {one}" for one in self.assumptions]
        lines += [f"It does not promise: {one}" for one in self.not_promised]
        if self.ledger is not None:
            lines.append(f"It is charged in the ledger as {self.ledger}.")
        torch = f", PyTorch {self.torch_version}" if self.torch_version else ""
        lines.append(f"Made by tacit {self.tacit_version}{torch}.")
        return "\n".join(lines)


def rounded_up(value: float, digits: int = 6) -> str:
    """An upper bound in ``digits`` significant digits, rounded up so that it stays one.

    >>> rounded_up(0.94686680081), rounded_up(2.0)
    ('0.946867', '2')
    """
    return f"{float(Context(digits, ROUND_CEILING).create_decimal(Decimal(value))):.{digits}g}"


def _epsilon(epsilon: float) -> float:
    return math.inf if epsilon == math.inf else non_negative("epsilon", epsilon)


def _own(name: str, value: object) -> dict[str, Any]:
    """A copy in JSON's types, so that nobody else can change it."""
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        copy = None
    if not isinstance(copy, dict):
        raise InvalidArgument(f"{name} must be a dictionary in JSON's types, got {value!r}")
    return copy


def _texts(name: str, values: object) -> tuple[str, ...]:
    given = tuple(values) if isinstance(values, list | tuple) else (None,)
    if not all(isinstance(one, str) for one in given):
        raise InvalidArgument(f"{name} must be a tuple of texts, got {values!r}")
    return given


def _check_texts(statement: Statement) -> None:
    for name in ("sampling", "noise", "tacit_version"):
        if not isinstance(getattr(statement, name), str):
            raise InvalidArgument(f"{name} must be a text, got {getattr(statement, name)!r}")
    for name in ("torch_version", "ledger", "stopped_early"):
        value = getattr(statement, name)
        if not isinstance(value, str | None):
            raise InvalidArgument(f"{name} must be a text or None, got {value!r}")


def _check_steps(planned: int | None, taken: int | None, stopped_early: str | None) -> None:
    if (planned is None) != (taken is None):
        raise InvalidArgument(
            f"steps_planned and steps_taken go together, got {planned!r} and {taken!r}"
        )
    early = False
    if planned is not None and taken is not None:
        whole("steps_planned", planned)
        if whole("steps_taken", taken, at_least=0) > planned:
            raise InvalidArgument(f"steps_taken must be at most {planned}, got {taken!r}")
        early = taken < planned
    if early != bool(stopped_early):
        raise InvalidArgument(
            "stopped_early must say which rule applies if fewer steps were taken than planned, and "
            f"only then, got {stopped_early!r} after {taken!r} of {planned!r} steps"
        )


def _check_plan(statement: Statement) -> None:
    """Whatever plan and statement both tell must be the same."""
    told: Mapping[str, object] = {
        "adjacency": statement.adjacency,
        "unit": statement.unit,
        "steps": statement.steps_planned,
    }
    plan = statement.plan or {}
    for name, value in told.items():
        if name in plan and plan[name] != value:
            raise InvalidArgument(f"{name} must be as in the plan, {plan[name]!r}, got {value!r}")


def _check_claim(statement: Statement) -> None:
    from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy only when it is asked
    from tacit.accounting.serialization import from_plain  # noqa: PLC0415

    if statement.accountant == "gdp-clt":
        raise InvalidArgument("accountant must prove a bound, got 'gdp-clt'; use 'exact'")
    proved = epsilon(
        from_plain(statement.event),
        statement.delta,
        accountant=statement.accountant,
        adjacency=statement.adjacency,
    )
    if not statement.epsilon >= proved * (1.0 - _SLACK):
        raise InvalidArgument(
            f"epsilon must be at least the {rounded_up(proved)} that {statement.accountant!r} "
            f"proves for the event, got {statement.epsilon!r}"
        )
