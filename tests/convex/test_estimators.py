"""The estimators: scikit-learn's own checks, privacy's refusals, and what they learn."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from tacit.accounting import ApproxDp, PureDp, epsilon
from tacit.convex import HuberSvm, LinearRegression, LogisticRegression, methods
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.ledger import Ledger
from tacit.randomness import UnsafeSeededStream, fresh_stream


@pytest.fixture(autouse=True)
def _repeatable(monkeypatch):
    """Noise that a test can repeat, so that none fails by chance; each fit has its own."""
    seeds = itertools.count()
    monkeypatch.setattr(methods, "fresh_stream", lambda name: UnsafeSeededStream(next(seeds), name))


TWO = (0, 1)

# A private fit draws fresh noise: two of them differ, which these checks do not allow for.
TWICE = "fits twice and compares; each fit draws its own noise"
READ = "one bad example is to be refused; a refusal would tell that it is there"
EXCEPTIONS = {
    "check_fit_idempotent": TWICE,
    "check_classifier_data_not_an_array": TWICE,
    "check_regressor_data_not_an_array": TWICE,
    "check_supervised_y_2d": TWICE,
    "check_regressors_int": TWICE,
    "check_dtype_object": READ,
    "check_supervised_y_no_nan": READ,
    "check_classifiers_regression_target": READ,
}


class DeclaredLogistic(LogisticRegression):
    """With the classes and the shape of what comes: scikit-learn's checks have data of nobody."""

    def fit(self, X, y):  # noqa: N803
        self.classes = TWO if y is None else np.unique(np.asarray(y))
        try:
            return super().fit(np.asarray(X) if isinstance(X, list) else X, y)
        finally:
            self.classes = None


class DeclaredSvm(HuberSvm):
    """The same."""

    def fit(self, X, y):  # noqa: N803
        self.classes = TWO if y is None else np.unique(np.asarray(y))
        try:
            return super().fit(np.asarray(X) if isinstance(X, list) else X, y)
        finally:
            self.classes = None


class DeclaredLinear(LinearRegression):
    """The same, without classes."""

    def fit(self, X, y):  # noqa: N803
        return super().fit(np.asarray(X) if isinstance(X, list) else X, y)


