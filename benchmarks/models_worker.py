"""One part of `models_gpu.py`: a model of the table trained beside its oracle, or 2,000 lots.

It needs the repository's root on its path: the models and the oracle are those of the tests.
"""

import contextlib
import math
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from tests.training.clipping import networks, oracle
from tests.training.clipping.cases import TABLE, Case
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import tacit
from models_yardstick import SAME, judged, lot_of
from replay_counts import counted
from tacit.errors import UnsupportedModel

BY_NAME = {case.name: case for case in TABLE}
EXACT = 1e-5  # of sums, relatively: that of tests/training/clipping/test_table.py
ROUNDING = 1e-6  # what a released norm may exceed the clip by, relatively
QUIET = 1e-12  # a noise multiplier whose noise is below the rounding of any sum
ULPS = 2.0  # between the weights and what the optimizer's rule makes of the released mean
MOVE = 0.01  # how far a step takes the weights, of their size: so that old ones would show
SAFE = {"unused parameter"}  # what `tacit.private` refuses though its clipping could serve it
MODELS = ("MLP", "convolutions", "tokens")


@dataclass(frozen=True)
class Way:
    """How a model of the table is trained: on how many records, in which lots and batches."""

    says: str
    examples: int
    lot_size: int
    steps: int
    batch: Literal["as in the table", "auto"]
    resumed_after: int | None = None


WAYS = (
    Way("lots of several batches, as large as in the table", 16, 6, 14, "as in the table"),
    Way("small lots, some empty, saved and resumed in the middle", 12, 2, 30, "auto", 14),
)


def part(piece: tuple[Any, ...]) -> dict[str, Any]:
    """A part by what it is: ("row", name, device) or ("lots", model, compiled, lots, device)."""
    warnings.simplefilter("ignore")  # of torch's compiler, of cuDNN: that something could be faster
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    kind, *given = piece
    started = time.perf_counter()
    found = row(*given) if kind == "row" else many_lots(*given)
    return found | {"seconds": time.perf_counter() - started}


# ---- a row of the table


@dataclass
class Half:
    """What the steps in bf16 came to beside PyTorch in the same arithmetic: see the yardstick."""

    plain: float = 0.0  # how far a weight's sum was from PyTorch's, of its records' norms,
    itself: float = 0.0  # and PyTorch's from the oracle's
    coarse: int = 0  # steps with a weight that is neither's


@dataclass
class Seen:
    """What the steps of a row came to."""

    tolerance: float
    steps: int = 0
    sizes: list[int] = field(default_factory=list)
    spoilt: int = 0  # lots with a record whose gradient is not finite
    off: float = 0.0  # of the released sums, in units of the records' norms together
    half: Half | None = None  # in bf16
    ulps: float = 0.0
    alone: int = 0  # lots with one record that counts,
    released: float = 0.0  # and the most that one released, in units of the clip
    faults: list[str] = field(default_factory=list)
    replays: dict[str, int] = field(default_factory=lambda: {"batches": 0, "updates": 0})
    explained: list[str] = field(default_factory=list)

    def fault(self, what: str) -> None:
        self.faults.append(f"step {self.steps}: {what}")

    def as_row(self) -> dict[str, Any]:
        return {
            "status": "FAILED" if self.faults else "passed", "faults": self.faults[:4],
            "steps": self.steps, "smallest": min(self.sizes), "largest": max(self.sizes),
            "empty": self.sizes.count(0), "spoilt": self.spoilt, "tolerance": self.tolerance,
            "off": self.off, "ulps": self.ulps, "released": self.released, "alone": self.alone,
            "replays": self.replays, "explained": list(dict.fromkeys(self.explained)),
            "half": None if self.half is None else asdict(self.half),
        }  # fmt: skip


def row(name: str, device: str) -> dict[str, Any]:
    """A model of the table, trained in each way beside the oracle."""
    case = BY_NAME[name]
    half = Half() if case.autocast is not None else None
    seen = Seen(EXACT if half is None else SAME, half=half)
    try:
        with counted(seen.replays):
            for way in WAYS:
                Trained(case, way, device, seen).run()
    except UnsupportedModel as refusal:
        return {
            "status": "refused",
            "allowed": case.may_refuse or name in SAFE,
            "message": str(refusal),
        }
    return seen.as_row()


