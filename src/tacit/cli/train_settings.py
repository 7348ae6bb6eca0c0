"""Settings on the command line: ``--lot 500``, ``--set lot=500``, ``--head cnn``."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from tacit.cli.options import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tacit.recipes import Recipe

OPTIONS = (
    "epsilon", "delta", "epochs", "lot", "clip", "lr", "set", "out", "resume", "ledger", "budget",
    "device", "seed", "data", "search", "settings", "list", "json", "help",
)  # fmt: skip


class TakesSettings(click.Command):
    """Takes every unknown ``--name value`` for a setting of what is run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Turns them into ``--set`` before click looks for its own options."""
        known = {"--help": False, "-h": False}
        for parameter in self.params:
            if isinstance(parameter, click.Option):
                known |= dict.fromkeys(parameter.opts, not parameter.is_flag)
        return super().parse_args(ctx, as_sets(args, known))


def given_settings(own: Mapping[str, str | None], sets: Sequence[str]) -> dict[str, str]:
    """The settings that were typed, by name: as options of their own and as ``--set``."""
    given: dict[str, str] = {}
    pairs = [(name, value) for name, value in own.items() if value is not None]
    pairs += [_pair(one) for one in sets]
    for name, value in pairs:
        if given.setdefault(name, value) != value:
            raise Refusal(f"{name}={given[name]} and {name}={value} contradict each other")
    return given


def _pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name.strip():
        raise Refusal(f"--set must be NAME=VALUE, got {text}; --settings shows the names")
    return name.strip().replace("-", "_"), value.strip()


def settings_from(recipe: Recipe, epsilon: float, given: Mapping[str, str]) -> Any:
    """The recipe's settings at ε, with those that were typed."""
    from tacit.runs.settings import changed

    default = recipe.settings(epsilon)
    return changed(default, known_settings(recipe.name, default, given))


def known_settings(
    recipe: str, settings: Any, given: Mapping[str, str], options: Sequence[str] = OPTIONS
) -> Mapping[str, str]:
    """``given``, if the recipe has such settings: a name may also be a mistyped option."""
    from tacit.runs.settings import names

    there = names(settings)
    for name in given:
        if name not in there:
            shown = name.replace("_", "-")
            close = get_close_matches(shown, [*there, *options], 1)
            meant = f"did you mean --{close[0]}? " if close else ""
            raise Refusal(
                f"--{shown} is neither an option nor a setting of {recipe}; {meant}"
                f"its settings are {', '.join(there)}"
            )
    return given


def as_sets(arguments: Sequence[str], known: Mapping[str, bool]) -> list[str]:
    """Arguments with ``--head cnn`` as ``--set head=cnn``, for every option that is not ``known``.

    >>> as_sets(["mnist", "--out", "x", "--head", "cnn"], {"--out": True})
    ['mnist', '--out', 'x', '--set', 'head=cnn']
    """
    found: list[str] = []
    rest = list(arguments)
    while rest:
        one = rest.pop(0)
        name, mark, value = one.partition("=")
        if not one.startswith("--") or one == "--":
            found.append(one)
        elif name in known:
            found.append(one)
            if known[name] and not mark and rest:
                found.append(rest.pop(0))
        elif mark:
            found += ["--set", f"{name[2:]}={value}"]
        elif not rest or rest[0].startswith("--"):
            raise Refusal(f"{one} needs a value; --help shows the options")
        else:
            found += ["--set", f"{name[2:]}={rest.pop(0)}"]
    return found