@pytest.mark.parametrize(
    "estimator",
    [
        DeclaredLogistic(1e3, data_norm=10.0, method="output"),
        DeclaredLinear(1e3, data_norm=6.0, target_bounds=(-3.0, 3.0), method="output"),
        *(
            pytest.param(one, marks=pytest.mark.slow)  # each design weighs all methods
            for one in (
                DeclaredLogistic(1e3, data_norm=10.0),
                DeclaredSvm(1e3, data_norm=10.0),
                DeclaredLinear(1e3, data_norm=6.0, target_bounds=(-3.0, 3.0)),
            )
        ),
    ],
    ids=lambda one: f"{type(one).__name__}-{one.method}",
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks_pass_but_for_the_documented_exceptions(estimator):
    found = check_estimator(
        estimator, expected_failed_checks=EXCEPTIONS, on_skip=None, on_fail=None
    )
    failed = {one["check_name"]: one["exception"] for one in found if one["status"] == "failed"}
    assert not failed
    assert sum(one["status"] == "passed" for one in found) >= 40


def blobs(classes=2, count=4000, seed=0):
    rows, labels = make_blobs(count, 4, centers=classes, cluster_std=1.5, random_state=seed)
    return rows, labels, float(np.ceil(np.linalg.norm(rows, axis=1).max()))


METHODS = ["auto", "output", "objective", "amp", "noisy-gd", "noisy-sgd"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("kind", "classes"),
    [
        (LogisticRegression, 4),
        *(
            pytest.param(kind, classes, marks=pytest.mark.slow)
            for kind, classes in [(LogisticRegression, 2), (HuberSvm, 2), (HuberSvm, 4)]
        ),
    ],
)
def test_every_method_learns_to_classify(method, kind, classes):
    rows, labels, norm = blobs(classes)
    model = kind(4.0, data_norm=norm, method=method, classes=range(classes)).fit(rows, labels)
    assert model.score(rows, labels) > (0.85 if classes == 2 else 0.7)
    assert model.coef_.shape == (1 if classes == 2 else 4, 4)
    assert epsilon(model.event_, 1e-5, adjacency="add-remove") <= 4.0 * (1 + 1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_a_line(method):
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (5000, 2))
    targets = 10 + rows @ np.array([3.0, -2.0]) + 0.1 * rng.standard_normal(5000)
    model = LinearRegression(4.0, data_norm=1.5, target_bounds=(4, 16), method=method)
    assert model.fit(rows, targets).score(rows, targets) > 0.6
    assert model.coef_.shape == (2,)
    assert isinstance(model.intercept_, float)


@pytest.mark.parametrize("kind", [LogisticRegression, HuberSvm])
@pytest.mark.parametrize("classes", [2, 3])
def test_pure_privacy_uses_pure_methods(kind, classes):
    rows, labels, norm = blobs(classes)
    model = kind(4.0, 0.0, data_norm=norm, classes=range(classes)).fit(rows, labels)
    assert model.event_ == PureDp(4.0, "add-remove")
    assert model.method_ in {"objective", "output"}
    assert model.score(rows, labels) > 0.7


@pytest.mark.parametrize("clip", [None, "half"])
def test_with_much_data_and_budget_it_is_plain_logistic_regression(clip):
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (60_000, 2)) / np.sqrt(2)
    chances = expit(4 * rows[:, 0] - 2 * rows[:, 1] + 0.5)
    labels = rng.random(60_000) < chances
    model = LogisticRegression(50.0, data_norm=1.0, clip=clip, classes=TWO).fit(rows, labels)
    if clip is None:
        plain = Plain(C=1e6).fit(rows, labels)
        assert model.coef_ == pytest.approx(plain.coef_, abs=0.15)
        assert model.intercept_ == pytest.approx(plain.intercept_, abs=0.1)
    # Clipped, the coefficients are others, but probabilities are read off by the clipped slopes.
    assert np.mean(np.abs(model.predict_proba(rows)[:, 1] - chances)) < 0.04
    assert np.allclose(model.predict_proba(rows).sum(axis=1), 1)
    assert np.array_equal(model.predict_proba(rows)[:, 1] > 0.5, model.predict(rows))


def test_half_clip_halves_the_gradients():
    rows, labels, norm = blobs()
    whole, half = (
        LogisticRegression(1.0, data_norm=norm, clip=clip, classes=TWO)
        .fit(rows, labels)
        .learned_.design.task
        for clip in (None, "half")
    )
    assert half.lipschitz == 0.5 * whole.lipschitz


def test_half_clip_of_several_classes_cuts_the_mass():
    rows, labels, norm = blobs(4)
    model = LogisticRegression(1.0, data_norm=norm, clip="half", classes=range(4)).fit(rows, labels)
    assert model.learned_.design.task.loss.mass == 0.5
    assert model.score(rows, labels) > 0.8
    with pytest.raises(InvalidArgument, match="two classes"):
        HuberSvm(data_norm=norm, clip="half", classes=range(4)).fit(rows, labels)
    with pytest.raises(InvalidArgument, match="clip must be"):
        HuberSvm(data_norm=norm, clip="third", classes=range(4)).fit(rows, labels)


def test_classes_are_declared_and_never_taken_from_the_labels():
    rows, labels, norm = blobs()
    names = np.array(["no", "yes"])[labels]
    model = LogisticRegression(4.0, data_norm=norm, classes=["yes", "no", "maybe"]).fit(rows, names)
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    assert model.coef_.shape == (3, 4)
    assert "the classes were named without looking at the data" in model.statement().assumptions
    for kind in (LogisticRegression, HuberSvm):
        with pytest.raises(InvalidArgument, match="classes must be given"):
            kind(data_norm=norm).fit(rows, names)
        for classes in (["no"], ["no", "no"], [], [0, np.nan]):
            with pytest.raises(InvalidArgument, match="classes must be two or more"):
                kind(data_norm=norm, classes=classes).fit(rows, names)


