"""A fuzzer over everything that a folder may hold: an error of tacit's, or what it should be.

Bytes are flipped, cut and inserted; JSON documents are changed node by node, their checksums made
right again; files change places, and become links, pipes and pickles. The real reading functions
run: nothing is executed, nothing but an error of tacit's is raised, and nothing waits.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import pickle
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tacit._pickles import PlainModels
from tacit.auditing.attacks import kept_shadows, train_shadows
from tacit.errors import TacitError
from tacit.recipes import Interrupted, run
from tacit.reports import run_folder
from tacit.runs import kept
from tacit.runs import record as records
from tacit.runs.folder import Folder
from tacit.selection.journal import Progress, SearchJournal
from tacit.training import checkpoint, checkpoint_file
from tacit.transfer import Teachers, Votes
from tacit.transfer.journal import LabelJournal

from . import small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(int)
SETTINGS = {"aggregator": "x", "queries": 6, "votes": [3, 9]}
# Nothing is made smaller: what fails is a file, and reading it is slow.
HOW = {"deadline": None, "suppress_health_check": list(HealthCheck), "phases": [Phase.generate]}
FEW, MANY = settings(max_examples=25, **HOW), settings(max_examples=3000, **HOW)


class Hostile:
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.system, ("kill -9 $PPID",)  # whoever reads it is gone


# ---- what is read, by the name of the folder that the fixture makes


def _resume(place: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    found = checkpoint.read(place / "checkpoint.safetensors")
    state = {name: _Any(one) for name, one in found.state.items()}
    checkpoint.restore(found, model=model, optimizers=[optimizer], state=state)


class _Any:
    """Takes whatever state there is; its class has the name that is asked for."""

    def __new__(cls, saved: checkpoint.Saved) -> Any:
        methods = {"state_dict": lambda _: {}, "load_state_dict": lambda *_: None}
        return type(saved.kind or "x", (), methods)()


def _search(place: Path) -> None:
    with SearchJournal(place, {}, candidates=2, models=PlainModels()).opened():
        pass


def _votes_journal(place: Path) -> None:
    with LabelJournal(place / "answers.journal", SETTINGS, 6, 3):
        pass


def _teachers(place: Path) -> None:
    teachers(place).fit()


def teachers(place: Path) -> Teachers:
    return Teachers(lambda: torch.nn.Linear(3, 2), (ROWS, LABELS), 3, classes=2, epochs=1,
                    how="loop", folder=place, progress=False)  # fmt: skip


READERS: dict[str, Callable[[Path], object]] = {
    "stopped": lambda place: (records.read(Folder(place)), _resume(place)),
    "finished": run_folder.read,
    "mean": lambda place: kept.read_released(place / "released-mean.safetensors"),
    "search": _search,
    "journal": _votes_journal,
    "votes": lambda place: Votes.load(place / "votes.npy", holds="counts", classes=3),
    "teachers": _teachers,
    "shadows": kept_shadows,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sound folder for each of the readers."""
    root = tmp_path_factory.mktemp("sound")
    places = {name: root / name for name in READERS}
    recipe, data = small.recipe(also=False), small.split()
    with pytest.raises(Interrupted):
        run(recipe, epsilon=2.0, data=data, folder=places["stopped"], stop=small.StopAfter(5),
            settings={"averaged": False})  # fmt: skip
    run(recipe, epsilon=2.0, data=data, folder=places["finished"])
    with pytest.raises(Interrupted):
        run(small.recipe(), epsilon=2.0, data=data, folder=places["mean"],
            stop=small.StopAfter(5))  # fmt: skip
    search = SearchJournal(places["search"], {}, candidates=2, models=PlainModels())
    with search.opened():
        progress = Progress((0, 1, 1), entry=3)
        progress.record(1, 0.5, {"weight": torch.ones(2, 3), "notes": ["a"]}, math.inf)
        search.write(progress, new_model=True)
    places["journal"].mkdir()
    with LabelJournal(places["journal"] / "answers.journal", SETTINGS, 6, 3) as journal:
        journal.screen([0, 1, 2])
        journal.answer([0, 2])
        journal.tell(0, 2)
    places["votes"].mkdir()
    np.save(places["votes"] / "votes.npy", np.array([[5, 3, 1], [9, 0, 0]]))
    teachers(places["teachers"]).fit()
    train_shadows(lambda members, _: np.tile(members[:, None], (1, 2)).astype(np.float32),
                  examples=6, count=2, seed=1, folder=places["shadows"])  # fmt: skip
    return places


