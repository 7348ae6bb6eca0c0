"""A prior for photographs that has never seen one: features learned from synthetic images alone.

By Tang et al. 2023, "Differentially Private Image Classification by Learning Priors from Random
Processes" (https://arxiv.org/abs/2306.06076): a network is first trained, without labels, to tell
images of ``tacit.models.style_images`` apart whatever their crop and colour, and the private images
then only fine-tune it. The loss is alignment and uniformity on the sphere (Wang & Isola 2020,
https://arxiv.org/abs/2005.10242).

    tacit prior build --device cuda --out DIR

makes the file ``prior.safetensors`` in minutes of a GPU; what is interrupted goes on. Nothing in it
depends on any data, so it is public, and costs no privacy.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit import __version__, _files, models
from tacit._validation import positive, probability, whole
from tacit.data.sets import cache as cache_folder
from tacit.data.sets import places
from tacit.errors import CheckpointError, InvalidArgument
from tacit.models.devices import device_named
from tacit.models.style_networks import style_images
from tacit.training import checkpoint_file

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

FILE: Final = "prior.safetensors"
RECORD: Final = "prior.json"
HELD_OUT: Final = 1024  # further images, by which the features are judged, and whitened
SEED_OF_HELD_OUT: Final = 1 << 32  # added to the seed, of which it is no neighbour
WARM_UP: Final = 500  # steps in which the rate rises
FALLING: Final = 0.4  # of all steps, at the end, in which it falls to 0
LOOK: Final = 10  # steps after which the clock is looked at
SHOWN: Final = 10.0  # seconds between reports
KEPT: Final = 60.0  # seconds between checkpoints
FOLDER: Final = "prior"  # of the data's folders
_GROUPS: Final = 16  # of the norms in the projection
_REMEDY: Final = "make it with: tacit prior build --device cuda"
_MOST: Final = {
    "depth": 100,
    "width": 32,
    "features": 4096,
    "projection": 1 << 14,
}  # whoever sends a file chooses them
_WEIGHTS, _MOMENTUM = "weights", "momentum"
_KEY: Final = "prior"  # of the file's metadata: one, so that its bytes are always the same


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PriorSettings:
    """What a prior is made by: the same settings on the same device make the same prior.

    Args:
        images: Synthetic images to learn from.
        size: Their sides, in pixels.
        view: The sides of the views that the network sees, in pixels.
        depth: Of the wide residual network.
        width: Of it.
        features: Dimensions of the sphere on which views are compared.
        projection: Width of two dense layers between the network's last maps and the sphere, as
            published; 0 for none, so that it is the mean of the maps that is compared. They are
            dropped afterwards: what tells crops and colours apart may stay in the layers below.
        passes: How often each image is seen, in two views each time.
        batch: Images of a step.
        lr: The rate of a step with 256 images; it grows with ``batch``.
        momentum: Of the optimizer.
        decay: Its weight decay.
        smallest: The least share of an image's area that a view shows.
        jitter: How far brightness, contrast, saturation and hue of a view may change.
        grey: How often a view has no colour.
        seed: Of the images, the first weights, the order and the views.
    """

    images: int = 105_000
    size: int = 64
    view: int = 32
    depth: int = 16
    width: int = 4
    features: int = 128
    projection: int = 4096
    passes: float = 200.0
    batch: int = 768
    lr: float = 0.12
    momentum: float = 0.9
    decay: float = 1e-4
    smallest: float = 0.08
    jitter: float = 0.4
    grey: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("images", 2), ("size", 8), ("view", 8), ("seed", 0), ("features", 1),
                            ("depth", 10), ("width", 1), ("projection", 0)):  # fmt: skip
            if whole(name, getattr(self, name), at_least=least) > (
                most := _MOST.get(name, 1 << 31)
            ):
                raise InvalidArgument(f"{name} must be at most {most}, got {getattr(self, name)}")
        for name in ("passes", "lr", "smallest"):
            positive(name, getattr(self, name))
        for name in ("momentum", "decay", "smallest", "jitter", "grey"):
            probability(name, getattr(self, name))
        if self.projection % _GROUPS:
            raise InvalidArgument(
                f"projection must be a multiple of {_GROUPS}, or 0, got {self.projection}"
            )
        if whole("batch", self.batch, at_least=2) > self.images:
            raise InvalidArgument(
                f"batch must be at most the {self.images:,} images, got {self.batch:,}"
            )

    @property
    def steps_a_pass(self) -> int:
        """Steps in which each image is seen once; a few are left out of each pass."""
        return self.images // self.batch

    @property
    def steps(self) -> int:
        """All of them."""
        return max(1, round(self.passes * self.steps_a_pass))

    @property
    def falls_from(self) -> int:
        """The step from which the rate falls."""
        return self.steps - math.ceil(self.steps * FALLING)

    def rate(self, step: int) -> float:
        """The learning rate: it rises, stays, and falls along half a cosine."""
        highest = self.lr * self.batch / 256.0
        if step < WARM_UP and step < self.falls_from:
            return highest * (step + 1) / WARM_UP
        if step < self.falls_from:
            return highest
        done = (step - self.falls_from) / max(1, self.steps - self.falls_from)
        return highest * 0.5 * (1.0 + math.cos(math.pi * done))

    def network(self) -> nn.Sequential:
        """The network, with fresh weights; its last layers are the sphere's."""
        network = models.wide_resnet(depth=self.depth, width=self.width, classes=self.features)
        return _with_projection(network, self) if self.projection else network