ODD = {
    "huge": 10**400,
    "text": "alone",
    "number": 7,
    "half": 0.5,
    "nan": np.nan,
    "infinite": np.inf,
    "none": None,
    "list": [0],
    "object": object(),
}


def form(kind, data, targets, norm, method):
    known = {"target_bounds": (0, 1)} if kind is LinearRegression else {"classes": TWO}
    model = kind(1.0, data_norm=norm, method=method, **known).fit(data, targets)
    assert np.isfinite(model.coef_).all()
    classes = getattr(model, "classes_", np.zeros(0))
    return model.coef_.shape, model.coef_.dtype, classes.dtype, classes.tolist(), model.event_


@pytest.fixture(scope="module", params=[LogisticRegression, HuberSvm, LinearRegression])
def usual(request):
    """A kind of estimator, and the form that it has after usual examples, by method."""
    usual = blobs(count=300)
    return request.param, {one: form(request.param, *usual, one) for one in ("auto", "output")}


@pytest.mark.parametrize(
    ("odd", "method"),
    [
        ("text", "auto"),
        *((odd, "output") for odd in ODD if odd != "text"),  # which is quicker
        *(pytest.param(odd, "auto", marks=pytest.mark.slow) for odd in ODD if odd != "text"),
    ],
)
def test_no_example_shows_by_its_kind(usual, odd, method):
    """Not by an exception, the classes, a shape or a type; and it moves what one may."""
    rows, labels, norm = blobs(count=300)
    kind, forms = usual
    due = forms[method]
    strange = labels.astype(object)
    strange[7] = ODD[odd]
    assert form(kind, rows, strange, norm, method) == due
    assert form(kind, rows, list(strange), norm, method) == due
    wild = rows.astype(object)
    wild[7, 1] = ODD[odd]
    assert form(kind, wild, labels, norm, method) == due


class Held:
    """An array of another library."""

    def __init__(self, array):
        self.array, self.shape, self.ndim = array, array.shape, array.ndim

    def __len__(self):
        return len(self.array)

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)


@pytest.mark.parametrize("entry", ["secret", None, 10**400], ids=lambda one: type(one).__name__)
def test_no_entry_of_an_array_of_any_kind_is_refused_or_shown(entry):
    """Read by scikit-learn it would be: could not convert string to float: 'secret'."""
    rows, labels, norm = blobs(count=300)
    wild = rows.astype(object)
    wild[7, 1] = entry
    model = LogisticRegression(data_norm=norm, classes=TWO, method="output")
    assert model.fit(Held(wild), labels).predict(Held(wild)).shape == labels.shape


def test_a_polars_frame_is_read_like_its_records():
    polars = pytest.importorskip("polars")
    rows, labels, norm = blobs(count=300)
    frame = polars.DataFrame(
        {"a": [*map(str, rows[:-1, 0]), "secret"], "b": rows[:, 1], "c": rows[:, 2]}
    )
    model = LogisticRegression(data_norm=norm, classes=TWO, method="output").fit(frame, labels)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]


def test_an_entry_behind_a_mask_is_missing():
    rows, targets = np.ones((2_000, 1)), np.repeat([-1.0, 1.0], 1_000)
    model = LinearRegression(
        20.0, data_norm=1.0, target_bounds=(-1, 1), fit_intercept=False, clip=1.0
    )
    hidden = np.ma.masked_array(rows, mask=targets[:, None] < 0)
    assert model.fit(hidden, targets).coef_ == pytest.approx([1.0], abs=0.1)


