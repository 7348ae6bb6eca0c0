"""The scattering transform: fixed wavelet features of images, which no data was looked at for.

S₀ = x⋆φ, S₁ = |x⋆ψ|⋆φ and S₂ = ||x⋆ψ|⋆ψ'|⋆φ, with ψ Morlet wavelets in J scales and L directions
(ψ' of a coarser scale than ψ) and φ a Gaussian, each kept at every 2^J-th pixel (Bruna & Mallat
2013, "Invariant scattering convolution networks"). The paths stand in kymatio's order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.models.devices import full_precision

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Spectra = NDArray[np.float64]


__all__ = ["Scattering2d"]


class Scattering2d(nn.Module):
    """Scattering features up to order 2; it has no parameters.

    Args:
        height: of the images, in pixels; more than 2^J.
        width: likewise.
        J: how many scales: the coarsest has 2^J pixels.
        L: how many directions.

    Guarantee: entry i of the result depends on image i alone, and nothing is learned: the features
    of private images are as secret as the images, and computing them costs nothing.

    It works in full single precision whatever autocast and TF32 settings are on, and passes no
    gradients on to the images.

    >>> scattering = Scattering2d(28, 28)
    >>> scattering(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 1, 81, 7, 7])
    """

    def __init__(self, height: int, width: int, *, J: int = 2, L: int = 8) -> None:  # noqa: N803
        super().__init__()
        self.scales, self.angles = whole("J", J), whole("L", L)
        self.size = (_side("height", height, self.scales), _side("width", width, self.scales))
        top, bottom = _padding(self.size[0], self.scales)
        left, right = _padding(self.size[1], self.scales)
        self._padding = [left, right, top, bottom]
        padded = (self.size[0] + top + bottom, self.size[1] + left + right)
        for scale in range(self.scales):
            self.register_buffer(
                f"_window{scale}", _window(padded, scale, self.scales), persistent=False
            )
            spectra = wavelets(*padded, scale=scale, angles=self.angles)
            for level in range(max(scale, 1)):
                tiles = _tiles(coarser(spectra, level), scale - level)
                self.register_buffer(f"_wavelets{level}to{scale}", tiles, persistent=False)

    @property
    def paths(self) -> int:
        """How many features a channel has at each place: 1 + J·L + J(J−1)/2·L²; 81 by default."""
        return 1 + self.scales * self.angles + self.scales * (self.scales - 1) // 2 * self.angles**2

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of the result."""
        return self.size[0] // 2**self.scales, self.size[1] // 2**self.scales

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Features of shape (batch, channels, paths, height/2^J, width/2^J).

        Args:
            images: floating-point numbers of shape (batch, channels, height, width).
        """
        if images.ndim != 4 or tuple(images.shape[2:]) != self.size:
            raise InvalidArgument(
                f"images must have the shape (batch, channels, {self.size[0]}, {self.size[1]}), "
                f"got {tuple(images.shape)}"
            )
        if (
            images.shape[0] * images.shape[1] == 0
        ):  # a sample may be empty; torch.fft takes none such
            return images.new_zeros(*images.shape[:2], self.paths, *self.out_size).float()
        with full_precision(images.device.type):
            flat = images.flatten(0, 1).float().unsqueeze(1)
            features = self._features(functional.pad(flat, self._padding, mode="reflect"))
        return features.view(*images.shape[:2], self.paths, *self.out_size)

    def _features(self, padded: Tensor) -> Tensor:
        """Shape (images, paths, places) of images of shape (images, 1, height, width)."""
        spectrum = torch.fft.fft2(padded)
        zeroth, first, second = [self._averaged(padded, 0)], [], []
        for scale in range(self.scales):
            envelopes = self._envelopes(spectrum, 0, scale).squeeze(1)
            first.append(self._averaged(envelopes, scale))
            if scale + 1 < self.scales:
                second.append(self._second(envelopes, scale))
        return torch.cat(zeroth + first + second, dim=1)

    def _second(self, envelopes: Tensor, level: int) -> Tensor:
        """The paths that go on from one scale's envelopes, shape (images, L·(J−1−j)·L, places)."""
        spectrum = torch.fft.fft2(envelopes)
        coarser = range(level + 1, self.scales)
        found = [
            self._averaged(self._envelopes(spectrum, level, scale), scale) for scale in coarser
        ]
        return torch.cat(found, dim=2).flatten(1, 2)

    def _averaged(self, envelopes: Tensor, level: int) -> Tensor:
        window: Tensor = getattr(self, f"_window{level}")
        return envelopes.flatten(-2) @ window

    def _envelopes(self, spectrum: Tensor, level: int, scale: int) -> Tensor:
        """|x⋆ψ| for each direction of a scale, kept at every pixel that the scale needs.

        Of spectra (images, m, height, width) it makes (images, m, L, height/k, width/k). Keeping
        every k-th pixel adds up the spectrum's k×k tiles; real and imaginary parts, which lie side
        by side, are treated alike, for a wavelet's own spectrum is real.
        """
        bank: Tensor = getattr(self, f"_wavelets{level}to{scale}")
        height, width = bank.shape[-2:]
        numbers = torch.view_as_real(spectrum).flatten(-2).unsqueeze(2)
        tiles = [tile for row in numbers.split(height, dim=-2) for tile in row.split(width, dim=-1)]
        total = tiles[0] * bank[0]
        for tile, wavelet in zip(tiles[1:], bank[1:], strict=True):
            total.addcmul_(tile, wavelet)
        filtered = torch.fft.ifft2(torch.view_as_complex(total.unflatten(-1, (-1, 2))))
        # torch's own modulus of complex numbers takes four times as long on a CPU.
        squares: Tensor = filtered.real.square().addcmul_(filtered.imag, filtered.imag)
        return squares.sqrt_()