@final
@dataclass(frozen=True, slots=True)
class Prior:
    """A prior as its file has it: the weights of all layers but the last, and how it was made."""

    settings: PriorSettings
    weights: dict[str, Tensor]
    sha256: str


@final
@dataclass(frozen=True, slots=True)
class Progress:
    """How far a prior has come."""

    step: int
    steps: int
    loss: float
    views_per_second: float


def _with_projection(network: nn.Sequential, settings: PriorSettings) -> nn.Sequential:
    """Three dense layers on all places of the last maps, in place of one on their mean."""
    wide, side = settings.projection, -(-settings.view // 4)  # two stages halve the maps
    *body, _, last = network
    assert isinstance(last, nn.Linear)
    inputs = last.in_features * side**2
    layers: list[nn.Module] = [nn.Flatten()]
    for before in (inputs, wide):
        layers += [nn.Linear(before, wide, bias=False), nn.GroupNorm(_GROUPS, wide), nn.ReLU()]
    layers.append(nn.Linear(wide, settings.features))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=layer.in_features**-0.5)
    return nn.Sequential(*body, nn.Sequential(*layers))


# ---- views, all of them at once on the device


def further_views(settings: PriorSettings, device: torch.device) -> Iterator[Tensor]:
    """Views of synthetic images that the prior has not learned from, again and again."""
    images = style_images(
        min(HELD_OUT, settings.images), size=settings.size, device=device,
        seed=settings.seed + SEED_OF_HELD_OUT,
    )  # fmt: skip
    random = torch.Generator(device).manual_seed(settings.seed)
    while True:
        yield views(images, settings, random)