def test_an_example_of_no_class_contributes_nothing(monkeypatch):
    """As if it were not there, but for n: what add-remove means where n is public."""
    rows, labels, norm = blobs(count=300)
    strange = labels.astype(object)
    strange[7] = "alone"
    seen = []

    def watched(_, problem, __):
        seen.append(problem)
        return np.zeros(problem.task.parameters)

    monkeypatch.setattr(methods, "released", watched)
    model = LogisticRegression(1.0, data_norm=norm, classes=TWO)
    model.fit(rows, strange)
    model.fit(np.delete(rows, 7, axis=0), np.delete(labels, 7))
    theta = np.arange(seen[0].task.parameters, dtype=float)
    assert seen[0].gradient(theta) == pytest.approx(seen[1].gradient(theta), rel=1e-12)
    assert (seen[0].task.examples, seen[1].task.examples) == (300, 299)


KINDS = {
    LogisticRegression: {"classes": TWO},
    HuberSvm: {"classes": TWO},
    LinearRegression: {"target_bounds": (0, 1)},
}


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *((LogisticRegression, method) for method in METHODS),
        *(
            pytest.param(kind, method, marks=pytest.mark.slow if method != METHODS[0] else ())
            for kind in KINDS
            if kind is not LogisticRegression
            for method in METHODS
        ),
    ],
)
def test_nothing_follows_from_how_many_examples_there_are_if_a_bound_is_declared(
    kind, method, monkeypatch
):
    """Neighbours have the same ridge, noise, steps and event; without a bound they do not."""
    monkeypatch.setattr(methods, "released", lambda design, *_: np.zeros(design.task.parameters))
    rows, labels, norm = blobs(count=300)
    known = KINDS[kind] | {"data_norm": norm, "method": method}
    designs = [
        [
            kind(1.0, **known, examples=bound).fit(rows[:count], labels[:count]).learned_.design
            for count in (299, 300)
        ]
        for bound in (400, None)
    ]
    assert designs[0][0] == designs[0][1]
    assert designs[1][0] != designs[1][1]


def test_a_statement_says_what_is_public_of_the_number():
    rows, labels, norm = blobs(count=300)

    def said(**asked):
        model = LogisticRegression(1.0, data_norm=norm, classes=TWO, **asked)
        return model.fit(rows, labels).statement().assumptions[0]

    assert said(examples=400).startswith("at most 400 examples was declared")
    assert "protected" in said(examples=400)
    assert "a neighbour's missing example contributes nothing, and the number stays" in said()
    assert said(adjacency="replace-one") == "the number of examples, 300, is public"
    with pytest.raises(InvalidArgument, match=r"examples must be at least .* got 299; choose"):
        said(examples=299)


def test_a_statement_is_about_the_fit_and_not_about_what_was_set_since():
    rows, labels, norm = blobs(count=300)
    model = LogisticRegression(1.0, data_norm=norm, classes=TWO).fit(rows, labels)
    said = model.statement()
    model.set_params(examples=400)
    assert model.statement() == said
    assert "the number of examples, 300, is public" in said.assumptions[0]


def test_examples_that_are_not_there_move_nothing(monkeypatch):
    """The mechanism for a bound, on fewer examples, is that of the sum without them."""
    rows, labels, norm = blobs(count=300)
    seen = []

    def watched(_, problem, __):
        seen.append(problem)
        return np.zeros(problem.task.parameters)

    monkeypatch.setattr(methods, "released", watched)
    LogisticRegression(1.0, data_norm=norm, classes=TWO).fit(rows, labels)
    LogisticRegression(1.0, data_norm=norm, classes=TWO, examples=900).fit(rows, labels)
    theta = np.arange(seen[0].task.parameters, dtype=float)
    assert seen[1].features.shape == (900, 5)
    assert seen[0].gradient(theta) == pytest.approx(seen[1].gradient(theta), rel=1e-12)


