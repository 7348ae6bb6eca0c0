"""Two real processes that train together, as replicas and in pieces (FSDP2), come to what one does.

Seeded lots and noise are the same for any number of processes. So one process alone says what
the weights must be, to rounding, and to the bit where noise is exact.
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, final
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.utils.data import Dataset, Subset, TensorDataset

from tacit.auditing.replay.forbidden.charges import ledger
from tacit.auditing.replay.forbidden.small_run import (
    CLASSES,
    DELTA,
    WIDTH,
    forked,
    row_loss,
    rows,
    small_plan,
)
from tacit.auditing.replay.rank_subject import free_port, join, leave
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.watch import seeded
from tacit.errors import (
    BudgetExceeded,
    InvalidArgument,
    LostRank,
    ProtocolError,
    UnsupportedModel,
)
from tacit.training.correlation import Banded, Buffered, InverseBanded
from tacit.training.distributed.agreement import data_hash
from tacit.training.distributed.world import leads as leading
from tacit.training.performance import Performance
from tacit.training.sampling import Allocation
from tacit.training.session import private
from tacit.training.styles import AdaptiveQuantile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tacit.training.plan import Plan
    from tacit.training.session import Session

_RANKS, _ROWS = 2, 24
_CLOSE = 1e-6  # of the weights: sums are added up in another order
_SEED = 3
_PATIENCE = 100.0  # seconds, for a machine that has much else to do


@final
class _Network(nn.Module):
    """Layers that FSDP gathers one by one, with a table that is seen as a view of its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 7), nn.Linear(7, CLASSES)
        self.places = nn.Embedding(7, 1)
        self.limit = nn.Linear(1, 1, bias=False)
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(7))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        places = self.places(torch.arange(7, device=x.device))[:, 0]
        hidden = torch.tanh(self.first(x)) * self.scale + places
        result: Tensor = self.second(self.limit(hidden.unsqueeze(2)).squeeze(2))
        return result