class Trained:
    """A case on a device, trained in one way; every step is compared with the oracle's.

    The optimizer is SGD with a momentum of nearly nothing: what it keeps is the mean that was
    released, exactly, and the weights must have moved by its rate times that.
    """

    def __init__(self, case: Case, way: Way, device: str, seen: Seen) -> None:
        self.case, self.way, self.device, self.seen = case, way, torch.device(device), seen
        rows = case.draw(way.examples * case.views)
        self.inputs = tuple(x.view(way.examples, case.views, *x.shape[1:]) for x in rows)
        self.clip = self._clip()
        kept = self.inputs if case.views > 1 else tuple(x[:, 0] for x in self.inputs)
        self.data = TensorDataset(*(x.contiguous().to(self.device) for x in kept))
        batch = case.rows if way.batch == "as in the table" else way.batch
        self.performance = tacit.Performance(batch=batch, capture=True)
        self.plan = tacit.Plan(
            examples=way.examples, lot_size=way.lot_size, steps=way.steps, clip=self.clip,
            noise_multiplier=QUIET, views=case.views,
        )  # fmt: skip

    def _clip(self) -> float:
        """Between the norms: about half of the records are cut."""
        truth = oracle.truth_about(self.case, self._rows(range(self.way.examples)))
        norms = truth.norms[truth.finite & (truth.norms > 0)]
        return float(norms.median()) * (1 - 1e-3) if norms.numel() else 1.0

    def _rows(self, units: Any) -> tuple[Tensor, ...]:
        return tuple(x[list(units)].flatten(0, 1) for x in self.inputs)

    def run(self) -> None:
        """All steps of the plan: in one session, or in two with a checkpoint between them."""
        with tempfile.TemporaryDirectory(prefix="tacit-models-") as folder:
            path = Path(folder) / "run"
            stop = self.way.resumed_after
            if stop is None:
                self._session(None, None, path)
                return
            left = self._session(None, stop, path)
            found = self._session(path, None, path)
            if not all(torch.equal(one, found[name]) for name, one in left.items()):
                self.seen.fault("the weights that were saved did not come back")

    def _session(self, resume: Path | None, stop: int | None, path: Path) -> dict[str, Tensor]:
        """Steps up to ``stop``, then saved; the weights that they began or ended with."""
        case, model = self.case, self.case.model().to(self.device)
        trained = list(oracle.trainable(model).values())
        size = math.sqrt(sum(float(p.detach().double().square().sum()) for p in trained))
        self.rate = MOVE * size / self.clip
        optimizer = torch.optim.SGD(trained, lr=self.rate, momentum=QUIET)
        seen, drawn = self.seen, list[list[int]]()
        dp = tacit.private(
            model, optimizer, self.plan, self.data, resume=resume, performance=self.performance
        )
        draw = dp._sampler.draw

        def noted() -> Any:
            units = draw()
            drawn.append(units.tolist())
            return units

        dp._sampler.draw = noted  # type: ignore[method-assign]
        losses = partial(_losses, case, model)
        found = state(model) if resume else {}
        with dp:
            for lot in dp.lots():
                before = state(model)
                dp.accumulate(lot, losses)
                dp.step()
                kept = [optimizer.state[p]["momentum_buffer"] for p in trained]
                self._compare(drawn[-1], before, state(model), flat(kept))
                if stop is not None and dp.steps_taken == stop:
                    dp.save(path)
                    break
            lines = dp.explain().splitlines()
            seen.explained += [one for one in lines if "replayed" in one or "recorded" in one]
        return found or state(model)

    def _compare(
        self, units: list[int], before: dict[str, Tensor], after: dict[str, Tensor], mean: Tensor
    ) -> None:
        """A step beside the oracle's: the released sum, and how the weights moved."""
        case, seen, clip = self.case, self.seen, self.clip
        seen.steps += 1
        seen.sizes.append(len(units))
        released = mean * self.way.lot_size
        if seen.half is None:
            truth = oracle.truth_about(case, self._rows(units), before)
            self._beside_truth(truth, released)
        else:
            truth = self._beside_pytorch(units, before, released)
        finite = int(truth.finite.sum())
        seen.spoilt += finite < len(units)
        share = float(released.norm()) / clip
        if not share <= finite + ROUNDING * max(1, finite):
            seen.fault(f"{finite} records released {share:.8f} times the clip")
        if finite == 1:
            seen.alone += 1
            seen.released = max(seen.released, share)
        names = truth.names
        moved = self._moved(flat([before[n] for n in names]), flat([after[n] for n in names]), mean)
        seen.ulps = max(seen.ulps, moved)
        if not moved <= ULPS:
            seen.fault(f"weights off by {moved:.1f} roundings from the released mean")

    def _beside_truth(self, truth: oracle.Truth, released: Tensor) -> None:
        """The table's tolerance, of the records' norms together: their sum may cancel."""
        seen, clip, records = self.seen, self.clip, len(truth.gradients)
        apart = float((released - truth.clipped_sum(clip)).norm())
        size = float(truth.contributions(clip).norm(dim=1).sum())
        if not apart <= (seen.tolerance * size if size else ROUNDING * clip):
            seen.fault(f"of {records} records, the sum is off by {apart:.2e} of {size:.2e}")
        if size and math.isfinite(apart):
            seen.off = max(seen.off, apart / size)

    def _beside_pytorch(
        self, units: list[int], before: dict[str, Tensor], released: Tensor
    ) -> oracle.Truth:
        """Of bf16 the yardstick is PyTorch in bf16: weight by weight, on the same device."""
        case, seen, rows = self.case, self.seen, self._rows(units)
        assert seen.half is not None
        lot = lot_of(case, rows, before, self.clip, str(self.device), seed=seen.steps)
        found = judged(lot, released, {name: before[name].numel() for name in lot.truth.names})
        seen.off = max(seen.off, found.off)
        seen.half.plain = max(seen.half.plain, found.plain)
        seen.half.itself = max(seen.half.itself, found.itself)
        seen.half.coarse += bool(found.coarse)
        for fault in found.faults:
            seen.fault(f"of {len(units)} records, {fault}")
        return lot.truth

    def _moved(self, before: Tensor, after: Tensor, mean: Tensor) -> float:
        """How far the weights are from where SGD takes them, in roundings of their precision."""
        expected = before - self.rate * mean
        largest = torch.stack([before.abs(), after.abs(), (self.rate * mean).abs()]).amax(0)
        rounding = torch.finfo(self.case.dtype).eps * largest.clamp(min=1e-30)
        return float(((after - expected).abs() / rounding).max())