def test_refusals_print_nothing_of_the_data():
    rows, labels, norm = blobs(count=50)
    model = LogisticRegression(1.0, data_norm=norm, classes=TWO)
    with pytest.raises(InvalidArgument, match="X must be a 2-D array or a DataFrame"):
        model.fit(rows.tolist(), labels)
    with pytest.raises(InvalidArgument, match="y must be one per row, got 2 dimensions"):
        model.fit(rows, np.zeros((50, 2)))
    with pytest.raises(InvalidArgument, match="y must be one per row of X, and there are more"):
        model.fit(rows, labels[:-1])
    with pytest.raises(InvalidArgument, match=r"X must be a 2-D array .*, got 1 dimensions$"):
        model.fit(rows[:, 0], labels)
    with pytest.raises(InvalidArgument, match=r"X must be real numbers: .*; give X\.real$"):
        model.fit(rows + 0j, labels)


@pytest.mark.parametrize("kind", KINDS)
def test_that_there_is_nobody_does_not_show_if_a_bound_is_declared(kind):
    known = {"data_norm": 1.0, "method": "output"} | KINDS[kind]
    model = kind(1.0, **known, examples=400).fit(np.zeros((0, 2)), np.zeros(0))
    assert model.coef_.any()
    with pytest.raises(ValueError, match="minimum of 1 is required"):  # their number is public
        kind(1.0, **known).fit(np.zeros((0, 2)), np.zeros(0))


def test_a_delta_under_which_one_may_be_published_is_refused(tmp_path):
    rows, labels, norm = blobs(count=50)
    budget = Ledger(f"sqlite:///{tmp_path}/budget.db").open("rows", 8.0, 0.5)
    for delta, declared in ((0.5, None), (0.02, None), (0.001, 1000)):
        model = LogisticRegression(
            1.0, delta, data_norm=norm, classes=TWO, examples=declared, budget=budget
        )
        count = declared or 50
        with pytest.raises(InvalidArgument, match=f"delta must be below 1/{count} for {count} "):
            model.fit(rows, labels)
    assert budget.spent().epsilon == 0.0


def test_nothing_is_taken_from_the_data_that_should_be_given():
    rows, labels, _ = blobs()
    for kind in (LogisticRegression, HuberSvm):
        with pytest.raises(InvalidArgument, match="data_norm must be given"):
            kind(classes=TWO).fit(rows, labels)
    for bounds in (None, (1, 1), (2, 1), (0, np.inf), 3, (1, 2, 3)):
        with pytest.raises(InvalidArgument, match="target_bounds"):
            LinearRegression(data_norm=1.0, target_bounds=bounds).fit(rows, labels)


def test_one_wild_row_moves_no_more_than_any_other():
    rows, labels, norm = blobs()
    rows[0] = 1e200
    model = LogisticRegression(4.0, data_norm=norm, classes=TWO).fit(rows, labels)
    assert np.isfinite(model.coef_).all()
    targets = labels.astype(float)
    targets[0] = 1e300
    line = LinearRegression(4.0, data_norm=norm, target_bounds=(0, 1)).fit(rows, targets)
    assert abs(line.predict(rows[1:]).mean() - 0.5) < 0.5


def test_rows_and_norm_in_another_unit_change_nothing():
    rows, labels, norm = blobs()
    tasks = [
        LogisticRegression(data_norm=scale * norm, classes=TWO)
        .fit(scale * rows, labels)
        .learned_.design
        for scale in (1.0, 1000.0)
    ]
    assert tasks[0].task == tasks[1].task
    assert tasks[0].ridge == tasks[1].ridge


def test_intercept_is_optional():
    rows, labels, norm = blobs()
    without = LogisticRegression(4.0, data_norm=norm, fit_intercept=False, classes=TWO).fit(
        rows, labels
    )
    assert without.intercept_.tolist() == [0.0]
    assert without.learned_.design.task.norm == 1.0


def test_two_fits_differ_and_no_seed_helps(monkeypatch):
    monkeypatch.setattr(methods, "fresh_stream", fresh_stream)  # the real one
    rows, labels, norm = blobs()
    fits = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 - that is the point
        fits.append(LogisticRegression(data_norm=norm, classes=TWO).fit(rows, labels).coef_)
    assert not np.array_equal(*fits)


