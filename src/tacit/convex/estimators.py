"""scikit-learn estimators: private logistic regression, linear regression and Huber SVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
from scipy.special import expit, softmax

from tacit._validation import check_delta, whole
from tacit.convex.losses import HuberHinge, Logistic, SimplexHinge, Softmax, Squared
from tacit.convex.methods import DataScaling, Learned, MethodSettings, learn, public_number, stated
from tacit.convex.problem import ConvexTask
from tacit.errors import InvalidArgument
from tacit.mechanisms._keys import canonical, placed
from tacit.mechanisms._records import (
    entries,
    is_frame,
    is_polars_frame,
    is_series,
    numbers,
    unmasked,
)

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise InvalidArgument(
        "tacit.convex's estimators need scikit-learn: pip install 'tacit[sklearn]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from tacit.accounting.events import Adjacency
    from tacit.convex.losses import Array, Loss
    from tacit.convex.methods import Method
    from tacit.convex.perturbation import Analysis
    from tacit.ledger import Budget
    from tacit.statement import Statement


class _Private(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What the three estimators share; abstract."""

    # Set by the constructors below, which scikit-learn reads the parameters' names from.
    epsilon: float
    delta: float
    data_norm: float | None
    method: Method
    analysis: Analysis | None
    adjacency: Adjacency
    regularization: float | None
    radius: float
    clip: float | Literal["half"] | None
    fit_intercept: bool
    intercept_scale: float
    steps: int | None
    sample_rate: float | None
    examples: int | None
    budget: Budget | None
    learned_: Learned
    assumptions_: tuple[str, ...]

    def _scaling(self) -> DataScaling:
        return DataScaling(
            self.data_norm,  # type: ignore[arg-type]  # refused there if it is missing
            self.intercept_scale if self.fit_intercept else 0.0,
        )

    def _learn(
        self, data: Array, targets: Array, loss: Loss, counted: NDArray[np.bool_]
    ) -> DataScaling:
        """Fits ``learned_``; an example that is not ``counted`` contributes nothing."""
        scaling = self._scaling()
        settings = MethodSettings(
            method=self.method,
            analysis=self.analysis,
            steps=self.steps,
            sample_rate=self.sample_rate,
        )
        rows, targets = self._filled(scaling.rows(data) * counted[:, None], targets)
        if self.delta != 0.0:
            check_delta(self.delta, rows.shape[0], "example")
        task = ConvexTask(
            examples=rows.shape[0],
            features=rows.shape[1],
            loss=loss,
            norm=scaling.norm,
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            radius=self.radius,
            regularization=self.regularization,
            clip=_clip(self.clip, loss, scaling.norm),
        )
        self.learned_ = learn(task, rows, targets, settings, self.budget)
        self.assumptions_ = self._assumptions()  # those of this fit, whatever is set afterwards
        return scaling

    def _rows(self, data: Any) -> Array:
        """The rows as float64, each entry read by itself; one that is no number is missing.

        There may be none of them where their number is protected.
        """
        if isinstance(data, list | tuple):
            raise InvalidArgument(
                "X must be a 2-D array or a DataFrame, for what is in a list decides its shape; "
                "give np.asarray(X, dtype=float)"
            )
        read = _numeric(data)
        # scikit-learn's own refusals of these two show the data.
        if np.ndim(read) != 2:
            raise InvalidArgument(
                "X must be a 2-D array or a DataFrame, one row per example, got "
                f"{np.ndim(read)} dimensions"
            )
        if np.iscomplexobj(read):
            raise InvalidArgument("X must be real numbers: Complex data not supported; give X.real")
        found = validate_data(
            self, read, dtype=np.float64, ensure_all_finite=False,
            ensure_min_samples=1 if self.examples is None else 0,
        )  # fmt: skip
        return np.asarray(found)

    def _filled(self, rows: Array, targets: Array) -> tuple[Array, Array]:
        """As many examples as were declared: those that are not there contribute nothing."""
        if self.examples is None:
            return rows, targets
        more = whole("examples", self.examples) - len(rows)
        if more < 0:
            raise InvalidArgument(
                f"examples must be at least the number of rows of X, got {self.examples!r}; choose "
                "a bound that no data set exceeds"
            )
        return np.pad(rows, ((0, more), (0, 0))), np.pad(targets, (0, more))

    def _known_rows(self, data: ArrayLike) -> Array:
        """Rows to predict for; as in ``fit``, one that is not finite counts as 0."""
        rows = validate_data(
            self, _numeric(data), reset=False, dtype=np.float64, ensure_all_finite=False
        )
        return np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)

    @property
    def method_(self) -> str:
        """The method that was used."""
        return self._fitted().method

    @property
    def event_(self) -> Any:
        """What was released, as ``tacit.accounting`` reads it under ``adjacency``."""
        return self._fitted().design.event

    def statement(self, delta: float | None = None) -> Statement:
        """The claim, complete enough for somebody else to check it; at another δ if given."""
        return stated(self._fitted(), delta, self.assumptions_)

    def _fitted(self) -> Learned:
        check_is_fitted(self, "learned_")
        return self.learned_

    def _assumptions(self) -> tuple[str, ...]:
        return (
            public_number(self._fitted().design.task, declared=self.examples is not None),
            "data_norm was chosen without looking at the data",
        )

    def __sklearn_clone__(self) -> Any:
        """A copy without what was learned; it charges the same budget, for that is not copied."""
        parameters = self.get_params(deep=False)
        kept = {
            name: value if name == "budget" else clone(value, safe=False)
            for name, value in parameters.items()
        }
        return type(self)(**kept)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = True  # a row that is not finite counts as 0
        return tags