def _losses(case: Case, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """The losses of a batch; of several views of a record each row takes its own."""
    if case.views == 1:
        return case.call(model, batch)
    at = torch.arange(len(batch[0]), device=batch[0].device)
    return case.call(model, tuple(x[at, at % case.views] for x in batch))


def state(model: nn.Module) -> dict[str, Tensor]:
    return {n: v.detach().to("cpu", copy=True) for n, v in model.state_dict().items()}


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([one.detach().to("cpu", torch.float64).flatten() for one in tensors])


# ---- thousands of lots


def many_lots(kind: str, compiled: bool, lots: int, device: str) -> dict[str, Any]:
    """Poisson lots of a small model: what is compiled after the first 50, and memory taken."""
    torch.manual_seed(0)
    model, x = made(kind)
    place = torch.device(device)
    model, x, y = model.to(place), x.to(place), torch.randint(5, (len(x),)).to(place)
    used = torch.compile(model) if compiled else model
    plan = tacit.Plan(examples=len(x), lot_size=32, steps=lots, noise_multiplier=1.0, clip=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=place.type == "cuda")
    performance = tacit.Performance(capture=True, compile=compiled)
    compilations, taken, replays = Compilations(), {}, {"batches": 0, "updates": 0}
    dp = tacit.private(model, optimizer, plan, TensorDataset(x, y), performance=performance)
    losses = partial(_row_losses, used)
    with counted(replays), dp:
        for lot in dp.lots():
            dp.accumulate(lot, losses)
            dp.step()
            if lot.step + 1 == 50:
                compilations.begin()
            if lot.step + 1 in (100, lots):
                taken[str(lot.step + 1)] = memory(place)
        explained = [one for one in dp.explain().splitlines() if "replayed" in one]
    return {
        "lots": dp.steps_taken, "compiled": compiled, "replays": replays, "memory": taken,
        "recompilations": compilations.since(), "explained": explained,
    }  # fmt: skip


def _row_losses(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


class Tokens(nn.Module):
    """A small transformer with a tied head, classified by the mean of its places."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = networks.Gpt(50, 16, 12), nn.Linear(50, 5)

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.out(self.inner(ids).mean(1))
        return scores


def made(kind: str) -> tuple[nn.Module, Tensor]:
    """A model and the inputs of its records."""
    if kind == "MLP":
        return nn.Sequential(nn.Linear(60, 64), nn.ReLU(), nn.Linear(64, 5)), torch.randn(2000, 60)
    if kind == "convolutions":
        net = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * 16, 5),
        )  # fmt: skip
        return net, torch.randn(2000, 3, 8, 8)
    return Tokens(), torch.randint(50, (2000, 12))


class Compilations:
    """Counts what torch's compiler and Triton compile."""

    def __init__(self) -> None:
        self._kernels = 0
        with contextlib.suppress(ImportError):  # Triton is an optional dependency
            from triton import knobs  # noqa: PLC0415

            knobs.compilation.listener = self._note
        self._before = self._now()

    def _note(self, **_: Any) -> None:
        self._kernels += 1

    def _now(self) -> dict[str, int]:
        from torch._dynamo.utils import counters  # noqa: PLC0415 - it takes its time

        return {
            "graphs": int(counters["stats"]["unique_graphs"]),
            "frames": int(counters["frames"]["total"]),
            "Triton kernels": self._kernels,
        }

    def begin(self) -> None:
        self._before = self._now()

    def since(self) -> dict[str, int]:
        return {name: count - self._before[name] for name, count in self._now().items()}


def memory(device: torch.device) -> dict[str, int]:
    """Bytes: what torch has reserved and given out on the device, and what the process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    found = {"resident": pages * 4096}
    if device.type == "cuda":
        torch.cuda.synchronize()
        found |= {
            "reserved": torch.cuda.memory_reserved(), "allocated": torch.cuda.memory_allocated(),
        }  # fmt: skip
    return found