def test_the_sound_folders_are_read(folders: dict[str, Path], tmp_path: Path) -> None:
    for name, reader in READERS.items():
        shutil.copytree(folders[name], tmp_path / name)
        reader(tmp_path / name)


# ---- what is done to a folder

ODD = st.sampled_from(
    [None, True, False, 0, -1, 1, 2**31, 2**63, 10**40, -(10**63), 0.5, 1e308, -0.0, "", "x", "nan",
     "\x1b[2J", "🦊" * 50, "../../x", [], [[]], {}, {"": 0}, [1] * 70, {"a": {"b": [None]}}]
)  # fmt: skip


def nodes(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = (
        tree if isinstance(tree, dict) else dict(enumerate(tree if isinstance(tree, list) else ()))
    )
    for key, one in inner.items():
        yield from nodes(one, (*path, key))


def changed(tree: Any, draw: Any) -> Any:
    """A copy of a document with one node replaced, removed, doubled or renamed."""
    path = draw(st.sampled_from(list(nodes(tree))))
    odd = draw(ODD)
    if not path:
        return odd
    tree = copy.deepcopy(tree)
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    way = draw(st.sampled_from(["replace", "replace", "remove", "rename", "wrap"]))
    if way == "replace":
        parent[path[-1]] = odd
    elif way == "wrap":
        parent[path[-1]] = [parent[path[-1]]]
    elif way == "rename" and isinstance(parent, dict):
        parent[str(odd)[:20]] = parent.pop(path[-1])
    else:
        del parent[path[-1]]
    return tree


def in_json(place: Path, draw: Any) -> None:
    try:
        tree = json.loads(place.read_text())
    except ValueError:
        return in_bytes(place, draw)
    place.write_text(json.dumps(changed(tree, draw)))
    return None


def in_document(place: Path, draw: Any) -> None:
    """Changes the document of a checkpoint, and makes its checksum right again."""
    try:
        document, tensors = checkpoint_file.read(place)
    except TacitError:
        return in_json(place, draw)
    tensors = {name: one for name, one in tensors.items() if draw(st.integers(0, 9))}
    with contextlib.suppress(TacitError):
        checkpoint_file.write(place, changed(document, draw), tensors)
    return None


def in_bytes(place: Path, draw: Any) -> None:
    content = bytearray(place.read_bytes())
    at = draw(st.integers(0, len(content)))
    way = draw(st.sampled_from(["flip", "cut", "insert", "repeat"]))
    if way == "flip" and at < len(content):
        content[at] ^= 1 << draw(st.integers(0, 7))
    elif way == "cut":
        del content[at:]
    elif way == "repeat":
        content += content[at:]
    else:
        content[at:at] = draw(st.binary(max_size=30))
    place.write_bytes(bytes(content))


def into_something_else(place: Path, draw: Any) -> None:
    others = sorted(one for one in place.parent.rglob("*") if one.is_file())
    target = draw(st.sampled_from([*map(str, others), "/dev/zero", "nowhere", ".", str(place)]))
    way = draw(st.sampled_from(["link", "pipe", "folder", "pickle", "copy", "gone"]))
    other = Path(target).read_bytes() if Path(target).is_file() else b""
    place.unlink()
    if way == "link":
        place.symlink_to(target)
    elif way == "pipe":
        os.mkfifo(place)
    elif way == "folder":
        place.mkdir()
    elif way == "pickle":
        place.write_bytes(pickle.dumps(Hostile()))
    elif way == "copy":
        place.write_bytes(other)


HARMS = [in_json, in_document, in_bytes, into_something_else]


def fuzz(sound: Path, reader: Callable[[Path], object], draw: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        shutil.copytree(sound, place)
        for _ in range(draw(st.integers(1, 2))):
            files = sorted(one for one in place.rglob("*") if one.is_file() and one.name != ".lock")
            if files:
                draw(st.sampled_from(HARMS))(draw(st.sampled_from(files)), draw)
        signal.alarm(300)  # kills whoever waits, on a machine however busy
        refusal = ""
        try:
            reader(place)
        except TacitError as error:
            refusal = str(error)
        finally:
            signal.alarm(0)
        assert "\n" not in refusal
        assert len(refusal) < 2000


@pytest.mark.parametrize("name", READERS)
@FEW
@given(data=st.data())
def test_any_folder_is_read_or_refused(name: str, folders: dict[str, Path], data: Any) -> None:
    fuzz(folders[name], READERS[name], data.draw)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
@MANY
@given(data=st.data())
def test_any_of_many_folders_is_read_or_refused(
    name: str, folders: dict[str, Path], data: Any
) -> None:
    fuzz(folders[name], READERS[name], data.draw)