class _Classifier(ClassifierMixin, _Private):  # type: ignore[misc]
    """A linear classifier; abstract."""

    classes: Sequence[Any] | None
    classes_: NDArray[Any]
    coef_: Array
    intercept_: Array

    def _fit_classes(self, data: ArrayLike, labels: ArrayLike, binary: Loss, several: Any) -> None:
        rows = self._rows(data)
        self.classes_, keys = _declared(self.classes)
        places = placed(_column("y", labels, rows), keys)
        count = len(keys)
        loss = binary if count == 2 else several(count)
        known = np.maximum(places, 0)
        targets = 2.0 * known - 1.0 if count == 2 else known.astype(np.float64)
        scaling = self._learn(rows, targets, loss, places >= 0)
        self.coef_, self.intercept_ = scaling.coefficients(self.learned_.theta, loss.outputs)

    def decision_function(self, X: ArrayLike) -> Array:  # noqa: N803 - scikit-learn's names
        """The scores: shape (n,) for two classes, else (n, classes)."""
        check_is_fitted(self, "coef_")
        rows = self._known_rows(X)
        scores = rows @ self.coef_.T + self.intercept_
        return np.asarray(scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """The class of each row."""
        scores = self.decision_function(X)
        best = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else np.argmax(scores, axis=1)
        return np.asarray(self.classes_[best])

    def _assumptions(self) -> tuple[str, ...]:
        return (*super()._assumptions(), "the classes were named without looking at the data")


@final
class LogisticRegression(_Classifier):
    """Private logistic regression, of two classes or of several together.

    Several classes share one softmax: ε is not divided among them.

    Args:
        epsilon: ε.
        delta: δ; 0 asks for pure differential privacy.
        data_norm: The largest norm of a row, known without looking at the data. Longer rows are
            shortened to it; it has no default, and is never taken from the data.
        method: ``"output"`` (mean loss), ``"objective"`` (sum of the losses, and an exact minimum),
            ``"amp"`` (the same without trust in the solver), ``"noisy-gd"``, ``"noisy-sgd"``, or
            ``"auto"``: the one of least excess risk by its theory, for this n, d, ε and adjacency.
        analysis: For ``"objective"`` and ``"amp"``: ``"profile"`` (the sharpest), ``"redberg"``,
            ``"kifer"``, or ``"cms"`` for δ = 0.
        adjacency: ``"add-remove"`` or ``"replace-one"``; every method is calibrated for it.
        regularization: λ of the mean loss in scaled rows; left out, what the theory says is best.
        radius: The norm that the coefficients are expected to have for rows of norm 1. It steers
            regularisation and steps, and no guarantee rests on it.
        clip: The largest norm of an example's gradient, in scaled rows. For two classes every
            method then minimises the ``Huberised`` loss; for several only the descents take it.
            ``"half"`` of what the loss allows halves the noise, for two classes and for several (by
            ``Softmax.mass``), and changes the loss only where the right class is less likely than
            all others together. It is usually the more accurate choice; coefficients are then not
            those of maximum likelihood, and with several classes probabilities are less sure.
        fit_intercept: Whether to learn an intercept, as the coefficient of a constant column.
        intercept_scale: That constant, beside rows of norm 1.
        steps: For the noisy descents: how many.
        sample_rate: For ``"noisy-sgd"``: each example's chance to be in a step.
        classes: All classes there may be, known without looking at the data: those found in them
            would tell of an example that is the only one of its class.
        examples: A public bound on how many examples there can be, which protects how many there
            are; X with more rows is refused. Left out, their number is public.
        budget: A ``tacit.ledger.Budget``, charged by ``fit`` before noise is drawn.

    Guarantee:
        What ``fit`` keeps is (ε, δ)-differentially private for one example under ``adjacency``;
        ``statement()`` says so with all assumptions. Noise comes from a cryptographic stream and on
        a grid (δ = 0: in floating point); nothing about the data is inferred or kept besides.
        Without ``examples`` the number of examples n is public: it sets regularisation, noise and
        steps. ``"add-remove"`` is then about an example that contributes its loss or nothing while
        n stays (``"zero-out"``), as in training; not about hiding whether there are n or n + 1.
        With ``examples`` that bound takes the place of n, and neighbours may differ in number.
        No example is refused: each is read by itself, a row with an entry that is missing, no
        number or infinite counts as 0, and one whose label is none of the classes contributes
        nothing.

    >>> X = np.array([[-1.0], [-0.8], [0.9], [1.0]] * 50)
    >>> model = LogisticRegression(epsilon=8.0, data_norm=1.0, classes=[False, True])
    >>> model = model.fit(X, X[:, 0] > 0)
    >>> model.method_, model.predict([[-1.0], [1.0]]).tolist()
    ('amp', [False, True])
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        data_norm: float | None = None,
        method: Method = "auto",
        analysis: Analysis | None = None,
        adjacency: Adjacency = "add-remove",
        regularization: float | None = None,
        radius: float = 20.0,
        clip: float | Literal["half"] | None = None,
        fit_intercept: bool = True,
        intercept_scale: float = 0.25,
        steps: int | None = None,
        sample_rate: float | None = None,
        classes: Sequence[Any] | None = None,
        examples: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.method = method
        self.analysis = analysis
        self.adjacency = adjacency
        self.regularization = regularization
        self.radius = radius
        self.clip = clip
        self.fit_intercept = fit_intercept
        self.intercept_scale = intercept_scale
        self.steps = steps
        self.sample_rate = sample_rate
        self.classes = classes
        self.examples = examples
        self.budget = budget

    def fit(self, X: ArrayLike, y: ArrayLike) -> LogisticRegression:  # noqa: N803
        """Learns from rows X and their classes y."""
        mass = 0.5 if self.clip == "half" else 1.0
        self._fit_classes(X, y, Logistic(), lambda count: Softmax(count, mass))
        return self

    def predict_proba(self, X: ArrayLike) -> Array:  # noqa: N803
        """The probability of each class."""
        scores = self.decision_function(X)
        if scores.ndim > 1:
            return np.asarray(softmax(scores, axis=1))
        against, towards = expit(scores), expit(-scores)
        clip = self._fitted().design.task.clip
        if clip is not None:
            # The Huberised loss is least where p·f'(for) = (1 - p)·f'(against), slopes cut alike.
            norms = np.linalg.norm(self._scaling().rows(np.asarray(X, dtype=np.float64)), axis=1)
            limits = clip / np.maximum(norms, np.finfo(float).tiny)
            against, towards = np.minimum(against, limits), np.minimum(towards, limits)
        chances = against / (against + towards)
        return np.column_stack([1.0 - chances, chances])


@final
class HuberSvm(_Classifier):
    """A private support vector machine with the hinge's kink rounded, for two classes or several.

    The loss is that of Chaudhuri, Monteleoni & Sarwate (2011, eq. 7); for several classes it is its
    form of Crammer & Singer's joint hinge. ``width`` is h, half the width of the rounding; the
    other parameters and the guarantee are those of ``LogisticRegression``.

    >>> X = np.array([[-1.0], [-0.8], [0.9], [1.0]] * 50)
    >>> model = HuberSvm(epsilon=8.0, data_norm=1.0, classes=[False, True])
    >>> model.fit(X, X[:, 0] > 0).predict([[-1.0], [1.0]]).tolist()
    [False, True]
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        data_norm: float | None = None,
        width: float = 0.5,
        method: Method = "auto",
        analysis: Analysis | None = None,
        adjacency: Adjacency = "add-remove",
        regularization: float | None = None,
        radius: float = 20.0,
        clip: float | Literal["half"] | None = None,
        fit_intercept: bool = True,
        intercept_scale: float = 0.25,
        steps: int | None = None,
        sample_rate: float | None = None,
        classes: Sequence[Any] | None = None,
        examples: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.width = width
        self.method = method
        self.analysis = analysis
        self.adjacency = adjacency
        self.regularization = regularization
        self.radius = radius
        self.clip = clip
        self.fit_intercept = fit_intercept
        self.intercept_scale = intercept_scale
        self.steps = steps
        self.sample_rate = sample_rate
        self.classes = classes
        self.examples = examples
        self.budget = budget

    def fit(self, X: ArrayLike, y: ArrayLike) -> HuberSvm:  # noqa: N803
        """Learns from rows X and their classes y."""
        self._fit_classes(
            X, y, HuberHinge(self.width), lambda count: SimplexHinge(count, self.width)
        )
        return self


@final
class LinearRegression(RegressorMixin, _Private):  # type: ignore[misc]
    """Private linear regression of one target.

    Targets are shortened to ``target_bounds`` and scaled to [-1, 1]; the squared loss is clipped,
    which makes it Huber's: quadratic for small residuals and linear beyond (see ``Huberised``).

    Args:
        epsilon: ε.
        delta: δ; 0 asks for pure differential privacy.
        data_norm: The largest norm of a row, known without looking at the data.
        target_bounds: The smallest and the largest target, known without looking at the data.
        clip: The largest norm of an example's gradient, in scaled rows and targets: residuals up to
            about ``clip`` times half the range of the targets count in full.
        radius: The norm that the coefficients are expected to have, scaled; no guarantee rests on
            it.

    The other parameters and the guarantee are those of ``LogisticRegression``; an example whose
    target is missing or no number contributes nothing.

    >>> X = np.linspace(-1, 1, 400)[:, None]
    >>> model = LinearRegression(epsilon=8.0, data_norm=1.0, target_bounds=(-3, 5))
    >>> model = model.fit(X, 1 + X[:, 0])
    >>> bool(abs(model.predict([[0.5]])[0] - 1.5) < 1.0)
    True
    """

    coef_: Array
    intercept_: float

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        data_norm: float | None = None,
        target_bounds: tuple[float, float] | None = None,
        method: Method = "auto",
        analysis: Analysis | None = None,
        adjacency: Adjacency = "add-remove",
        regularization: float | None = None,
        radius: float = 3.0,
        clip: float = 1.0,
        fit_intercept: bool = True,
        intercept_scale: float = 0.25,
        steps: int | None = None,
        sample_rate: float | None = None,
        examples: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.target_bounds = target_bounds
        self.method = method
        self.analysis = analysis
        self.adjacency = adjacency
        self.regularization = regularization
        self.radius = radius
        self.clip = clip
        self.fit_intercept = fit_intercept
        self.intercept_scale = intercept_scale
        self.steps = steps
        self.sample_rate = sample_rate
        self.examples = examples
        self.budget = budget

    def fit(self, X: ArrayLike, y: ArrayLike) -> LinearRegression:  # noqa: N803
        """Learns from rows X and their targets y."""
        low, high = _bounds(self.target_bounds)
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        rows = self._rows(X)
        given = numbers("y", _column("y", y, rows))
        known = ~np.isnan(given)
        targets = (np.clip(np.where(known, given, middle), low, high) - middle) / half
        scaling = self._learn(rows, targets, Squared(), known)
        coefficients, intercepts = scaling.coefficients(self.learned_.theta, 1)
        self.coef_ = coefficients[0] * half
        self.intercept_ = float(intercepts[0] * half + middle)
        return self

    def predict(self, X: ArrayLike) -> Array:  # noqa: N803
        """The target of each row."""
        check_is_fitted(self, "coef_")
        rows = self._known_rows(X)
        return np.asarray(rows @ self.coef_ + self.intercept_)

    def _assumptions(self) -> tuple[str, ...]:
        return (*super()._assumptions(), "target_bounds were chosen without looking at the data")


def _numeric(data: Any) -> Any:
    """The same with float64 in place of objects and texts, whose refusal would show one."""
    if is_frame(data):
        return type(data)(numbers("X", data), columns=data.columns)
    if is_polars_frame(data):
        return type(data)(dict(zip(data.columns, numbers("X", data).T, strict=True)))
    held = unmasked(data)
    if isinstance(held, np.ndarray) and held.dtype.kind in "OUST":
        return numbers("X", held)
    return held


def _declared(classes: Sequence[Any] | None) -> tuple[NDArray[Any], list[Any]]:
    """The classes in order, and their canonical keys."""
    if classes is None:
        raise InvalidArgument(
            "classes must be given: all labels there may be, known without looking at the data "
            "(classes=[0, 1], say); those found in it would tell of whoever is alone in a class"
        )
    names = np.unique(np.asarray(classes))
    keys = [canonical(name) for name in names.tolist()]
    if len(keys) < 2 or None in keys:
        raise InvalidArgument(
            f"classes must be two or more numbers or texts, got {classes!r}: with one class there "
            "is nothing to learn"
        )
    return names, keys


def _column(name: str, values: Any, rows: Array) -> Any:
    """One label or target per row, as it was given; how many there are is public."""
    if values is None:
        raise InvalidArgument(
            f"{name} must be given: fit requires y to be passed, but the target y is None"
        )
    held = list(values.array) if is_series(values) else entries(name, values)
    if isinstance(held, np.ndarray):
        if held.ndim != 1 and held.size != len(held):
            raise InvalidArgument(f"{name} must be one per row, got {held.ndim} dimensions")
        held = held.ravel()
    if len(held) != len(rows):
        raise InvalidArgument(f"{name} must be one per row of X, and there are more or fewer")
    return held


def _clip(clip: float | str | None, loss: Loss, norm: float) -> float | None:
    if not isinstance(clip, str):
        return clip
    if clip != "half":
        raise InvalidArgument(f"clip must be a positive number, 'half' or None, got {clip!r}")
    if isinstance(loss, Softmax):
        return None  # its mass is cut instead
    if loss.outputs > 1:
        raise InvalidArgument(
            f"clip 'half' is for two classes with {type(loss).__name__}; leave it out"
        )
    return 0.5 * loss.slope * norm


def _bounds(bounds: tuple[float, float] | None) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in bounds)  # type: ignore[union-attr]
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not -np.inf < low < high < np.inf:
        raise InvalidArgument(
            "target_bounds must be two finite numbers, the smaller first, known without looking "
            f"at the data; got {bounds!r}"
        )
    return low, high
