"""A private search of settings: its price, its noise, and which candidates share a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

import tacit
from tacit.accounting import Composed, Gaussian, PrivateSelection, epsilon
from tacit.errors import Diverged, InvalidArgument, ProtocolError
from tacit.mechanisms import gaussian
from tacit.runs import Interruption, Task
from tacit.runs import search as runs_search
from tacit.runs.search import Search, Searching, search_from
from tacit.training import FullBatch

from . import small

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.ledger import Budget
    from tacit.mechanisms import Released
    from tacit.runs import Outline, Releasing
    from tacit.selection import Winner
    from tacit.training import Plan


def search(journal: Path, recipe: Any = None, *, budget: Any = None, **told: Any) -> Winner:
    task = Task(
        settings=small.Settings(), data=small.split(), epsilon=3.0, delta=1e-5,
        device=torch.device("cpu"),
    )  # fmt: skip
    asked = Search(**{"candidates": {"lr": (0.5, 0.4)}, "runs": 2.0} | told)
    searching = Searching(recipe or small.recipe(), task, asked, Interruption())
    return searching.run(budget, "label", journal)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Winner:
    """What a search by public scores finds: several tests look at it."""
    return search(tmp_path_factory.mktemp("found"))


def test_candidates_of_one_plan_are_charged_exactly(found: Winner) -> None:
    event = found.event
    assert isinstance(event, PrivateSelection)
    assert isinstance(event.base, Composed)
    assert event.base.events[0] == Gaussian(small.MEAN_NOISE)
    assert found.epsilon == pytest.approx(3.0)
    # The winner's own plan has the noise that the search counts with.
    noise = found.model.statement.plan["noise_multiplier"]
    assert found.terms.allowance.noise == noise
    inner = epsilon(event.base, 1e-5)
    assert found.tuning_cost == pytest.approx(3.0 - inner)
    assert found.model.statement.epsilon == pytest.approx(found.terms.allowance.epsilon)


def test_what_comes_before_training_may_follow_from_the_whole_epsilon(tmp_path: Path) -> None:
    """As the first phase of cifar10-prior does: a run's own, smaller ε would ask for more noise."""
    plain = small.recipe()
    assert plain.outline is not None

    def noise_of(task: Task) -> float:
        return 2.0 * small.MEAN_NOISE / task.epsilon

    def outline(task: Task) -> Outline:
        chosen = task.settings
        return task.plan(
            lot=chosen.lot, steps=chosen.steps, clip=chosen.clip, also=(Gaussian(noise_of(task)),)
        )

    def prepare(task: Task, plan: Plan, release: Releasing) -> tacit.Prepared:
        def mean(budget: Budget | None) -> Released[Any]:
            return gaussian(
                torch.zeros(3).numpy(), sensitivity=1.0, noise_multiplier=noise_of(task),
                budget=budget,
            )  # fmt: skip

        release("mean", mean, what="the mean")
        return small.prepared(task, plan)

    found = search(tmp_path, replace(plain, outline=outline, prepare=prepare))
    assert isinstance(found.event.base, Composed)
    assert found.event.base.events[0] == Gaussian(2.0 * small.MEAN_NOISE / 3.0)
    assert found.epsilon == pytest.approx(3.0)


def test_a_searched_models_claim_says_what_a_single_runs_does(found: Winner) -> None:
    own, claim = found.model.statement, found.statement()
    assert set(own.assumptions) < set(claim.assumptions)
    assert set(own.not_promised) < set(claim.not_promised)
    assert any("held-out examples" in one for one in claim.not_promised)
    assert (claim.noise, claim.randomness) == (own.noise, own.randomness)
    assert own.sampling in claim.sampling
    # The noisy mean is in the event of each run, and not charged once more.
    assert own.preprocessing[0].charged
    assert "of the winner's run: the mean" in claim.releases
    assert (claim.preprocessing, claim.epsilon) == ((), found.epsilon)


def test_candidates_of_different_plans_have_a_share_each(tmp_path: Path) -> None:
    found = search(tmp_path, candidates={"steps": (5, 10)})
    assert found.terms.allowance.noise is None
    assert found.epsilon <= 3.0
    assert found.model.statement.epsilon <= found.terms.allowance.epsilon * (1 + 1e-9)
    assert found.model.statement.delta == found.terms.allowance.delta


