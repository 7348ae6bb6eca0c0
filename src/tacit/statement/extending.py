"""A statement with more in it: what else was released of the same data, and where it came from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit._validation import one_line
from tacit.statement.access import Access, without_preprocessing
from tacit.statement.checking import texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tacit.accounting.events import Event
    from tacit.statement.claim import Statement
    from tacit.statement.data_dependent import DataDependent


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
        data_dependent: An ε that depends on the data, told with noise; replaces the figure.
        files: The SHA-256 of released files, by name.

    Guarantee:
        The event of the result is that of ``statement`` and all of ``preprocessing`` together, and
        its ε what the statement's accountant proves for them: never less than before. A signature
        does not cover what is added, and is dropped.

    >>> from tacit.accounting import Gaussian, epsilon
    >>> from tacit.accounting.serialization import to_plain
    >>> from tacit.statement import Statement
    >>> claim = Statement(
    ...     epsilon=epsilon(Gaussian(4.0), 1e-5), delta=1e-5, event=to_plain(Gaussian(4.0)),
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
    return texts(name, [one_line(one) if isinstance(one, str) else one for one in several])


def _access(what: str, event: Event | None) -> Access:
    from tacit.accounting.serialization import to_plain  # noqa: PLC0415 - only where one is

    said = one_line(what) if isinstance(what, str) else what
    return Access(said, None if event is None else to_plain(event))


def _together(statement: Statement, added: tuple[Access, ...]) -> dict[str, Any]:
    """Preprocessing first, in its order, then whatever the statement is about."""
    if not any(one.charged for one in added):
        return statement.event
    rest = without_preprocessing(statement.event, statement.preprocessing)
    before = [one.event for one in (*statement.preprocessing, *added) if one.charged]
    return {"kind": "Composed", "events": [*before, rest]}


def _proved(statement: Statement, event: dict[str, Any]) -> float:
    from tacit.statement.proving import proved  # noqa: PLC0415 - SciPy only when it is asked

    return proved(event, statement.delta, statement.accountant, statement.adjacency)