def _side(name: str, value: int, scales: int) -> int:
    side = whole(name, value)
    if max(_padding(side, scales)) >= side:
        raise InvalidArgument(f"{name} must be more than 2^J = {2**scales} pixels, got {value!r}")
    return side


def _padding(size: int, scales: int) -> tuple[int, int]:
    """How many pixels are mirrored before and after, up to the next multiple of 2^J but one."""
    step = 2**scales
    missing = (size // step + 2) * step - size
    return missing // 2, missing - missing // 2


def _window(padded: tuple[int, int], level: int, scales: int) -> Tensor:
    """The average of a flattened image, as a matrix of shape (pixels, places)."""
    rows, columns = (averaging(size, level=level, scale=scales) for size in padded)
    product = torch.einsum("ph,qw->hwpq", torch.from_numpy(rows), torch.from_numpy(columns))
    return product.flatten(2).flatten(0, 1).float()


def _tiles(spectra: Spectra, halvings: int) -> Tensor:
    """Filters cut into k×k tiles, each number twice: shape (k², L, height/k, 2·width/k)."""
    k = 1 << halvings
    tiles = torch.from_numpy(spectra).unflatten(2, (k, -1)).unflatten(1, (k, -1))
    in_order: Tensor = tiles.permute(1, 3, 0, 2, 4).flatten(0, 1)
    return (in_order / k**2).repeat_interleave(2, dim=-1).float()


# ---- the filters: Morlet wavelets and a Gaussian, in Fourier space
#
# The family is that of Bruna & Mallat (2013) as kymatio 0.3 (Andreux et al. 2020) writes it down,
# so that features can be compared path by path: at scale j the envelope is 0.8·2^j pixels wide
# along the wave and L/4 times that across it, and the wave turns by 3π/4·2^−j radians a pixel.
# Everything here is in double precision, and is computed once.


WIDTH = 0.8  # of the envelope at scale 0, in pixels
FREQUENCY = 3 * math.pi / 4  # of the wave at scale 0, in radians a pixel
PI = 3.1415  # what kymatio divides envelopes by; with π proper all would be 3e-5 smaller
COPIES = range(-2, 3)  # an envelope is wrapped around the image's edges this many times


def wavelets(height: int, width: int, *, scale: int, angles: int) -> Spectra:
    """The Fourier transforms of one scale's wavelets, shape (angles, height, width).

    They are real, for a wavelet at −u is the conjugate of that at u; and 0 at frequency 0.
    """
    return np.stack([_wavelet(height, width, scale, at, angles) for at in range(angles)])


def _wavelet(height: int, width: int, scale: int, at: int, angles: int) -> Spectra:
    angle = (int(angles / 2 - 1) - at) * math.pi / angles
    slant = 4 / angles
    envelope = _gabor(height, width, WIDTH * 2**scale, angle, 0.0, slant)
    wave = _gabor(height, width, WIDTH * 2**scale, angle, FREQUENCY / 2**scale, slant)
    morlet = wave - wave.sum() / envelope.sum() * envelope
    return np.fft.fft2(morlet).real


def _gabor(
    height: int, width: int, sigma: float, angle: float, frequency: float, slant: float
) -> NDArray[np.complex128]:
    """exp(−(a² + slant²·b²)/2σ² + i·frequency·a), a along ``angle`` and b across, wrapped."""
    total = np.zeros((height, width), dtype=np.complex128)
    rows, columns = np.mgrid[:height, :width]
    for down in COPIES:
        for right in COPIES:
            y, x = rows + down * height, columns + right * width
            along = math.cos(angle) * y + math.sin(angle) * x
            across = math.cos(angle) * x - math.sin(angle) * y
            exponent = -(along**2 + (slant * across) ** 2) / (2 * sigma**2)
            total += np.exp(exponent + 1j * frequency * along)
    return total * slant / (2 * PI * sigma**2)


def averaging(size: int, *, level: int, scale: int) -> Spectra:
    """The matrix that averages one axis and keeps every 2^scale-th pixel but the outermost two.

    The axis had ``size`` pixels in the padded image, and has been halved ``level`` times since. The
    window is a Gaussian of 0.8·2^(scale−1) pixels; as it is a product of one Gaussian an axis, the
    average of an image U is A·U·Bᵀ.
    """
    sigma = WIDTH * 2 ** (scale - 1)
    place = np.arange(size)
    window = sum(np.exp(-((place + at * size) ** 2) / (2 * sigma**2)) for at in COPIES)
    spectrum = np.fft.fft(window / math.sqrt(2 * PI * sigma**2)).real
    left = coarser(spectrum[None], level)[0]
    circulant = np.fft.ifft(left[:, None] * np.fft.fft(np.eye(len(left)), axis=0), axis=0).real
    return circulant[:: 2 ** (scale - level)][1:-1]


def coarser(spectra: Spectra, level: int) -> Spectra:
    """Filters for images that were halved ``level`` times: of the frequencies, those left."""
    for axis in range(1, spectra.ndim):
        size = spectra.shape[axis]
        kept = size >> level
        high = np.arange(kept - kept // 2, size - kept // 2)
        spectra = np.delete(spectra, high, axis=axis)
    return spectra