@final
class _Few(nn.Module):
    """A layer, and a limit for which there is no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.limit = nn.Linear(WIDTH, CLASSES), nn.Parameter(torch.zeros(CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return torch.maximum(self.layer(x), self.limit)


def _whole(model: nn.Module) -> nn.Module:
    return model


def _in_pieces(model: nn.Module, shape: tuple[int, ...] = (_RANKS,)) -> nn.Module:
    """The model as a user spreads it: each layer by itself, and the rest."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - it takes its time
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    names = {1: ("pieces",), 2: ("copies", "pieces")}[len(shape)]
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for child in model.children():
        fully_shard(child, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _in_copies(model: nn.Module) -> nn.Module:
    return _in_pieces(model, (_RANKS, 1))


def _wrapped(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


@final
@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run that any number of processes can do; ``spread`` is how these hold the model."""

    build: Callable[[], nn.Module] = _Network
    spread: Callable[[nn.Module], nn.Module] = _whole
    plan: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    data: Callable[[], Dataset[Any]] = lambda: TensorDataset(*rows(_ROWS))
    loss: Callable[[nn.Module, Any], Tensor] = row_loss
    kept: Path | None = None  # after the second step
    resume: Path | None = None
    batch: int = 4
    capture: bool | None = None

    def session(self, rank: int, **options: Any) -> tuple[Session, nn.Module]:
        """A session of its own for this process; only rank 0 has the right first weights."""
        alike = rank == 0 or self.spread in (_in_pieces, _in_copies)
        with seeded(5 if alike else 6):
            model = self.build()
        spread = model if options.pop("alone", False) else self.spread(model)
        given = {"unsafe_seed": _SEED, **self.options, **options}
        pace = Performance(batch=self.batch, workers=0, patience=_PATIENCE, capture=self.capture)
        optimizer = torch.optim.AdamW([p for p in spread.parameters() if p.requires_grad], 0.05)
        dp = private(
            spread, optimizer, self.made(), self.data(), resume=self.resume, performance=pace,
            **given,
        )  # fmt: skip
        return dp, spread

    def made(self) -> Plan:
        """The plan: lots of which a process sometimes has no record."""
        return small_plan(**{"examples": _ROWS, "lot_size": 9, "steps": 3, **self.plan})

    def __call__(self, rank: int, **options: Any) -> Tensor:
        """Trains, and gives the weights as one vector, the same on every rank."""
        dp, model = self.session(rank, **options)
        with dp:
            for lot in dp.lots():
                dp.accumulate(lot, lambda batch: self.loss(model, batch))
                dp.step()
                if self.kept is not None and dp.steps_taken == 2:
                    dp.save(self.kept)
            dp.explain()
        return weights(model)


def weights(model: nn.Module) -> Tensor:
    """The parameters as one vector, gathered where they are in pieces."""
    found = [p.detach() for p in model.parameters()]
    plain = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in found]
    return torch.cat([one.double().flatten() for one in plain])


@cache
def _meet() -> bool:
    """Whether two processes find each other on this machine at all, without a run of tacit's."""
    if not distributed.is_available():
        return False
    port = free_port()

    def met(rank: int) -> bytes:
        join(rank, _RANKS, port, _PATIENCE)
        try:
            distributed.barrier()
        finally:
            leave()
        return b"met"

    other, own = forked(lambda: met(1)), b""
    with suppress(RuntimeError):
        own = met(0)
    return own == other() == b"met"


def _nothing(check: str) -> Finding:
    return Finding("ranks", check, True, "two processes do not find each other here: not checked")


def together(
    work: Callable[[int], Sequence[Tensor]], *, launched: bool = False
) -> tuple[Tensor, Tensor]:
    """What ``work`` comes to as rank 0, in this process, and as rank 1, in another: two vectors.

    They find each other before, or are ``launched`` as by torchrun, and the session sees to it.
    """
    port = free_port()

    def as_rank(rank: int) -> Tensor:
        said = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        said |= {"RANK": str(rank), "WORLD_SIZE": str(_RANKS)}
        if not launched:
            join(rank, _RANKS, port, _PATIENCE)
        try:
            with patch.dict(os.environ, said if launched else {}), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "FSDP2-wrapped module")  # nobody changes a view
                return torch.cat([one.double().flatten() for one in work(rank)])
        finally:
            leave()

    other = forked(lambda: bytes(as_rank(1).numpy().tobytes()))
    try:
        own = as_rank(0)
    finally:
        sent = other()
    return own, torch.from_numpy(np.frombuffer(sent, dtype=np.float64).copy())


def _compared(check: str, runs: Mapping[str, _Run]) -> Finding:
    """Whether the weights of all runs are on both ranks those of one process."""
    if not _meet():
        return _nothing(check)
    wrong, worst = [], 0.0
    alone = [run(0, alone=True) for run in runs.values()]
    here, there = together(lambda rank: [run(rank) for run in runs.values()])
    if not torch.equal(here, there):
        wrong.append("the two ranks have other weights")
    parts = here.split([len(one) for one in alone]) if len(here) == sum(map(len, alone)) else ()
    for (name, run), expected, found in zip(runs.items(), alone, parts, strict=True):
        off = float((found - expected).abs().max() / expected.abs().max().clamp(min=1.0))
        worst = max(worst, off)
        if not off <= (0.0 if run.plan.get("noise") == "exact" else _CLOSE):
            wrong.append(f"{name}: the weights are {off:.3g} from those of one process")
    said = f"{len(runs)} runs on two ranks come to what they do on one, to {worst:.2g}"
    return Finding("ranks", check, not wrong, "; ".join(wrong) or said, (("off", worst),))


@final
class _Records(Dataset[Any]):
    """Records of all kinds of values, one of which is never the same."""

    def __len__(self) -> int:
        return _ROWS

    def __getitem__(self, at: int) -> dict[str, Any]:
        x, y = rows(_ROWS)
        chance = np.random.default_rng().normal()
        named = {"name": str(at), "kinds": (int, None), "chance": chance}
        return {"x": x[at].numpy(), "y": y[at], "at": at, **named}


def _collated(records: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
    x = torch.stack([torch.from_numpy(one["x"]) for one in records])
    return x, torch.stack([one["y"] for one in records])


def replicas() -> Finding:
    """Two replicas come to the weights of one process, whatever the noise, clip and unit."""
    by_user = {"unit": "user", "examples": 12, "lot_size": 5, "examples_per_user": 2}
    with tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        path = Path(folder) / "replicas"
        runs = {
            "fast noise": _Run(kept=path, plan={"lot_size": 3}),
            "secure noise": _Run(plan={"noise": "secure"}, spread=_wrapped),
            "exact noise": _Run(plan={"noise": "exact"}, data=_part),
            "a moving clip": _Run(plan={"clipping": AdaptiveQuantile(count_noise=3.0)}),
            "users, in double precision": _Run(
                plan=by_user, options={"groups": np.arange(_ROWS) % 12},
                build=lambda: _Network().double(),
                data=lambda: TensorDataset(rows(_ROWS)[0].double(), rows(_ROWS)[1]),
            ),
            "resumed": _Run(resume=path, plan={"lot_size": 3}),
            "other records": _Run(data=_Records, options={"collate": _collated}),
        }  # fmt: skip
        return _compared("replicas", runs)


def _part() -> Dataset[Any]:
    return Subset(TensorDataset(*rows(_ROWS + 3)), range(_ROWS))


def pieces() -> Finding:
    """Parameters in pieces come to the same; so do copies of pieces, and resumed runs.

    All of them, once a process: torch's meshes do not outlive the processes' group.
    """
    with tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        path = Path(folder) / "pieces"
        runs = {
            "fast noise": _Run(spread=_in_pieces, kept=path, plan={"lot_size": 3}, batch=1),
            "exact noise": _Run(spread=_in_pieces, plan={"noise": "exact", "steps": 2}),
            "secure noise, in copies": _Run(spread=_in_copies, plan={"noise": "secure"}),
            "an operation without a rule": _Run(build=_Few, spread=_in_pieces),
            "mixed noise": _Run(
                spread=_in_pieces,
                plan={"correlation": Banded(2), "noise": "exact", "steps": 4, "lot_size": 12},
            ),
            "resumed": _Run(spread=_in_pieces, resume=path, plan={"lot_size": 3}, batch=1),
        }
        return _compared("pieces", runs)


def one_piece() -> Finding:
    """One process whose parameters are one piece comes to the same, recorded and not.

    It is another process: torch's meshes do not outlive the processes' group.
    """
    runs = [
        _Run(spread=partial(_in_pieces, shape=(1,)), plan={"steps": 8}, capture=capture)
        for capture in (False, True)
    ]
    runs.append(replace(runs[0], build=_Few, plan={"noise": "exact"}))
    port = free_port()

    def trained() -> bytes:
        join(0, 1, port, _PATIENCE)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "FSDP2-wrapped module")  # nobody changes a view
                return torch.cat([run(0) for run in runs]).numpy().tobytes()
        finally:
            leave()

    there = forked(trained)
    expected = torch.cat([run(0, alone=True) for run in runs])
    found = torch.from_numpy(np.frombuffer(there(), dtype=np.float64).copy())
    off = math.inf
    if len(found) == len(expected):
        off = float((found - expected).abs().max() / expected.abs().max().clamp(min=1.0))
    said = f"{len(runs)} runs of one piece come to what they do plainly, to {off:.2g}"
    return Finding("ranks", "one piece", off <= _CLOSE, said, (("off", off),))


def mixed() -> Finding:
    """Each rank's share of noise that is correlated over the steps comes to that of one process."""
    fed, averaged = Banded(2), Buffered(2, scales=(-0.06, -0.2), decays=(0.9, 0.4))
    common = {"steps": 4, "lot_size": 12}
    with tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        path, other = Path(folder) / "mixed", Path(folder) / "whole"
        secure, exact = ({"noise": one, **common} for one in ("secure", "exact"))
        runs = {
            "exact noise, fed back": _Run(plan={"correlation": fed, **exact}, kept=path),
            "resumed": _Run(plan={"correlation": fed, **exact}, resume=path),
            "secure noise, averaged": _Run(plan={"correlation": averaged, **secure}, kept=other),
            "averages resumed": _Run(plan={"correlation": averaged, **secure}, resume=other),
            "exact noise, drawn again": _Run(plan={"correlation": InverseBanded(2), **exact}),
            "fast noise, averaged": _Run(plan={"correlation": averaged, **common}),
        }
        return _compared("mixed", runs)


# ---- charges and failures


def charged() -> Finding:
    """Rank 0 charges each step once, for both; what was lost is lost to both, and both claim it.

    Of 6 steps in epochs of 2, the third is lost. It was the first of an epoch, whose other step is
    charged and left out: so 4 are taken, and all 6 are in the ledger.
    """
    if not _meet():
        return _nothing("charges")
    wrong: list[str] = []
    with ledger() as books, tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        budget, path = books.open("ranks", 1e5, DELTA), Path(folder) / "charged"
        first = _Run(plan={"steps": 6, "sampling": Allocation(), "lot_size": 12}, kept=path)

        def work(rank: int) -> list[Tensor]:
            own = {"budget": budget if rank == 0 else None, "unsafe_seed": None}
            leads = leading()
            crashed, model = first.session(rank, **own)
            with suppress(_Enough), crashed:
                _trained(crashed, model, path, crash_after=3)
            dp, model = replace(first, resume=path).session(rank, **own)
            with dp:
                _trained(dp, model)
            claim = dp.statement(DELTA)
            said = [crashed.steps_taken, dp.steps_taken, dp.steps_lost, claim.steps_taken]
            known = claim.charge is not None and claim.ledger is not None
            facts = [*said, len(dp.world.describe()) > 0, known, leads == leading() == (rank == 0)]
            return [torch.tensor(facts), weights(model)]

        here, there = together(work, launched=True)
        granted = books.refresh().budgets["ranks"].granted
    facts = here[:7].tolist()
    if not torch.equal(here, there) or facts != [3, 4, 2, 4, 1, 1, 1]:
        wrong.append(f"ranks say {facts} and {there[:7].tolist()}, or drift apart")
    if granted != 6:
        wrong.append(f"{granted} of 6 steps are in the ledger")
    said = "; ".join(wrong) or "6 steps are charged once: 4 taken, and 2 lost, on both ranks"
    return Finding("ranks", "charges", not wrong, said)


class _Enough(Exception):
    """A run is to end here, as in a crash."""


def _trained(
    dp: Session, model: nn.Module, path: Path | None = None, *, crash_after: int | None = None
) -> None:
    for lot in dp.lots():
        dp.accumulate(lot, lambda batch: row_loss(model, batch))
        dp.step()
        if path is not None and dp.steps_taken == 2:
            dp.save(path)
        if dp.steps_taken == crash_after:
            raise _Enough


def refused() -> Finding:
    """What ranks do not agree on, or one of them fails at, ends both, each with its reason."""
    if not _meet():
        return _nothing("refusals")
    shuffled = _Run(data=lambda: TensorDataset(*(one.flip(0) for one in rows(_ROWS))))
    attempts: dict[str, tuple[Callable[[int], object], tuple[type[Exception], ...]]] = {
        "data sets in another order": (
            lambda rank: (shuffled if rank else _Run())(rank), (InvalidArgument, InvalidArgument)),
        "a release that nobody steps": (_release, (ProtocolError, ProtocolError)),
        "a budget of another rank": (_charge_another, (InvalidArgument, InvalidArgument)),
        "too small a budget": (_charge_too_much, (BudgetExceeded, BudgetExceeded)),
        "layers in columns": (_columns, (UnsupportedModel, UnsupportedModel)),
        "a rank that fails": (_fail, (LostRank, _Enough)),
    }  # fmt: skip
    names, wrong = list(attempts), []

    def work(rank: int) -> list[Tensor]:
        ended = [
            _ends_with(partial(attempt, rank), kind[rank]) for attempt, kind in attempts.values()
        ]
        return [torch.tensor(ended)]

    for rank, ended in enumerate(together(work)):
        wrong += [
            f"rank {rank}: {name}" for name, right in zip(names, ended, strict=True) if not right
        ]
    said = "; ".join(wrong) or f"{len(names)} runs end on both ranks, each with its reason"
    return Finding("ranks", "refusals", not wrong, said)


def _fail(rank: int) -> None:
    dp, model = _Run().session(rank)
    with dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: row_loss(model, batch))
            if rank == 1 and dp.steps_taken == 1:
                raise _Enough
            dp.step()


