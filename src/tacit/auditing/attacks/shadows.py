"""Training shadow models: the same training on random parts of a pool of examples."""

from __future__ import annotations

import contextlib
import re
import secrets
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tacit._files import array_bytes, parse_array
from tacit._folders import PartsFolder
from tacit._validation import open_probability, whole
from tacit._workers import carried_out, check_workers
from tacit.auditing.attacks.outputs import checked_logits
from tacit.errors import InvalidArgument, WorkerDied
from tacit.training.progress import counting

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import ArrayLike, NDArray

    from tacit._workers import Workers
    from tacit.errors import CheckpointError

    Logits = NDArray[np.float32]
    Members = NDArray[np.bool_]
    Train = Callable[[NDArray[np.bool_], int], ArrayLike]
    Done = Generator[tuple[int, ArrayLike], None, None]
    _Piece = tuple[Members, int]  # who is trained on, and the model's seed


_MOST = 1 << 27  # coins that a folder may ask for: a gigabyte while they are thrown


def train_shadows(
    train: Train,
    *,
    examples: int,
    count: int,
    share: float = 0.5,
    seed: int | None = None,
    task: str = "",
    workers: Workers = 1,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> tuple[Logits, Members]:
    """Trains models on random parts of a pool, and asks each about the whole pool.

    Args:
        train: From members (true or false for each example of the pool) and a seed to the logits of
            a model that was trained on the members only: (examples, classes), or (examples, views,
            classes). For other processes it must be a function at the top of a module, or
            ``functools.partial`` of one.
        examples: The size of the pool.
        count: How many models.
        share: The chance of an example to be a member. If it is ½, models come in pairs of which
            each example is in exactly one: no example then has all models on one side.
        seed: Of the members and of the models' seeds; None draws one, or takes the folder's.
        task: What is trained on what, in words: a folder of another task is refused.
        workers: How many processes train at the same time; or a ``tacit.selection.RayCluster``.
        folder: Where finished models are kept. A second call goes on where the first ended; a
            folder that was begun with other settings is refused.
        progress: True shows how many are trained, False does not, None only on a terminal.

    Returns:
        Logits (models, examples, views, classes) and members (models, examples), which together
        with the pool's labels make ``Shadows``. They are private, as the folder is: no guarantee
        covers them.

    >>> def train(members, seed):  # a model that says how often it saw each class
    ...     return np.tile([members[:3].sum(), members[3:].sum()], (6, 1))
    >>> logits, members = train_shadows(train, examples=6, count=4, seed=1)
    >>> logits.shape, members.sum(axis=0).tolist()
    ((4, 6, 1, 2), [2, 2, 2, 2, 2, 2])
    """
    settings = {
        "examples": whole("examples", examples),
        "count": whole("count", count),
        "share": open_probability("share", share),
        "task": task,
        "seed": None if seed is None else whole("seed", seed, at_least=0),
    }
    where = check_workers(workers)
    kept = None if folder is None else ShadowFolder(folder)
    with contextlib.nullcontext() if kept is None else kept.opened():
        settings = _begun(kept, settings)
        done = {} if kept is None else kept.models()
        if kept is not None:
            _check_kept(kept, settings, done)
        _train_missing(train, settings, where, kept, done, progress)
    return np.stack([done[model] for model in range(count)]), _members(settings)


def kept_shadows(folder: str | os.PathLike[str]) -> tuple[Logits, Members]:
    """What ``train_shadows`` has finished in a folder: as many models as there are.

    Training that was interrupted leaves models that an attack can use.
    """
    kept = ShadowFolder(folder)
    with kept.opened():
        settings = kept.settings()
        done = {} if settings is None else kept.models()
    if settings is None or not done:
        raise kept.refused("holds no finished shadow model: train some")
    _check_kept(kept, settings, done)
    if settings["count"] * settings["examples"] > _MOST:
        raise kept.refused(f"says that it is of {settings['count']:,} models, too many")
    return np.stack(list(done.values())), _members(settings)[list(done)]


def _begun(kept: ShadowFolder | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with a seed: the folder's, if it was begun before."""
    fresh = dict(settings)
    if fresh["seed"] is None:
        fresh["seed"] = secrets.randbits(63)
    if kept is None:
        return fresh
    before = kept.settings()
    if before is None:
        kept.begin(fresh)
        return fresh
    for name, value in settings.items():
        if before.get(name) != value and not (name == "seed" and value is None):
            raise kept.refused(
                f"is of shadow models with {name} {before.get(name)!r}, not {value!r}: name a new "
                "folder, or give the one it was made with"
            )
    return before


def _check_kept(
    kept: ShadowFolder, settings: Mapping[str, Any], done: Mapping[int, Logits]
) -> None:
    """Refuses what ``train_shadows`` did not write; anybody may have sent the folder."""
    try:
        count, examples = whole("count", settings["count"]), whole("examples", settings["examples"])
        open_probability("share", settings["share"])
        whole("seed", settings["seed"], at_least=0)
        if max(done, default=0) >= count:
            raise InvalidArgument(f"count must be that of the models, got {count!r}")
        for model, logits in done.items():
            _checked(logits, model, examples, done)
    except (InvalidArgument, KeyError, TypeError) as error:
        raise kept.refused(f"is damaged: {' '.join(str(error).split())[:300]}") from None


def _train_missing(
    train: Train,
    settings: Mapping[str, Any],
    where: Workers,
    kept: ShadowFolder | None,
    done: dict[int, Logits],
    progress: bool | None,
) -> None:
    count, members = settings["count"], _members(settings)
    pieces = [
        (model, (members[model], _seed_of(settings["seed"], model)))
        for model in range(count)
        if model not in done
    ]
    if not pieces:
        return
    with (
        contextlib.closing(_trained(train, pieces, where)) as trained,
        counting(progress, "shadow models", total=count, done=len(done)) as show,
    ):
        for model, found in trained:
            logits = _checked(found, model, members.shape[1], done)
            if kept is not None:
                kept.add(model, logits)
            done[model] = logits
            show(len(done))


def _trained(train: Train, pieces: Sequence[tuple[int, _Piece]], where: Workers) -> Done:
    """Trains each piece, and gives its model's number and logits when it is done."""
    try:
        yield from carried_out(_train_one, train, pieces, where, names="train")
    except WorkerDied:
        raise WorkerDied(
            "a process that trained shadow models was killed or could not start: call again, "
            "which goes on from the folder (a script must do its work under "
            "if __name__ == '__main__')"
        ) from None


def _train_one(train: Train, piece: _Piece) -> ArrayLike:
    return train(*piece)


def _checked(found: object, model: int, examples: int, done: Mapping[int, Logits]) -> Logits:
    try:
        logits = checked_logits(np.asarray(found), leading=1)
    except InvalidArgument as error:
        raise InvalidArgument(f"train gave for model {model}: {error}") from None
    others = next(iter(done.values()), logits)
    if len(logits) != examples or logits.shape != others.shape:
        raise InvalidArgument(
            f"train must give logits for each of the {examples} examples, the same views and "
            f"classes each time, got shape {logits.shape} for model {model}"
        )
    return logits


def _members(settings: Mapping[str, Any]) -> Members:
    """Who is trained on, by fair and independent coins for each model alone."""
    count, share = settings["count"], settings["share"]
    draw = np.random.default_rng(np.random.SeedSequence(int(settings["seed"]), spawn_key=(0,)))
    coins: Members = draw.random((count, settings["examples"])) < share
    if share == 0.5:
        coins[1::2] = ~coins[: count - count % 2 : 2]
    return coins


def _seed_of(seed: int, model: int) -> int:
    """Of one model: whichever are trained, in whatever order, each has its own."""
    return int(np.random.SeedSequence(seed, spawn_key=(1, model)).generate_state(1)[0])


# ---- the folder of shadow models' outputs, from which interrupted training goes on
#
# Each finished model is one file, written whole or not at all. All of it is private: who was a
# member, and what models that were trained on private records say of them. Only its owner can read
# it.

RECORD: Final = "shadows.json"
_NAME: Final = re.compile(r"model-(\d{6,12})\.npy")
TEXT: Final = """\
Everything in this folder is private: it was computed from the records, for an audit, and no
guarantee covers it. Delete it when the audit is done.
"""


@final
class ShadowFolder:
    """The folder of one set of shadow models.

    Guarantee: what it gives back was written whole, for the settings that it was begun with;
    anything else is refused.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._parts = PartsFolder(path, record=RECORD, holds="shadow models")

    def opened(self) -> AbstractContextManager[None]:
        """Makes the folder if need be, and keeps other processes out meanwhile."""
        return self._parts.opened()

    def settings(self) -> dict[str, Any] | None:
        """What the folder was begun with; None if it is new."""
        record = self._parts.record("settings")
        if record is not None and not isinstance(record["settings"], dict):
            raise self.refused(f"is damaged: {RECORD} has no settings")
        return None if record is None else record["settings"]

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Writes the record of a new folder."""
        self._parts.begin(TEXT)
        self._parts.conclude({"settings": dict(settings)})

    def add(self, model: int, logits: NDArray[np.float32]) -> None:
        """Keeps what a finished model says."""
        self._parts.write(_name(model), array_bytes(logits))

    def models(self) -> dict[int, NDArray[np.float32]]:
        """What each of the finished models says, by its number."""
        names = (path.name for path in self._parts.path.glob("model-*.npy"))
        numbers = sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))
        return {number: self._read(_name(number)) for number in numbers}

    def _read(self, name: str) -> NDArray[np.float32]:
        try:
            return parse_array(self._parts.read(name)).astype(np.float32)
        except ValueError as error:
            raise self.refused(f"is damaged: {name}: {error}") from None

    def refused(self, reason: str) -> CheckpointError:
        """The error that says why the folder is of no use."""
        return self._parts.refused(reason)


def _name(model: int) -> str:
    return f"model-{model:06d}.npy"
