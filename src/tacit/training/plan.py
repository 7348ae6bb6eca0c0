"""The plan: one frozen value from which sampler, clipping, noise and accounted event all follow.

A guarantee is four things that agree: who was sampled, how far one record can push the result, how
much noise was added, and what the accountant counted. Here none of them can be set by itself.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, final, get_args

from tacit._files import parse_json
from tacit._numbers import compact
from tacit._validation import check_delta as check_delta  # noqa: PLC0414 - sessions have it from here
from tacit._validation import clip_in_reach, positive, whole
from tacit.accounting.events import (
    Adjacency,
    Composed,
    Event,
    Gaussian,
    PoissonSampled,
    RandomAllocation,
    Repeated,
    check_adjacency,
    check_event,
)
from tacit.errors import InvalidArgument, Uncalibratable
from tacit.statement import rounded_up
from tacit.training.correlation import (
    DIGITS,
    Banded,
    Correlation,
    as_before,
    check_correlated,
    completed,
    correlated_event,
    correlation_in_words,
    course,
    is_open,
)
from tacit.training.sampling import (
    Allocation,
    Cyclic,
    FullBatch,
    Poisson,
    Sampling,
    TruncatedPoisson,
)
from tacit.training.styles import AdaptiveQuantile, Flat, PerGroup, Style

Unit = Literal["example", "user"]
Noise = Literal["fast", "secure", "exact"]

_FLAT = Flat()
_DEAFENING = 1e9  # a noise multiplier that leaves nothing of the gradients
_KINDS = {
    kind.__name__: kind for kind in (*get_args(Style), *get_args(Sampling), *get_args(Correlation))
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole run of DP-SGD: all of it is public, and the guarantee depends on nothing else.

    A step samples a lot, brings each record's gradient down to ``clip``, adds them up, adds
    N(0, (noise_multiplier·clip)²) to every coordinate and divides by ``lot_size``: by the expected
    size of a lot, never by a realised one.

    Args:
        examples: How many examples the data set has; how many users, if ``unit`` is ``"user"``.
        lot_size: How many of them a lot has on average; any positive number up to ``examples``.
        steps: How many lots are drawn, at most.
        noise_multiplier: σ, the noise's standard deviation in units of ``clip``.
        clip: The largest norm of what one record adds to the sum. It is left out with
            ``PerGroup``, where it follows from the bounds.
        adjacency: What a neighbouring data set is: ``"add-remove"``, ``"replace-one"`` or
            ``"zero-out"``.
        unit: Whom the guarantee protects: one ``"example"``, or one ``"user"`` with all of theirs.
        examples_per_user: The public cap on one user's examples; needed with users, and only then.
        views: How many augmented views of an example are averaged before clipping.
        clipping: One of the styles of ``tacit.training.styles``.
        sampling: ``Poisson()``, ``FullBatch()``, ``TruncatedPoisson(largest)``, ``Allocation()``
            (for which ``"allocation"`` may be written) or, for correlated noise, ``Cyclic()``. Left
            out, it is the full batch if ``lot_size`` equals ``examples``, else Poisson;
            ``Cyclic()`` for correlated noise that is not ``Banded``.
        noise: ``"fast"``: floating-point noise from a statistical generator. ``"secure"``: the sum
            is rounded to a grid and gets integer noise from cryptographic bits, so that no low bit
            of a parameter tells anything. ``"exact"``: each gradient is rounded as well and sums
            are integers, so that neither order nor batch size can change a bit; units are then
            computed one by one.
        correlation: How noise is correlated over the steps (``tacit.training.correlation``); left
            out, it is independent. σ is then that of one participation of a record. It is kept with
            its coefficients, which are found here if they are not given.

        made_for: The (ε, δ) that ``for_budget`` was given: the δ of its statements unless another
            is given. It takes no part in what a plan releases.
        tried: Where ``for_budget`` chose the bands: numbers of bands, and the error of the models
            with each in units of independent noise's. It takes no part in it either.

    Guarantee:
        A run that samples, clips and adds noise as above releases no more than ``event``.
        ``noise="fast"`` takes floating-point numbers for real ones, ``"secure"`` floating-point
        sums, ``"exact"`` nothing of that kind.

    >>> plan = Plan(examples=60_000, lot_size=600, steps=10_000, noise_multiplier=4.0, clip=4.0)
    >>> plan.sample_rate, plan.noise_scale, round(plan.epsilon(delta=1e-5), 7)
    (0.01, 16.0, 0.9468668)
    """

    examples: int
    lot_size: float
    steps: int
    noise_multiplier: float
    clip: float = None  # type: ignore[assignment]  # a number once __post_init__ is through
    adjacency: Adjacency = "add-remove"
    unit: Unit = "example"
    examples_per_user: int | None = None
    views: int = 1
    clipping: Style = _FLAT
    sampling: Sampling = None  # type: ignore[assignment]  # likewise
    noise: Noise = "fast"
    correlation: Correlation | None = None
    made_for: tuple[float, float] | None = field(default=None, compare=False, repr=False)
    tried: tuple[tuple[int, float], ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        checked: dict[str, object] = {
            "examples": whole("examples", self.examples),
            "steps": whole("steps", self.steps),
            "noise_multiplier": positive("noise_multiplier", self.noise_multiplier),
            "adjacency": check_adjacency(self.adjacency),
            "views": whole("views", self.views),
        }
        checked["lot_size"] = _lot_size(self.lot_size, self.examples)
        checked["clip"] = _clip(self.clip, self.clipping)
        checked["examples_per_user"] = _examples_per_user(self.examples_per_user, self.unit)
        checked["sampling"] = _sampling(
            self.sampling, self.lot_size, self.examples, self.correlation
        )
        _check_allocation(checked["sampling"], self.adjacency)
        _check_noise(self.noise)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.correlation is not None:
            check_correlated(self)
            made = completed(self.correlation, self.steps, self.groups)
            object.__setattr__(self, "correlation", made)
            course(made, self.steps, self.groups)  # which refuses a strategy that grows
        elif isinstance(self.sampling, Cyclic):
            raise InvalidArgument(
                "sampling=Cyclic() is for correlated noise, got correlation=None; give one, such "
                "as tacit.Buffered(), or use Poisson()"
            )

    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        delta: float,
        examples: int,
        lot_size: float,
        epochs: float | None = None,
        steps: int | None = None,
        clip: float | None = None,
        adjacency: Adjacency = "add-remove",
        unit: Unit = "example",
        examples_per_user: int | None = None,
        views: int = 1,
        clipping: Style = _FLAT,
        sampling: Sampling | Literal["allocation"] | None = None,
        noise: Noise = "fast",
        correlation: Correlation | None = None,
        accountant: str = "exact",
        also: Event | None = None,
    ) -> Plan:
        """The plan with the least noise that keeps within (``epsilon``, ``delta``).

        Give either ``epochs`` (rounded up to whole steps, under ``Allocation`` to whole epochs) or
        ``steps``; the rest is as in ``Plan``.
        ``also`` is what else is released of the same data, such as a private mean: it and the plan
        together keep within the budget. With ``correlation=tacit.Banded()`` the number of bands is
        that of the least error in the model; where independent noise has it, the plan has no
        correlation, and ``plan.describe()`` says what was tried.

        Guarantee:
            ``plan.epsilon(delta, accountant) <= epsilon``; with ``also``, the same accountant
            proves it of ``Composed(also, plan.event)``.

        Raises:
            InvalidArgument: if δ is 1/``examples`` or more, which would allow to publish a record.
            Uncalibratable: if no amount of noise on the gradients meets the budget.

        >>> plan = Plan.for_budget(
        ...     epsilon=2, delta=1e-5, examples=60_000, lot_size=600, epochs=100, clip=4.0
        ... )
        >>> plan.steps, round(plan.noise_multiplier, 7), plan.epsilon(delta=1e-5) <= 2
        (10000, 2.1273754, True)
        """
        if is_open(correlation) and isinstance(sampling, Cyclic):
            raise InvalidArgument(
                "correlation.bands must be a number with sampling=Cyclic(), got 'auto'; or leave "
                "sampling out"
            )
        draft = cls(
            examples=examples,
            lot_size=lot_size,
            steps=_steps(steps, epochs, examples, lot_size, _named(sampling)),
            noise_multiplier=1.0,
            clip=clip,  # type: ignore[arg-type]
            adjacency=adjacency,
            unit=unit,
            examples_per_user=examples_per_user,
            views=views,
            clipping=clipping,
            sampling=sampling,  # type: ignore[arg-type]
            noise=noise,
            correlation=None if is_open(correlation) else correlation,
        )
        check_delta(delta, draft.examples, draft.unit)
        target = _Target(epsilon, delta, accountant, also)
        if isinstance(correlation, Banded) and is_open(correlation):
            found = _best_bands(draft, correlation, target)
        else:
            found = _quietest(draft, target)
        return replace(found, made_for=(epsilon, delta))

    def delta_or(self, delta: float | None) -> float:
        """``delta``, or the δ that the plan was made for if that is left out.

        >>> Plan(examples=9, lot_size=3, steps=5, noise_multiplier=2, clip=1).delta_or(1e-2)
        0.01
        """
        if delta is not None:
            return delta
        if self.made_for is None:
            raise InvalidArgument(
                "delta must be given, got None: only a plan made by Plan.for_budget has one"
            )
        return self.made_for[1]

    @property
    def sample_rate(self) -> float:
        """The chance of one record to be in one lot."""
        if isinstance(self.sampling, Allocation):
            return 1.0 / self.steps_per_epoch
        return self.lot_size / self.examples

    @property
    def steps_per_epoch(self) -> int:
        """How many steps a pass over the data takes, rounded up.

        >>> Plan(examples=10, lot_size=4, steps=5, noise_multiplier=2, clip=1).steps_per_epoch
        3
        """
        return _steps_per_epoch(self.examples, self.lot_size)

    @property
    def groups(self) -> int:
        """How many groups of records take turns, each in its own steps; 1 without groups."""
        if isinstance(self.sampling, Cyclic):
            return max(1, round(self.examples / self.lot_size))
        if isinstance(self.correlation, Banded) and isinstance(self.sampling, Poisson):
            assert isinstance(self.correlation.bands, int)
            return self.correlation.bands
        return 1

    @property
    def group_rate(self) -> float:
        """The chance of one record to be in a lot of its group."""
        if isinstance(self.sampling, Cyclic):
            return 1.0
        return min(1.0, self.sample_rate * self.groups)

    @property
    def epochs(self) -> float:
        """How often the plan visits each record on average."""
        if isinstance(self.sampling, Allocation):
            return self.steps / self.steps_per_epoch
        return self.steps * self.lot_size / self.examples

    def epochs_in(self, steps: int) -> int:
        """How many epochs the first ``steps`` steps finish.

        An epoch is ``1 / sample_rate`` steps, in which each record is visited once on average.

        >>> plan = Plan(examples=100, lot_size=40, steps=5, noise_multiplier=2, clip=1)
        >>> [plan.epochs_in(steps) for steps in range(6)]
        [0, 0, 0, 1, 1, 2]
        """
        return int(steps * self.sample_rate + 1e-9)

    @property
    def sensitivity(self) -> float:
        """The largest norm of what one record adds to the sum: the clip.

        Under ``AdaptiveQuantile`` it is the first step's; later ones have the clip found by then.
        """
        return self.clip

    @property
    def noise_scale(self) -> float:
        """The standard deviation σ·clip of the noise on each coordinate of the sum.

        Under ``AdaptiveQuantile`` it is the first step's.
        """
        return self.noise_multiplier * self.clip

    @property
    def event(self) -> Event:
        """What the whole plan releases, as the accountants read it."""
        return self.event_after(self.steps)

    def event_after(self, steps: int) -> Event:
        """What the first ``steps`` steps release.

        An epoch of ``Allocation`` counts whole once it is begun: its lots hang together, and where
        to stop within it may depend on what it released. A part of an epoch tells no more.

        >>> Plan(examples=9, lot_size=9, steps=5, noise_multiplier=2, clip=1).event_after(3)
        Repeated(event=Gaussian(sigma=2.0, replace_distance=2.0), times=3)
        """
        taken = whole("steps", steps, at_least=0)
        if taken > self.steps:
            raise InvalidArgument(f"steps must be at most the plan's {self.steps}, got {steps!r}")
        if isinstance(self.sampling, Allocation) and taken:
            size = self.steps_per_epoch
            return RandomAllocation(size, _released(self), epochs=-(-taken // size))
        if self.correlation is not None and taken:
            return correlated_event(self, taken)
        return Repeated(_step(self), taken) if taken else Composed()

    def epsilon(self, delta: float, accountant: str = "exact") -> float:
        """The ε of the whole plan at this δ.

        Guarantee:
            As for ``tacit.accounting.epsilon``; the release is ``event``.
        """
        from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy only when it is asked

        return epsilon(self.event, delta, accountant=accountant, adjacency=self.adjacency)

    def describe(self, delta: float | None = None) -> str:
        """The plan in words; with ``delta`` also what it gives away."""
        lines = [
            f"{self.steps:,} steps, each on {_sampling_in_words(self)};",
            f"{_clipping_in_words(self)};",
            f"Gaussian noise of σ = {self.noise_multiplier:.6g} clips "
            f"(standard deviation {self.noise_scale:.6g}) on each coordinate of the sum,\n"
            f"which is then divided by {self.lot_size:g};",
            f"one {self.unit} is protected, under {self.adjacency}.",
        ]
        if self.correlation is not None:
            lines.insert(3, f"{correlation_in_words(self)};")
        if self.tried:
            lines.append(_tried_in_words(self))
        if delta is not None:
            spent = rounded_up(self.epsilon(delta))
            lines.append(f"The whole plan is (ε, δ) = ({spent}, {compact(delta)})-private.")
        return "\n".join(lines)

    def taken_up(self, before: Plan) -> Plan | None:
        """``before`` if it is this plan, found on another machine or version; else None.

        There σ may differ in the last digits, and so may the coefficients of correlated noise. Who
        goes on with a run, or draws on what was approved, goes by the plan as it was.

        >>> plan = Plan(examples=9, lot_size=3, steps=5, noise_multiplier=2, clip=1)
        >>> plan.taken_up(replace(plan, noise_multiplier=2.1)) is None
        True
        """
        digits = 1e-9 if self.correlation is None else DIGITS
        if not abs(before.noise_multiplier / self.noise_multiplier - 1.0) < digits:
            return None
        correlation = as_before(self.correlation, before.correlation)
        same = replace(self, noise_multiplier=before.noise_multiplier, correlation=correlation)
        return same if same == before else None

    def as_dict(self) -> dict[str, Any]:
        """The plan in JSON's types."""
        names = [name for name in _names() if name != "correlation" or self.correlation is not None]
        return {name: _plain(getattr(self, name)) for name in names}

    @classmethod
    def from_dict(cls, plain: object) -> Plan:
        """The plan that ``as_dict`` took apart."""
        names = _names()
        if not isinstance(plain, dict) or set(plain) | {"correlation"} != set(names):
            raise InvalidArgument(f"a plan needs exactly the fields {names}, got {plain!r}")
        given: dict[str, Any] = {name: _value(name, value) for name, value in plain.items()}
        return cls(**given)

    def to_json(self) -> str:
        """The plan as one line of JSON, every number to its last bit."""
        return json.dumps(self.as_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads what ``to_json`` wrote.

        >>> plan = Plan(examples=9, lot_size=3, steps=5, noise_multiplier=2, clip=1)
        >>> Plan.from_json(plan.to_json()) == plan
        True
        """
        try:
            plain = parse_json(text)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"text must be JSON as written by to_json: {error}") from None
        return cls.from_dict(plain)


def _names() -> list[str]:
    """The fields that say what a plan releases, and how."""
    return [one.name for one in fields(Plan) if one.compare]


def _lot_size(lot_size: float, examples: int) -> float:
    number = positive("lot_size", lot_size)
    if number > examples:
        raise InvalidArgument(
            f"lot_size must be at most examples = {examples}, got {lot_size!r}; take a smaller lot"
        )
    return int(number) if number.is_integer() else number


def _clip(clip: float | None, style: Style) -> float:
    if not isinstance(style, get_args(Style)):
        raise InvalidArgument(f"clipping must be a style such as Flat(), got {style!r}")
    if isinstance(style, PerGroup):
        if clip is not None and positive("clip", clip) != style.clip:
            raise InvalidArgument(
                f"clip follows from the bounds of PerGroup and is {style.clip:.6g} here, "
                f"got {clip!r}; leave it out"
            )
        return clip_in_reach("clip", style.clip)
    if clip is None:
        raise InvalidArgument(
            "clip must be a positive finite number, got None; it is left out with PerGroup only"
        )
    return clip_in_reach("clip", clip)


def _examples_per_user(cap: int | None, unit: str) -> int | None:
    if unit not in get_args(Unit):
        raise InvalidArgument(f"unit must be one of {', '.join(get_args(Unit))}, got {unit!r}")
    if (cap is not None) != (unit == "user"):
        raise InvalidArgument(
            "examples_per_user must be given with unit='user', and only then, "
            f"got {cap!r} with unit={unit!r}; it is the public cap on one user's examples"
        )
    return None if cap is None else whole("examples_per_user", cap)


def _sampling(
    sampling: Sampling | Literal["allocation"] | None,
    lot_size: float,
    examples: int,
    correlation: Correlation | None,
) -> Sampling:
    sampling = _named(sampling)
    match sampling:
        case None if lot_size == examples:
            return FullBatch()
        case None:
            return Poisson() if correlation is None or isinstance(correlation, Banded) else Cyclic()
        case FullBatch() if lot_size != examples:
            raise InvalidArgument(
                f"sampling=FullBatch() needs lot_size = examples = {examples}, "
                f"got lot_size={lot_size!r}; set it, or use Poisson()"
            )
        case TruncatedPoisson(largest) if largest <= lot_size:
            raise InvalidArgument(
                f"sampling.largest must be above lot_size = {lot_size!r}, got {largest!r}; "
                "about half of all lots would be cut"
            )
        case Allocation() if lot_size == examples:
            raise InvalidArgument(
                f"sampling='allocation' needs lot_size below examples = {examples}, got "
                f"{lot_size!r}: every lot would be everybody; use FullBatch()"
            )
        case Poisson() | FullBatch() | TruncatedPoisson() | Allocation() | Cyclic():
            return sampling
        case _:
            raise InvalidArgument(
                "sampling must be Poisson(), FullBatch(), TruncatedPoisson(largest), 'allocation' "
                f"or Cyclic(), got {sampling!r}; shuffled batches have no known guarantee"
            )


def _named(sampling: Sampling | Literal["allocation"] | None) -> Sampling | None:
    """``sampling``, or what its name stands for."""
    return Allocation() if sampling == "allocation" else sampling


def _check_allocation(sampling: object, adjacency: Adjacency) -> None:
    if isinstance(sampling, Allocation) and adjacency == "replace-one":
        raise InvalidArgument(
            "adjacency must be 'add-remove' or 'zero-out' with sampling='allocation', got "
            "'replace-one': no theorem says how much allocation hides then; or use Poisson()"
        )


def _steps_per_epoch(examples: int, lot_size: float) -> int:
    exact = examples / lot_size
    nearest = round(exact)
    return nearest if math.isclose(exact, nearest, rel_tol=1e-12) else math.ceil(exact)


def _check_noise(noise: str) -> None:
    if noise not in get_args(Noise):
        raise InvalidArgument(f"noise must be one of {', '.join(get_args(Noise))}, got {noise!r}")


def _released(plan: Plan) -> Event:
    """What one step releases of its lot."""
    released: Event = Gaussian(plan.noise_multiplier)
    if isinstance(plan.clipping, AdaptiveQuantile):
        # The count is released from the same lot as the gradients, so both are sampled together.
        released = Composed(released, Gaussian(plan.clipping.count_multiplier))
    return released


def _step(plan: Plan) -> Event:
    """What one step releases, if lots are independent of each other."""
    released = _released(plan)
    match plan.sampling:
        case FullBatch() | Allocation():
            return released
        case TruncatedPoisson(largest):
            # Under add-remove the neighbour may have one record more.
            population = plan.examples + (1 if plan.adjacency == "add-remove" else 0)
            return PoissonSampled(plan.sample_rate, released, cap=largest, population=population)
        case Poisson():
            return PoissonSampled(plan.sample_rate, released)
        case Cyclic():
            raise AssertionError("a plan with Cyclic() has correlated noise")


def _steps(
    steps: int | None,
    epochs: float | None,
    examples: int,
    lot_size: float,
    sampling: Sampling | None,
) -> int:
    """``steps``, or what ``epochs`` amount to, rounded up: a part of a step is not forgotten."""
    if (steps is None) == (epochs is None):
        raise InvalidArgument(
            f"for_budget needs either epochs or steps, got epochs={epochs!r} and steps={steps!r}"
        )
    if steps is not None:
        return whole("steps", steps)
    assert epochs is not None
    size = _lot_size(lot_size, whole("examples", examples))
    exact = positive("epochs", epochs) * examples / size
    if isinstance(sampling, Allocation):
        exact = float(math.ceil(epochs) * _steps_per_epoch(examples, size))
    if exact > 1e15:
        raise InvalidArgument(f"epochs must amount to at most 1e15 steps, got {epochs!r}")
    nearest = round(exact)
    close = math.isclose(exact, nearest, rel_tol=1e-12)
    return nearest if close and nearest > 0 else math.ceil(exact)


def _sampling_in_words(plan: Plan) -> str:
    people = f"{plan.examples:,} {plan.unit}s"
    each = f"a Poisson sample of {plan.lot_size:g} of {people} on average"
    match plan.sampling:
        case FullBatch():
            return f"all {people}"
        case Allocation():
            return (
                f"one of {plan.steps_per_epoch:,} lots of an epoch, in exactly one of which each "
                f"of {people} is, at random"
            )
        case TruncatedPoisson(largest):
            return f"{each}, cut to {largest} where it is larger"
        case Cyclic():
            return f"one of {plan.groups} groups of {people}, whole and in turn"
        case Poisson() if plan.groups > 1:
            return (
                f"a Poisson sample of {plan.lot_size:g} on average of one of {plan.groups} groups "
                f"of {people}, in turn (rate {plan.group_rate:.6g} within the group)"
            )
        case Poisson():
            return f"{each} (rate {plan.sample_rate:.6g})"


def _clipping_in_words(plan: Plan) -> str:
    cap = f" (of at most {plan.examples_per_user} examples)" if plan.unit == "user" else ""
    views = f", averaged over {plan.views} views," if plan.views > 1 else ""
    whose = f"the gradient of each {plan.unit}{cap}{views}"
    style = "" if plan.clipping == _FLAT else f" ({plan.clipping!r})"
    return f"{whose} is bounded by {plan.clip:.6g}{style}"


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if type(value).__name__ not in _KINDS:
        return value
    named = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}  # type: ignore[arg-type]
    return {"kind": type(value).__name__} | named


def _value(name: str, value: object) -> object:
    if not isinstance(value, dict):
        return value
    kind = _KINDS.get(str(value.get("kind")))
    given = {key: item for key, item in value.items() if key != "kind"}
    if kind is None or set(given) != {field.name for field in fields(kind)}:
        raise InvalidArgument(f"{name} must be written as by to_json, got {value!r}")
    made: object = kind(**given)
    return made


# ---- correlated noise: how many bands


def _tried_in_words(plan: Plan) -> str:
    if len(plan.tried) == 1:
        return (
            f"Correlated noise was not tried: lots of {plan.lot_size:g} of {plan.examples:,} and "
            f"{plan.steps:,} steps leave no room for two groups of records that take turns."
        )
    tried = "; ".join(f"{bands}: {error:.3g}" for bands, error in plan.tried)
    if plan.correlation is None:
        return (
            "Independent noise is best here: with correlated noise the error in the models, in "
            f"units of independent noise's, would be, by bands, {tried}."
        )
    return f"The error in the models, in units of independent noise's, by bands: {tried}."


_BANDS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def _best_bands(draft: Plan, wanted: Banded, target: _Target) -> Plan:
    """The plan with the number of bands that leads to the least error in the models.

    More bands cancel more noise and gain less from sampling; once more of them were worse twice,
    none above is tried.
    """
    best = _quietest(draft, target)
    alone = best.noise_multiplier * math.sqrt(_independent_error(wanted, draft.steps))
    tried = [(1, 1.0)]
    least, worse = 1.0, 0
    for bands in _BANDS:
        if bands * draft.lot_size > draft.examples or bands > draft.steps or worse == 2:
            break
        plan = _quietest(replace(draft, correlation=replace(wanted, bands=bands)), target)
        assert plan.correlation is not None
        error = math.sqrt(course(plan.correlation, plan.steps, plan.groups).error())
        tried.append((bands, plan.noise_multiplier * error / alone))
        worse = 0 if tried[-1][1] < least else worse + 1
        if not worse:
            best, least = plan, tried[-1][1]
    return replace(best, tried=tuple(tried))


def _independent_error(workload: Banded, steps: int) -> float:
    """The mean squared error of the models with independent noise of variance 1."""
    import numpy as np  # noqa: PLC0415 - only when it is asked

    from tacit.accounting.strategies import Workload, normalised_error  # noqa: PLC0415

    own = Workload(workload.momentum, workload.schedule)
    return normalised_error([1.0], np.ones(steps), own)


# ---- the least noise with which a plan keeps within a budget, or what stands in the way of it


@final
@dataclass(frozen=True, slots=True)
class _Target:
    """The (ε, δ) that a plan must keep within, together with what ``also`` is released."""

    epsilon: float
    delta: float
    accountant: str
    also: Event | None

    def __post_init__(self) -> None:
        if self.accountant == "gdp-clt":
            raise InvalidArgument("accountant must prove a bound, got 'gdp-clt'; use 'exact'")

    def event(self, plan: Plan) -> Event:
        """What is released in all."""
        return plan.event if self.also is None else Composed(self.also, plan.event)

    def epsilon_of(self, event: Event, plan: Plan) -> float:
        """The ε of an event under the plan's adjacency."""
        from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy only when it is asked

        return epsilon(event, self.delta, self.accountant, plan.adjacency)

    def is_met_by(self, plan: Plan) -> bool:
        """Whether the accountant proves (ε, δ) of all that is released."""
        return self.epsilon_of(self.event(plan), plan) <= self.epsilon


def _quietest(plan: Plan, target: _Target) -> Plan:
    """``plan`` with the smallest noise multiplier at which the accountant proves (ε, δ).

    Guarantee:
        The accountant proves (ε, δ) for ``Composed(also, found.event)``, ``found`` being the plan
        that is returned; without ``also``, for ``found.event``.
    """
    from tacit.accounting import (  # noqa: PLC0415 - SciPy only when it is asked
        analytic_gaussian_sigma,
        calibrate,
    )

    mu = 1.0 / analytic_gaussian_sigma(target.epsilon, target.delta)
    # The central limit's σ (Bu et al. 2020): a starting point, not an answer.
    turns = -(-plan.steps // plan.groups)
    guess = 1.0 / math.sqrt(math.log1p((mu / plan.group_rate) ** 2 / turns))

    def event(sigma: float) -> Event:
        return target.event(replace(plan, noise_multiplier=sigma))

    _refuse_hopeless(plan, target)
    sigma = calibrate(event, target.epsilon, target.delta, target.accountant, plan.adjacency, guess)
    found = replace(plan, noise_multiplier=sigma)
    while not target.is_met_by(found):  # calibrate compares logarithms: an ulp off
        found = replace(found, noise_multiplier=found.noise_multiplier * (1.0 + 1e-14))
    return found


def _refuse_hopeless(plan: Plan, target: _Target) -> None:
    """Refuses a budget that the gradients' noise does not decide, and says what does."""
    rate, turns = plan.group_rate, -(-plan.steps // plan.groups)
    drawn = -math.expm1(turns * math.log1p(-rate)) if rate < 1.0 else 1.0
    if isinstance(plan.sampling, Allocation):
        drawn = min(1.0, plan.epochs)
    if drawn <= target.delta:
        raise Uncalibratable(
            f"delta={target.delta:g} must be below the chance that a record is drawn at all, "
            f"{drawn:.3g}: any noise would do"
        )
    _refuse_expensive(plan, target)
    truncated = isinstance(plan.sampling, TruncatedPoisson)
    if not truncated and not isinstance(plan.clipping, AdaptiveQuantile):
        return
    loudest = replace(plan, noise_multiplier=_DEAFENING)
    if target.is_met_by(loudest):
        return
    budget = (
        f"epsilon={target.epsilon:g} at delta={target.delta:g} cannot be met by noise on the "
        "gradients"
    )
    if truncated and not target.is_met_by(replace(loudest, clipping=Flat())):  # without the count
        raise Uncalibratable(
            f"{budget}: lots are cut too often; "
            f"raise sampling.largest to {_roomy(plan, target)} or more"
        )
    raise Uncalibratable(
        f"{budget}: the count of the adaptive clip gives away as much by itself; "
        "raise clipping.count_noise"
    )


def _refuse_expensive(plan: Plan, target: _Target) -> None:
    """Refuses what leaves nothing of the budget for the plan."""
    if target.also is None:
        return
    alone = target.epsilon_of(check_event(target.also), plan)
    if alone >= target.epsilon:
        raise Uncalibratable(
            f"also must leave something of epsilon={target.epsilon:g} at delta={target.delta:g} "
            f"for the plan: by itself it has {alone:.6g}; add noise to it"
        )


def _roomy(plan: Plan, target: _Target) -> int:
    """The smallest ``largest`` whose cuts cost at most a tenth of δ over the whole plan."""
    from scipy.stats import binom  # noqa: PLC0415 - only when it is asked

    odds = 1.0 + math.exp(min(target.epsilon, 500.0))
    chance = 0.1 * target.delta / (plan.steps * odds)
    return int(binom.isf(chance, plan.examples + 1, plan.sample_rate)) + 1