@pytest.mark.slow
def test_a_noisy_score_on_training_data_is_charged(tmp_path: Path, found: Winner) -> None:
    charged = search(tmp_path, score="training", score_epsilon=0.5)
    assert charged.epsilon == pytest.approx(3.0)
    assert charged.terms.allowance.noise > found.terms.allowance.noise
    assert 0.0 < charged.score < 1.5


def test_the_score_is_the_winners_held_out_accuracy(found: Winner) -> None:
    assert found.candidate["lr"] in (0.5, 0.4)
    assert found.score == found.model.accuracy


def test_a_recipe_without_a_plan_can_be_searched(tmp_path: Path) -> None:
    def train(job: Any) -> Any:
        job.release("mean", small.mean_of([]), what="x")
        return job.conclude({}, accuracy=job.settings.lr, sampling="none", noise="x")

    recipe = small.unplanned(train)
    found = search(tmp_path, recipe)
    assert found.model.accuracy in (0.5, 0.4)
    with pytest.raises(InvalidArgument, match="needs a recipe that fits a plan"):
        search(tmp_path / "other", recipe, score="training", score_epsilon=0.5)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"unit": "user"}, "unit must be that of the budget 'b', 'user', got 'example'"),
        ({"adjacency": "replace-one"}, "adjacency must be that of the budget 'b', 'replace-one'"),
    ],
    ids=["unit", "adjacency"],
)
def test_a_budget_for_others_than_the_runs_protect_is_refused(
    tmp_path: Path, terms: dict[str, Any], words: str
) -> None:
    """Each run trains by its plan: of other neighbours it promises less than the search says."""
    budget = tacit.Ledger(f"sqlite:///{tmp_path / 'a.db'}").open("b", 9.0, 1e-4, **terms)
    with pytest.raises(InvalidArgument, match=words):
        search(tmp_path / "search", candidates={"steps": (5, 10)}, budget=budget)
    assert budget.spent().epsilon == 0


def test_a_noisy_score_counts_each_record_once(tmp_path: Path) -> None:
    """A row of many numbers, or a user of many rows, would move the count by more than 1."""
    outline = small.recipe().outline
    assert outline is not None

    def for_users(task: Task) -> Any:
        plan = replace(outline(task).plan, unit="user", examples_per_user=3)
        return replace(outline(task), plan=plan)

    with pytest.raises(InvalidArgument, match="counts examples, and the plan protects each user"):
        search(
            tmp_path, replace(small.recipe(), outline=for_users), score="training", score_epsilon=1
        )
    by_tokens = replace(own({"lr": 1.0}), correct=lambda _, batch: batch[0] > 0.0)
    for refused in (by_tokens, replace(by_tokens, held_out=None)):
        with pytest.raises(InvalidArgument, match="right or wrong as a whole"):
            runs_search.check_rows(refused)
    by_rows = replace(by_tokens, correct=lambda _, batch: batch[0][:, 0] > 0.0)
    runs_search.check_rows(by_rows)
    runs_search.check_rows(own({"lr": 1.0}))


def test_a_search_comes_back_from_its_plain_form() -> None:
    one = Search(candidates={"lr": (0.5,), "lot": (3, 4)}, runs=2.0)
    assert search_from(one.as_dict(), small.Settings()) == one
    assert one.count == 2


# One's own model and data.


def own(settings: dict[str, Any], **plan: Any) -> tacit.Prepared:
    """A linear model of rows whose first number decides."""
    rows = torch.linspace(-1.0, 1.0, 120).reshape(-1, 1) * torch.tensor([[1.0, 0.1]])
    data = TensorDataset(rows, (rows[:, 0] > 0).long())
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        for one in model.parameters():
            one.zero_()
    given = {
        "examples": 80, "lot_size": 80, "steps": 6, "noise_multiplier": 9.0, "clip": 1.0,
        "sampling": FullBatch(),
    }  # fmt: skip
    return tacit.Prepared(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=settings["lr"]),
        plan=tacit.Plan(**(given | plan)),
        dataset=Subset(data, range(0, 120, 3)) + Subset(data, range(1, 120, 3)),
        held_out=Subset(data, range(2, 120, 3)),
    )