def _release(rank: int) -> None:
    dp, model = _Run().session(rank)
    with dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: row_loss(model, batch))
            dp.release()


def _charge_another(rank: int) -> None:
    with ledger() as books:
        own = books.open("ranks", 1e5, DELTA) if rank else None
        dp, _ = _Run().session(rank, budget=own, unsafe_seed=None)
        with dp:
            raise _Enough


def _charge_too_much(rank: int) -> None:
    with ledger() as books:
        own = None if rank else books.open("ranks", 1e-3, DELTA)
        dp, model = _Run().session(rank, budget=own, unsafe_seed=None)
        with dp:
            _trained(dp, model)


def _ends_with(attempt: Callable[[], object], kind: type[Exception]) -> bool:
    try:
        attempt()
    except kind:
        return True
    except Exception:
        return False
    return False


def _columns(rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.tensor import Shard, distribute_tensor  # noqa: PLC0415

    def spread(model: Any) -> nn.Module:
        mesh = init_device_mesh("cpu", (_RANKS,))
        cut = distribute_tensor(model.first.weight.detach(), mesh, [Shard(1)])
        model.first.weight = nn.Parameter(cut)
        made: nn.Module = model
        return made

    _Run(spread=spread)(rank)


# ---- that ranks have the same data


class _Files(Dataset[Any]):
    """Records that are read from files: their places, labels and what lies beside them."""

    def __init__(self, folder: str, names: list[str], labels: Any, held: Any = None) -> None:
        self.files, self.labels = [Path(folder) / name for name in names], labels
        self.cache: list[Any] = [{"seen": object()} for _ in names]
        self.held, self.inner = held, TensorDataset(torch.arange(len(names)))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, at: int) -> Any:
        drawn = float(torch.rand(()))
        return {"x": np.full(3, at), "y": self.labels[at], "noise": drawn, "kept": self.held}


