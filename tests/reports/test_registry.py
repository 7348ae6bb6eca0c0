"""The registry's record is of the registry's own schema; the card says what the statement says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tacit.errors import InvalidArgument
from tacit.reports.model_card import model_card
from tacit.reports.registry import OPEN, record_of, registry_record
from tacit.reports.run_folder import read
from tacit.reports.run_summary import summarise
from tacit.runs import Interruption
from tacit.runs.recipe import Task
from tacit.runs.run import Place, carried_out
from tacit.statement import Charge

from ..runs import small

if TYPE_CHECKING:
    from tacit.reports.run_summary import RunSummary

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")
SCHEMA = Path(__file__).parent / "registry-schema.yaml"


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    import torch  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("run") / "run"
    task = Task(settings=small.Settings(), data=small.split(), epsilon=3.0, delta=1e-5,
                device=torch.device("cpu"), seed=0)  # fmt: skip
    carried_out(small.recipe(), task, Place(folder=folder, stop=Interruption()))
    return summarise(read(folder))


def errors(record: Any) -> list[str]:
    kind = jsonschema.Draft7Validator
    schema = yaml.safe_load(SCHEMA.read_text())
    checker = kind(schema, format_checker=kind.FORMAT_CHECKER)
    return [one.message for one in checker.iter_errors(record)]


def test_the_record_is_of_the_published_schema(summary: RunSummary) -> None:
    found = yaml.safe_load(registry_record(summary, author="Ada", today="2026-11-17"))
    assert errors(found) == []
    assert found == record_of(summary, author="Ada", today="2026-11-17")
    assert found["tier"] == 3
    loss = found["deployment"]["privacy_loss"]["privacy_parameters"]
    assert summary.statement.epsilon <= loss["epsilon"] <= summary.statement.epsilon * (1 + 1e-5)
    assert loss["delta"] == summary.statement.delta


def test_the_number_of_examples_that_it_publishes_is_called_public(summary: RunSummary) -> None:
    """Also of a search or a transfer, whose statement has no plan."""
    unplanned = replace(
        summary.statement, plan=None, steps_planned=None, steps_taken=None, stopped_early=None
    )
    for claim in (summary.statement, unplanned):
        files = replace(summary.files, statement=claim)
        found = record_of(replace(summary, files=files), author="a", today="2026-07-15")
        deployed = found["deployment"]
        assert "training examples" in deployed["deployment_model"]["data_source_type_details"]
        assert "the number of examples" in deployed["dp_variant"]["unprotected_quantities"]


def test_every_field_of_tier_3_is_there(summary: RunSummary) -> None:
    schema = yaml.safe_load(SCHEMA.read_text())["properties"]["deployment"]["properties"]
    found = record_of(summary, author="Ada", today="2026-11-17")["deployment"]
    left_out = {"data_product_sector", "sources"}  # an enumeration only the curator can choose from
    for part, fields in schema.items():
        assert set(fields["properties"]) - left_out <= set(found[part]), part
    assert json.dumps(found).count(json.dumps(OPEN)) == 5  # what only the curator knows


def test_the_schema_refuses_what_it_should(summary: RunSummary) -> None:
    found = record_of(summary, author="Ada", today="2026-11-17")
    assert errors({**found, "tier": 4})
    assert errors({**found, "surprise": 1})


def test_hostile_texts_stay_texts(summary: RunSummary) -> None:
    hostile = 'x"\n- evil: true\n---\n<script>[a](http://b)\u2028&anchor *alias !!python/object'
    record = replace(summary.files.record, summary=hostile, recipe=hostile)
    changed = replace(summary, files=replace(summary.files, record=record))
    found = yaml.safe_load(registry_record(changed, author=hostile, today="2026-11-17"))
    assert errors(found) == []
    assert "evil" in found["deployment"]["basic"]["name"]
    card = model_card(changed)
    front = card.split("---")[1]
    assert "evil" not in front
    assert "<script>" not in card
    assert "`<script>" not in card
    assert yaml.safe_load(front)["tags"] == ["differential_privacy", "dp-sgd", "tacit"]


def test_what_claims_nothing_is_not_registered(summary: RunSummary) -> None:
    void = replace(summary.statement, void=True)
    changed = replace(summary, files=replace(summary.files, statement=void))
    with pytest.raises(InvalidArgument, match="claims nothing"):
        registry_record(changed, author="Ada")
    assert "does not hold" in model_card(changed)


def test_a_charge_that_was_not_looked_up_is_registered_as_a_claim(summary: RunSummary) -> None:
    charge = Charge(ledger="ab" * 16, location="elsewhere", budget="data", reservation=3,
                    head="3:" + "ab" * 32)  # fmt: skip
    files = replace(summary.files, statement=replace(summary.statement, charge=charge))
    record = registry_record(replace(summary, files=files), author="Ada")
    assert "charged to the budget 'data' of a ledger of tacit, as it claims." in record


def test_the_card_tells_what_is_proved_from_what_is_claimed(summary: RunSummary) -> None:
    card = model_card(summary)
    assert "(ε, δ) = (3, 1e-5)" in card
    assert "- proved: ε" in card
    assert "- claimed: accuracy" in card
    assert "What the claim does not promise" in card