def test_what_cannot_be_trained_is_refused_before_the_search_is_charged(tmp_path: Path) -> None:
    budget = tacit.Ledger(f"sqlite:///{tmp_path / 'budget.db'}").open("visits", 4.0, 1e-3)

    def forgotten(settings: dict[str, Any]) -> Any:
        own(settings)  # and no return

    for prepare, words in ((forgotten, r"must return a tacit\.Prepared for .*, got a NoneType"),
                           (own, "lr of the optimizer must be above 0, got 0")):  # fmt: skip
        with pytest.raises(InvalidArgument, match=words):
            tacit.search(prepare, {"lr": [0.5, 0.0]}, epsilon=3, delta=1e-3, runs=2, budget=budget)
    assert budget.spent().epsilon == 0
    with pytest.raises(InvalidArgument, match="lr must be a positive finite number, got 0"):
        search_from({"candidates": {"lr": [1.0, 0.0]}}, small.Settings())


def test_ones_own_settings_are_searched_for_what_the_whole_costs(tmp_path: Path) -> None:
    ledger = tacit.Ledger(f"sqlite:///{tmp_path / 'budget.db'}")
    budget = ledger.open("visits", epsilon=4, delta=1e-3)
    won = tacit.search(
        own, {"lr": [0.5, 1.0]}, epsilon=3, delta=1e-3, runs=2, budget=budget, label="lr"
    )
    assert won.candidate["lr"] in (0.5, 1.0)
    assert won.epsilon == pytest.approx(3.0)
    assert isinstance(won.event, PrivateSelection)
    # The base is the plan's own event at the noise that was found, not at the 9.0 it came with.
    noise = won.terms.allowance.noise
    assert noise is not None
    assert won.event.base == own({"lr": 1.0}, noise_multiplier=noise).plan.event
    assert epsilon(won.event, 1e-3) <= 3.0 * (1 + 1e-9)
    assert epsilon(won.event.base, 1e-3) < 3.0
    assert won.statement().epsilon == won.epsilon
    assert won.statement().tuning.startswith("covered")
    assert any("such as first weights" in one for one in won.statement().assumptions)
    assert budget.spent().epsilon == pytest.approx(3.0)
    # The model is the one that was scored.
    x, y = zip(*own({"lr": 1.0}).held_out, strict=True)
    right = won.model(torch.stack(x)).argmax(1) == torch.stack(y)
    assert float(right.float().mean()) == pytest.approx(won.score)


def test_rates_at_which_training_diverges_lose() -> None:
    def steep(settings: dict[str, Any]) -> tacit.Prepared:
        found = own(settings)
        found.optimizer.param_groups[0]["weight_decay"] = 1.0  # weights grow by the rate each step
        return found

    tried: list[float] = []

    def counted(settings: dict[str, Any]) -> tacit.Prepared:
        tried.append(settings["lr"])
        return steep(settings)

    won = tacit.search(counted, {"lr": [0.1, 1e30]}, epsilon=3, delta=1e-3, runs=10)
    assert won.candidate == {"lr": 0.1}
    assert tried.count(1e30) > 1  # once to see the plan, and in a run
    with pytest.raises(Diverged, match="every run of the search"):
        tacit.search(steep, {"lr": [1e30]}, epsilon=3, delta=1e-3, runs=2)


def with_model(ready: tacit.Prepared, model: nn.Module) -> tacit.Prepared:
    return replace(ready, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5))


@pytest.mark.parametrize("rates", [[0.5, 1.0], [0.5]], ids=["two", "one"])
@pytest.mark.parametrize("kind", ["model", "tensor"])
def test_runs_that_would_train_the_same_weights_are_refused_before_the_charge(
    kind: str, rates: list[float], tmp_path: Path
) -> None:
    """Each would give away what those before it learned, and be charged for its own."""
    first = own({"lr": 0.5}).model
    table = first.weight.detach().clone()

    def shared(settings: dict[str, Any]) -> tacit.Prepared:
        ready = own(settings)
        if kind == "model":
            return with_model(ready, first)
        ready.model.weight = nn.Parameter(table)  # as Embedding.from_pretrained does
        return with_model(ready, ready.model)

    ledger = tacit.Ledger(f"sqlite:///{tmp_path / 'budget.db'}")
    budget = ledger.open("visits", epsilon=4, delta=1e-3)
    with pytest.raises(InvalidArgument, match="prepare must make a fresh model each time"):
        tacit.search(shared, {"lr": rates}, epsilon=3, delta=1e-3, runs=2, budget=budget)
    assert budget.spent().epsilon == 0.0