def same_data() -> Finding:
    """Data sets that differ in a file, a label or an order have different hashes, others do not."""
    names = [f"{at}.png" for at in range(90)]
    changed = [*names[:70], "other.png", *names[71:]]
    labels, other = list(range(90)), [*range(88), 89, 88]
    table = TensorDataset(torch.arange(6.0))
    cases: list[tuple[Any, Any, bool]] = [
        (_Files("/a", names, labels), _Files("/b/c", names, labels), True),
        (_Files("/a", names, labels), _Files("/a", changed, labels), False),
        (_Files("/a", names, labels), _Files("/a", names, other), False),
        (_Files("/a", names, np.array(labels)), _Files("/a", names, np.array(other)), False),
        (_Files("/a", names, torch.tensor(labels)),
         _Files("/a", names, torch.tensor(other)), False),
        (_Files("/a", names, labels, "x"), _Files("/a", names, labels, "y"), False),
        (_Files("/a", names, labels, [b"x", object]), _Files("/a", names, labels, [b"x", object]),
         True),
        (_Files("/a", names[:0], []), _Files("/b", names[:0], []), True),
        (Subset(table, [0, 2, 4]), Subset(table, [0, 4, 2]), False),
        (Subset(table, [0, 2]), Subset(table, [0, 2]), True),
        (table, TensorDataset(torch.arange(6.0) + 1e-7), False),
    ]  # fmt: skip
    wrong = [
        f"case {at + 1}"
        for at, (one, second, alike) in enumerate(cases)
        if (data_hash(one) == data_hash(second)) != alike
    ]
    said = ", ".join(wrong) or f"all {len(cases)} pairs of data sets"
    return Finding("ranks", "same data", not wrong, said)