def test_budget_is_charged_before_noise_and_shared_by_clones(tmp_path):
    rows, labels, norm = blobs(count=400)
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("blobs", epsilon=2.5, delta=1e-4)
        model = LogisticRegression(1.0, data_norm=norm, budget=budget, classes=TWO)
        model.fit(rows, labels)
        assert budget.spent().epsilon == pytest.approx(1.0)
        assert clone(model).budget is budget
        clone(model).fit(rows, labels)
        assert budget.spent().epsilon == pytest.approx(2.0)
        third = clone(model)
        with pytest.raises(BudgetExceeded):
            third.fit(rows, labels)
        assert not hasattr(third, "coef_")
        assert "blobs" in model.statement().ledger


def test_budget_of_another_adjacency_is_refused(tmp_path):
    rows, labels, norm = blobs(count=400)
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("blobs", epsilon=9, delta=1e-4, adjacency="replace-one")
        with pytest.raises(InvalidArgument, match="adjacency must be that of the budget"):
            LogisticRegression(data_norm=norm, budget=budget, classes=TWO).fit(rows, labels)
        LogisticRegression(data_norm=norm, budget=budget, adjacency="replace-one", classes=TWO).fit(
            rows, labels
        )
        users = ledger.open("users", epsilon=9, delta=1e-4, unit="user")
        with pytest.raises(InvalidArgument, match="unit must be that of the budget"):
            LogisticRegression(data_norm=norm, budget=users, classes=TWO).fit(rows, labels)


def test_statement_says_what_holds_and_what_is_trusted():
    rows, labels, norm = blobs()
    claim = LogisticRegression(1.0, data_norm=norm, classes=TWO).fit(rows, labels).statement()
    assert claim.epsilon <= 1.0 * (1 + 1e-9)
    assert claim.delta == 1e-5
    assert "4000" in claim.assumptions[0]
    assert not any("exact" in one for one in claim.assumptions)
    trusting = LogisticRegression(1.0, data_norm=norm, method="objective", classes=TWO).fit(
        rows, labels
    )
    assert any("exact" in one for one in trusting.statement().assumptions)
    assert trusting.event_ == ApproxDp(1.0, 1e-5, "add-remove")
    sampled = LogisticRegression(
        data_norm=norm, method="noisy-sgd", sample_rate=0.1, steps=10, classes=TWO
    )
    assert "Poisson" in sampled.fit(rows, labels).statement().sampling
    pure = LogisticRegression(1.0, 0.0, data_norm=norm, classes=TWO).fit(rows, labels)
    with pytest.raises(InvalidArgument, match="delta"):
        pure.statement()
    assert pure.statement(delta=1e-9).epsilon <= 1.0 * (1 + 1e-9)
    with pytest.raises(Exception, match="not fitted"):
        LogisticRegression(data_norm=norm).statement()


def test_it_lives_in_pipelines_and_cross_validation():
    rows, labels, norm = blobs()
    pipe = make_pipeline(
        FunctionTransformer(np.tanh), LogisticRegression(4.0, data_norm=2.0, classes=TWO)
    )
    assert np.mean(cross_val_score(pipe, rows, labels, cv=3)) > 0.7
    model = LogisticRegression(4.0, data_norm=norm, classes=TWO).fit(rows, labels)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(rows), model.predict(rows))
    assert np.array_equal(copy.deepcopy(model).coef_, model.coef_)


def test_pandas_in_keeps_the_names():
    pandas = pytest.importorskip("pandas")
    rows, labels, norm = blobs()
    frame = pandas.DataFrame(rows, columns=list("abcd"))
    model = LogisticRegression(4.0, data_norm=norm, classes=TWO).fit(frame, pandas.Series(labels))
    assert model.feature_names_in_.tolist() == list("abcd")
    assert model.score(frame, labels) > 0.8