def test_a_run_does_not_begin_where_another_ended() -> None:
    """Neither with its model, which was kept for its settings, nor with a copy of its weights."""
    trained: dict[float, tacit.Prepared] = {}

    def kept(settings: dict[str, Any]) -> tacit.Prepared:
        return trained.setdefault(settings["lr"], own(settings))

    def copied(settings: dict[str, Any]) -> tacit.Prepared:
        ready = own(settings)
        if "last" in weights:
            ready.model.load_state_dict(weights["last"].state_dict())
        weights["last"] = ready.model
        return ready

    weights: dict[str, nn.Module] = {}
    for prepare in (kept, copied):
        beginnings = runs_search._Beginnings()
        with beginnings.of_a_run(first := prepare({"lr": 0.5})):
            tacit.fit(first.model, first.optimizer, first.plan, first.dataset, delta=1e-3)
        with (
            pytest.raises(InvalidArgument, match="another run has trained"),
            beginnings.of_a_run(prepare({"lr": 0.5})),
        ):
            pass
        with beginnings.of_a_run(own({"lr": 0.5})):
            pass


def test_a_search_needs_an_accuracy_to_choose_by() -> None:
    def measured(settings: dict[str, Any]) -> tacit.Prepared:
        ready = own(settings)
        x, y = zip(*ready.held_out, strict=True)  # type: ignore[call-overload]
        real = TensorDataset(torch.stack(x), torch.stack(y).float())
        return replace(ready, held_out=real, metrics={"mse": lambda *_: 0.0})

    with pytest.raises(InvalidArgument, match="best run is found by accuracy, not by metrics"):
        tacit.search(measured, {"lr": [1.0]}, epsilon=3, delta=1e-3, runs=2)


def test_ones_own_search_gives_its_model_back_from_its_journal(tmp_path: Path) -> None:
    first = tacit.search(own, {"lr": [1.0]}, epsilon=3, delta=1e-3, runs=2, folder=tmp_path / "s")
    again = tacit.search(own, {"lr": [1.0]}, epsilon=3, delta=1e-3, runs=2, folder=tmp_path / "s")
    assert again.score == first.score
    for one, other in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_ones_own_plans_must_release_the_same() -> None:
    def by_steps(settings: dict[str, Any]) -> tacit.Prepared:
        return own({"lr": 0.5}, steps=settings["steps"])

    with pytest.raises(InvalidArgument, match=r"plans that differ in clip and noise only, got .*7"):
        tacit.search(by_steps, {"steps": [6, 7]}, epsilon=3, delta=1e-3)

    seen: list[dict[str, Any]] = []

    def later(settings: dict[str, Any]) -> tacit.Prepared:
        seen.append(settings)
        return own(settings, steps=6 if len(seen) < 3 else 60)

    with pytest.raises(ProtocolError, match="changes what the plan releases"):
        tacit.search(later, {"lr": [0.5, 1.0]}, epsilon=3, delta=1e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"candidates": {}}, "candidates must list values of settings"),
        ({"candidates": {"lr": []}}, "at least one value of each setting"),
        ({"delta": 0.5}, "delta must be"),
        ({"prepare": lambda _: replace(own({"lr": 1.0}), held_out=None)}, "held-out data"),
    ],
    ids=["no settings", "no values", "delta", "no held-out data"],
)
def test_ones_own_search_refuses_in_one_line(changes: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {
        "prepare": own, "candidates": {"lr": [1.0]}, "epsilon": 3, "delta": 1e-3,
    }  # fmt: skip
    with pytest.raises(InvalidArgument, match=words):
        tacit.search(**(given | changes))


def test_ones_own_search_refuses_a_budget_for_another_unit(tmp_path: Path) -> None:
    ledger = tacit.Ledger(f"sqlite:///{tmp_path / 'budget.db'}")
    budget = ledger.open("users", epsilon=4, delta=1e-3, unit="user")
    with pytest.raises(InvalidArgument, match="unit must be that of the budget 'users', 'user'"):
        tacit.search(own, {"lr": [1.0]}, epsilon=3, delta=1e-3, budget=budget)
