"""Features of images in which neighbours are looked for: of one image at a time, and so free."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from torch import nn

from tacit import models
from tacit.transfer.clusters import cluster_centres, medoids
from tacit.transfer.hog import hog

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.models.synthetic import Kind as Synthetic
    from tacit.transfer.students import Student

Kind: TypeAlias = Literal["pixels", "hog", "whitened-hog", "scattering"]
Images: TypeAlias = "NDArray[np.uint8]"
Rows: TypeAlias = "NDArray[np.float32]"
Maker: TypeAlias = "Callable[[Images], Rows]"

SYNTHETIC = 20_000  # images whose statistics whiten the scattering features
HOG_RIDGE = 3e-3
BLOCK = 4096  # images at a time: unwhitened, all of them would take too much memory


def maker(kind: Kind, like: Images, device: torch.device, *, keep: int) -> Maker:
    """What makes rows of images such as ``like``, which are public.

    ``"pixels"`` are measured from the image's own mean; ``"whitened-hog"`` is HOG whitened by the
    public images; ``"scattering"`` is whitened by statistics of synthetic images, as the scattering
    recipes' features are. The last two have ``keep`` features. All rows have norm 1.
    """
    channels, size = like.shape[1:3]
    match kind:
        case "pixels":
            return _pixels
        case "hog":
            return lambda images: _unit(hog(images, device=device))
        case "whitened-hog":
            return _whitened_hog(like, keep, device)
        case "scattering":
            return _scattering(channels, size, keep, device)


def of_student(student: Student, device: torch.device) -> Maker:
    """What makes rows of what a student's last layer sees: a student is public, and so they are."""
    model = student.model.eval()
    last = [one for one in model.modules() if isinstance(one, nn.Linear)][-1]

    @torch.no_grad()
    def rows(images: Images) -> Rows:
        seen: list[Tensor] = []
        hook = last.register_forward_pre_hook(lambda _, given: seen.append(given[0].cpu()))
        try:
            for start in range(0, len(images), BLOCK):
                model(torch.tensor(images[start : start + BLOCK]).to(device))
        finally:
            hook.remove()
        return _unit(torch.cat(seen).numpy())

    return rows


def questions(rows: Rows, count: int, seed: int, device: torch.device) -> NDArray[np.int64]:
    """Which public images to ask about: those in the middle of ``count`` clusters of all of them.

    Exactly ``count``, each once: where one image is in the middle of several clusters, the first
    images that are in the middle of none join them.
    """
    centres = cluster_centres(rows, count, seed, device=device)
    middle = medoids(rows, centres, device=device)
    others = np.setdiff1d(np.arange(len(rows)), middle)
    return np.concatenate([middle, others[: count - len(middle)]])


def _pixels(images: Images) -> Rows:
    rows = images.reshape(len(images), -1).astype(np.float32)
    return _unit(rows - rows.mean(axis=1, keepdims=True))


def _unit(rows: Rows) -> Rows:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: Rows = (rows / np.maximum(lengths, 1e-12)).astype(np.float32)
    return found


def _whitened_hog(public: Images, keep: int, device: torch.device) -> Maker:
    """Of SVHN's training images 100 neighbours so tell 80.8 %, and 79.2 % by plain HOG."""
    found = torch.from_numpy(hog(public, device=device))
    whitening = models.Whitening.of(
        found, power=1.0, ridge=HOG_RIDGE, keep=min(keep, found.shape[1])
    )
    return lambda images: whitening(torch.from_numpy(hog(images, device=device))).numpy()


@lru_cache(maxsize=1)  # the whitening takes longer than the features of a few images
def _scattering(channels: int, size: int, keep: int, device: torch.device) -> Maker:
    """As in the scattering recipes; of colours at one scale, for two make 26,000 features."""
    grey = channels == 1
    fine, coarse = (2, 3) if size >= 16 else (1, 1)
    scattering = models.MultiScale(
        size, channels=channels, scales=sorted({fine, coarse}) if grey else [coarse],
        exponent=1.0 if grey else 0.5, groups=31,
    ).to(device)  # fmt: skip
    whitening = models.Whitening.of(
        models.batched(scattering, _synthetic(channels, size), device=device),
        power=1.0 if grey else 0.5, ridge=1e-3 if grey else 1e-5, keep=keep,
    )  # fmt: skip

    def rows(images: Images) -> Rows:
        parts = [images[start : start + BLOCK] for start in range(0, len(images), BLOCK)]
        found = [whitening(models.batched(scattering, part, device=device)).cpu() for part in parts]
        return torch.cat(found).numpy()

    return rows


def _synthetic(channels: int, size: int) -> Images:
    """The same images for everyone: strokes and blobs, or what photographs are like."""
    kinds: tuple[Synthetic, Synthetic] = ("strokes", "blobs")
    if channels > 1:
        kinds = ("dead-leaves", "noise")
    each = [
        models.synthetic_images(SYNTHETIC // 2, size=size, channels=channels, kind=kind, seed=seed)
        for seed, kind in enumerate(kinds)
    ]
    return np.concatenate(each)