def views(images: Tensor, settings: PriorSettings, random: torch.Generator) -> Tensor:
    """A random view of each image, from −1 to 1: a part of it, perhaps mirrored, in other colours.

    As ``RandomResizedCrop``, ``RandomHorizontalFlip``, ``ColorJitter`` and ``RandomGrayscale`` of
    torchvision in law, but that saturation and hue are linear maps of the colour and light is
    limited once, at the end.
    """
    count, device = len(images), images.device

    def uniform(low: float, high: float) -> Tensor:
        return torch.rand(count, generator=random, device=device) * (high - low) + low

    area, aspect = uniform(settings.smallest, 1.0), uniform(-1.0, 1.0) * math.log(4 / 3)
    wide = (area * aspect.exp()).sqrt().clamp(max=1.0)
    high = (area * (-aspect).exp()).sqrt().clamp(max=1.0)
    mirrored = torch.where(uniform(0.0, 1.0) < 0.5, -1.0, 1.0)
    across, down = uniform(-1.0, 1.0) * (1.0 - wide), uniform(-1.0, 1.0) * (1.0 - high)
    nothing = torch.zeros_like(wide)
    place = torch.stack([wide * mirrored, nothing, across, nothing, high, down], 1).view(-1, 2, 3)
    # Of large images several points make a pixel, or what is fine there would be noise.
    finer = max(1, settings.size // (2 * settings.view))
    side = finer * settings.view
    grid = functional.affine_grid(place, [count, 3, side, side], align_corners=False)
    parts = functional.grid_sample(
        images.float() / 255.0, grid, padding_mode="reflection", align_corners=False
    )
    parts = functional.avg_pool2d(parts, finer) if finer > 1 else parts
    amount = settings.jitter
    brightness = uniform(1.0 - amount, 1.0 + amount)
    contrast = uniform(1.0 - amount, 1.0 + amount)[:, None, None, None]
    colourful = uniform(1.0 - amount, 1.0 + amount)
    colourful = torch.where(uniform(0.0, 1.0) < settings.grey, 0.0, colourful)
    turn = uniform(-amount, amount) * 2.0 * math.pi
    mixed = torch.einsum("ncd,ndhw->nchw", _colour(brightness, colourful, turn), parts)
    mean = mixed.mean((1, 2, 3), keepdim=True)
    light = ((mixed - mean) * contrast + mean).clamp(0.0, 1.0)
    return light * 2.0 - 1.0


def _colour(brightness: Tensor, colourful: Tensor, turn: Tensor) -> Tensor:
    """Maps of colours, (rows, 3, 3): turned around grey, then more or less far from it."""
    grey, flat, cross = _axes(turn.device)
    cos, sin = turn.cos()[:, None, None], turn.sin()[:, None, None]
    turned = cos * flat + sin * cross
    return brightness[:, None, None] * (grey + colourful[:, None, None] * turned)


@cache
def _axes(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The projections on grey and on what is not, and a quarter turn around grey."""
    grey = torch.full((3, 3), 1.0 / 3.0)
    cross = torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / 3.0**0.5
    return grey.to(device), (torch.eye(3) - grey).to(device), cross.to(device)


def loss_of(one: Tensor, other: Tensor) -> Tensor:
    """Alignment and uniformity of two views of each image, rows of norm 1 (Wang & Isola 2020).

    E‖x − y‖² + ½ Σ log E exp(−2‖x − x′‖²), the latter over the pairs of different images.
    """
    aligned = (one - other).square().sum(1).mean()
    return aligned + 0.5 * (_uniformity(one) + _uniformity(other))


def _uniformity(rows: Tensor) -> Tensor:
    squares: Tensor = (2.0 - 2.0 * rows @ rows.T).clamp(min=0.0)
    own = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    apart = (-2.0 * squares).masked_fill(own, -math.inf)
    total: Tensor = apart.flatten().logsumexp(0) - math.log(len(rows) * (len(rows) - 1))
    return total


# ---- training


def build(
    out: str | os.PathLike[str],
    settings: PriorSettings | None = None,
    *,
    device: str | torch.device = "auto",
    seconds: float | None = None,
    compiled: bool | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Path | None:
    """Makes a prior in the folder ``out``, or goes on with the one there.

    Args:
        out: The folder. It holds checkpoints until the end, and then ``prior.safetensors``.
        settings: How it is made; left out, the published size. A prior that was begun goes on with
            its own: ``passes`` alone may change, until the learning rate begins to fall.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        seconds: When to stop, at the latest; the next call goes on.
        compiled: Whether the network is compiled; left out, on a GPU.
        report: Called every few seconds.

    Returns: the file, or None if there is more to do.

    Guarantee: everything in the file follows from the settings, on this device: no data is read.
    """
    began, chosen, place = time.monotonic(), settings or PriorSettings(), device_named(device)
    folder = Path(out)
    ends = math.inf if seconds is None else began + positive("seconds", seconds)
    try:
        with _files.held(folder):
            return _built(folder, chosen, place, ends, compiled, report or (lambda _: None))
    except OSError as error:
        raise CheckpointError(
            f"the prior cannot be kept in {folder}: {error.strerror or error}"
        ) from None


def _built(
    folder: Path,
    chosen: PriorSettings,
    place: torch.device,
    ends: float,
    compiled: bool | None,
    report: Callable[[Progress], None],
) -> Path | None:
    if (folder / FILE).exists():
        raise InvalidArgument(f"{folder} holds a finished prior; name another folder")
    on_gpu = place.type == "cuda"
    course = _Course(chosen, place, compiled=on_gpu if compiled is None else compiled)
    course.restore(folder)
    images = style_images(chosen.images, size=chosen.size, seed=chosen.seed, device=place)
    with _repeatable():
        course.run(images, folder, ends, report)
    return _finish(folder, course) if course.step == chosen.steps else None


@contextmanager
def _repeatable() -> Iterator[None]:
    """Convolutions whose sums have one order: a GPU then agrees with itself."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


@final
class _Course:
    """One training: the network, its optimizer and its step.

    Every random number of a step follows from the seed and the step's number, so that nothing but
    weights, momentum and the number has to be kept.
    """

    def __init__(self, settings: PriorSettings, device: torch.device, *, compiled: bool) -> None:
        self.settings, self.device = settings, device
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(settings.seed)
            self.network: nn.Module = settings.network()
        self.network.to(device)
        if device.type == "cuda":
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=settings.lr, momentum=settings.momentum,
            weight_decay=settings.decay,
        )  # fmt: skip
        self.step = 0
        self.pieces: list[dict[str, Any]] = []  # of each call its last step, its seconds and where
        self._forward: Any = torch.compile(self.network) if compiled else self.network

    def run(
        self, images: Tensor, folder: Path, ends: float, report: Callable[[Progress], None]
    ) -> None:
        """Steps until the end or until ``ends``, with a checkpoint every minute and at the end."""
        clock = shown = saved = time.monotonic()
        begun = before = self.step
        for rows in self._batches():
            loss = self._take(images[rows])
            self.step += 1
            if self.step % LOOK and self.step < self.settings.steps:
                continue  # the device works on while the next steps are prepared
            value, now = _finite(loss), time.monotonic()
            if now - shown >= SHOWN:
                fast = 2 * self.settings.batch * (self.step - before) / (now - shown)
                report(Progress(self.step, self.settings.steps, value, fast))
                shown, before = now, self.step
            if now >= ends:
                break
            if now - saved >= KEPT:
                self.save(folder)
                saved = now
        self.pieces.append(
            {"from": begun, "to": self.step, "seconds": round(time.monotonic() - clock, 1),
             "device": _device(self.device), "torch": str(torch.__version__)}
        )  # fmt: skip
        self.save(folder)

    def _batches(self) -> Iterator[Tensor]:
        """Which images the steps that are left see: in each pass all of them, in another order."""
        chosen = self.settings
        order, shuffled = torch.empty(0), -1
        for step in range(self.step, chosen.steps):
            turn, at = divmod(step, chosen.steps_a_pass)
            if turn != shuffled:
                drawn = np.random.default_rng((chosen.seed, turn)).permutation(chosen.images)
                order, shuffled = torch.from_numpy(drawn).to(self.device), turn
            yield order[at * chosen.batch : (at + 1) * chosen.batch]

    def _take(self, images: Tensor) -> Tensor:
        """One step; its loss stays on the device."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate(self.step)
        random = torch.Generator(self.device).manual_seed(self.settings.seed * 2**32 + self.step)
        both = torch.cat([views(images, self.settings, random) for _ in range(2)])
        one, other = self._on_sphere(self._forward, both).chunk(2)
        loss = loss_of(one, other)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def _on_sphere(self, forward: Any, pictures: Tensor) -> Tensor:
        """The features as rows of norm 1, computed in bfloat16 on a GPU."""
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            pictures = pictures.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=on_gpu):
            features = forward(pictures)
        return functional.normalize(features.float(), dim=1)

    def found(self) -> float:
        """The share of new images of which one view is nearest to the other, among all of them."""
        seen = further_views(self.settings, self.device)
        with torch.no_grad():
            one, other = (self._on_sphere(self.network, next(seen)) for _ in range(2))
        nearest = (one @ other.T).argmax(1)
        return float((nearest == torch.arange(len(one), device=self.device)).double().mean())

    # ---- what is kept: two files, each small enough to be carried between machines

    def save(self, folder: Path) -> None:
        """Writes weights and momentum; those of earlier steps go once both are there."""
        state = self.optimizer.state
        momentum = {
            name: state[one].get("momentum_buffer", torch.zeros_like(one))
            for name, one in self.network.named_parameters()
        }
        document = {"settings": asdict(self.settings), "step": self.step, "pieces": self.pieces}
        for part, tensors in ((_WEIGHTS, self.network.state_dict()), (_MOMENTUM, momentum)):
            plain = {name: one.detach().cpu().contiguous() for name, one in tensors.items()}
            checkpoint_file.write(folder / f"{part}-{self.step}.safetensors", document, plain)
        for part in (_WEIGHTS, _MOMENTUM):
            for old in folder.glob(f"{part}-*.safetensors"):
                if old.name != f"{part}-{self.step}.safetensors":
                    old.unlink()

    def restore(self, folder: Path) -> None:
        """Goes on from the last checkpoint, if there is one."""
        kept = {part: _steps_kept(folder, part) for part in (_WEIGHTS, _MOMENTUM)}
        both = kept[_WEIGHTS] & kept[_MOMENTUM]
        if not both:
            return
        step = max(both)
        document, weights = checkpoint_file.read(folder / f"{_WEIGHTS}-{step}.safetensors")
        _, momentum = checkpoint_file.read(folder / f"{_MOMENTUM}-{step}.safetensors")
        self._check_same(folder, document["settings"], step)
        self.network.load_state_dict(weights)
        if step:
            for name, one in self.network.named_parameters():
                buffer = torch.empty_like(one).copy_(momentum[name])
                self.optimizer.state[one]["momentum_buffer"] = buffer
        self.step, self.pieces = step, list(document["pieces"])

    def _check_same(self, folder: Path, before: dict[str, Any], step: int) -> None:
        """Refuses other settings; ``passes`` may change while the rate does not show it."""
        own = asdict(self.settings)
        other = [name for name in own if before.get(name) != own[name]]
        if other == ["passes"]:
            began = replace(self.settings, passes=float(before["passes"]))
            if step <= min(began.falls_from, self.settings.falls_from):
                return
        if other:
            raise InvalidArgument(
                f"{other[0]} must be {before.get(other[0])!r} as the prior in {folder} has it, got "
                f"{own[other[0]]!r}; go on as it was begun, or name another folder"
            )


def _steps_kept(folder: Path, part: str) -> set[int]:
    found = (one.stem.removeprefix(f"{part}-") for one in folder.glob(f"{part}-*.safetensors"))
    return {int(number) for number in found if number.isdecimal()}


def _finite(loss: Tensor) -> float:
    """The loss, once the device has come that far."""
    value = float(loss)
    if not math.isfinite(value):
        raise InvalidArgument(f"lr must be smaller: the loss has become {value}")
    return value


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


# ---- the file


def _finish(folder: Path, course: _Course) -> Path:
    """Writes the prior and its record, and removes the checkpoints."""
    settings = course.settings
    content = to_bytes(course.network, settings)
    record = {
        "what": "weights learned from synthetic images alone; made by tacit prior build",
        "sha256": hashlib.sha256(content).hexdigest(),
        "settings": asdict(settings),
        "steps": settings.steps,
        "found": round(course.found(), 4),
        "pieces": course.pieces,
        "tacit": __version__,
    }
    _files.put(folder / FILE, content)
    _files.put(folder / RECORD, (json.dumps(record, indent=1) + "\n").encode())
    for part in (_WEIGHTS, _MOMENTUM):
        (folder / f"{part}-{course.step}.safetensors").unlink()
    return folder / FILE


def to_bytes(network: nn.Module, settings: PriorSettings) -> bytes:
    """The file's content: all layers but the last in half precision, and the settings."""
    from safetensors.torch import save  # noqa: PLC0415 - for files only

    kept = {name: one.detach().half().cpu().contiguous() for name, one in _body(network).items()}
    content: bytes = save(kept, metadata={_KEY: json.dumps(asdict(settings), sort_keys=True)})
    return content


def read(path: str | os.PathLike[str]) -> Prior:
    """The prior in a file.

    Guarantee: nothing in the file is run. Whoever can write it can choose the weights: compare its
    SHA-256 with the one that was published, or build it again.
    """
    place = Path(path)
    metadata, tensors = checkpoint_file.load_tensors(place)
    try:
        plain = _files.parse_json(metadata[_KEY])
        settings = PriorSettings(**{"projection": 0, **plain})  # files of before had none
        with torch.device("meta"):  # shapes, and no memory
            wanted = {name: one.shape for name, one in _body(settings.network()).items()}
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{place} is no prior of tacit's: {checkpoint_file.one_line(error)}"
        ) from None
    if {name: one.shape for name, one in tensors.items()} != wanted:
        raise CheckpointError(f"{place} is no prior of tacit's: its weights have other shapes")
    digest = hashlib.sha256(_files.read(place, most=_files.LARGEST_PART)).hexdigest()
    weights = {name: one.float() for name, one in tensors.items()}
    return Prior(settings, weights, digest)


def found(named: str = "") -> Prior:
    """The prior in the file that was named, or else in ``$TACIT_DATA`` or the cache."""
    if named:
        if not Path(named).is_file():
            raise InvalidArgument(
                f"prior must be a file that is there, got {named!r}; {_REMEDY}, or set prior=none"
            )
        return read(named)
    looked = [place / FOLDER / FILE for place in places(None)]
    for path in looked:
        if path.is_file():
            return read(path)
    raise InvalidArgument(
        f"the prior is in none of {', '.join(str(path) for path in looked)}; {_REMEDY}, or name "
        "its file with prior=FILE"
    )


def home() -> Path:
    """Where a prior is built unless said otherwise, and found again: in the cache."""
    return cache_folder() / FOLDER


def _body(network: nn.Module) -> dict[str, Tensor]:
    """All weights but those of the last layer, which each task has its own."""
    last = f"{len(list(network.children())) - 1}."
    return {name: one for name, one in network.state_dict().items() if not name.startswith(last)}
