"""The small networks of the papers whose results the recipes are measured by.

Each is a plain ``nn.Sequential`` with fresh weights; ``torch.manual_seed`` before the call makes
them reproducible. None has a layer that mixes examples, so ``tacit.private`` takes all of them.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import functional

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.models.filters import standardised

Activation = Literal["tanh", "relu"]


def abadi_mlp(inputs: int = 60, hidden: int = 1000, classes: int = 10) -> nn.Sequential:
    """One hidden layer of ReLUs, on principal components (Abadi et al. 2016, section 5.2).

    >>> abadi_mlp()
    Sequential(
      (0): Linear(in_features=60, out_features=1000, bias=True)
      (1): ReLU()
      (2): Linear(in_features=1000, out_features=10, bias=True)
    )
    """
    return nn.Sequential(
        nn.Linear(whole("inputs", inputs), whole("hidden", hidden)),
        nn.ReLU(),
        nn.Linear(hidden, whole("classes", classes)),
    )


def abadi_cnn(channels: int = 3, classes: int = 10) -> nn.Sequential:
    """Two convolutions and two dense layers for crops of 24×24 (Abadi et al. 2016, section 5.3).

    >>> sum(weights.numel() for weights in abadi_cnn().parameters())
    1144138
    """
    return nn.Sequential(
        nn.Conv2d(whole("channels", channels), 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 6 * 6, 384), nn.ReLU(),
        nn.Linear(384, 384), nn.ReLU(),
        nn.Linear(384, whole("classes", classes)),
    )  # fmt: skip


def tempered_cnn(
    channels: int = 1, classes: int = 10, *, activation: Activation = "tanh"
) -> nn.Sequential:
    """The network for 28×28 of Papernot et al. 2020, "Tempered sigmoid activations", table 1.

    A tempered sigmoid s·σ(T·x)−o bounds what a layer hands on, and with it the gradients that are
    to be clipped; tanh is the one with s=2, T=2, o=1.

    >>> sum(weights.numel() for weights in tempered_cnn().parameters())
    26010
    """
    return nn.Sequential(
        nn.Conv2d(whole("channels", channels), 16, 8, stride=2, padding=2), _unit(activation),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2), _unit(activation),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32), _unit(activation),
        nn.Linear(32, whole("classes", classes)),
    )  # fmt: skip


def scatter_linear(
    channels: int = 1, classes: int = 10, *, size: int = 28, groups: int | None = 27
) -> nn.Sequential:
    """A linear model of scattering features (Tramèr & Boneh 2021, "ScatterNet + linear").

    Args:
        channels: of the images: 1 for grey, 3 for colour.
        classes: how many there are.
        size: of the images, in pixels.
        groups: groups of the normalisation, which looks at one example at a time and is free;
            None leaves it out.

    >>> import torch
    >>> scatter_linear()(torch.zeros(2, 1, 81, 7, 7)).shape
    torch.Size([2, 10])
    """
    paths, places = _features(channels, size)
    return nn.Sequential(
        *_normalised(paths, groups),
        nn.Flatten(),
        nn.Linear(paths * places**2, whole("classes", classes)),
    )


def scatter_cnn(
    channels: int = 1, classes: int = 10, *, size: int | None = None, groups: int | None = 27
) -> nn.Sequential:
    """A small CNN on scattering features (Tramèr & Boneh 2021, "ScatterNet + CNN", appendix).

    Of grey images of 28×28 pixels it makes two convolutions of 16 and 32 channels and a dense
    layer of 32; of colour images of 32×32, two of 64 around a max pool.

    Args:
        channels: of the images: 1 for grey, 3 for colour.
        classes: how many there are.
        size: of the images, in pixels; by default 28 for grey and 32 for colour.
        groups: groups of the normalisation, or None for none.

    >>> import torch
    >>> scatter_cnn(3)(torch.zeros(2, 3, 81, 8, 8)).shape
    torch.Size([2, 10])
    """
    grey = whole("channels", channels) == 1
    paths, places = _features(channels, size if size is not None else (28 if grey else 32))
    left = (places + 1) // 2 if grey else places // 2
    if grey:
        head = [
            nn.Conv2d(paths, 16, 3, stride=2, padding=1), nn.Tanh(),
            nn.Conv2d(16, 32, 3, padding=1), nn.Tanh(),
            nn.Flatten(),
            nn.Linear(32 * left**2, 32), nn.Tanh(),
            nn.Linear(32, whole("classes", classes)),
        ]  # fmt: skip
    else:
        head = [
            nn.Conv2d(paths, 64, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1), nn.Tanh(),
            nn.Flatten(),
            nn.Linear(64 * left**2, whole("classes", classes)),
        ]  # fmt: skip
    return nn.Sequential(*_normalised(paths, groups), *head)


def _features(channels: int, size: int) -> tuple[int, int]:
    """How many features a place has, all channels together, and how many places a side."""
    scattering = 81  # 1 + J·L + J(J−1)/2·L² with J=2, L=8
    places = whole("size", size) // 4
    if places < 2:
        raise InvalidArgument(f"size must be at least 8 pixels, got {size!r}")
    return whole("channels", channels) * scattering, places


def _normalised(paths: int, groups: int | None) -> list[nn.Module]:
    """What makes one axis of channels and paths, and normalises it without weights."""
    flat: list[nn.Module] = [nn.Flatten(1, -3)]  # of maps with that axis it makes the same again
    if groups is None:
        return flat
    if paths % whole("groups", groups):
        raise InvalidArgument(
            f"groups must divide the {paths} features of a place, as 27 does, got {groups!r}"
        )
    return [*flat, nn.GroupNorm(groups, paths, affine=False)]


def _unit(activation: Activation) -> nn.Module:
    match activation:
        case "tanh":
            return nn.Tanh()
        case "relu":
            return nn.ReLU()
    raise InvalidArgument(f"activation must be 'tanh' or 'relu', got {activation!r}")


# ---- wide residual networks
#
# "Unlocking high-accuracy differentially private image classification through scale": WRN-16-4 of
# Zagoruyko & Komodakis (2016) with group normalisation in place of batch normalisation, which
# would mix examples, put after the activation; and convolutions whose weights are standardised
# (Qiao et al. 2019), with a gain and a bias of their own.


def wide_resnet(
    *, depth: int = 16, width: int = 4, groups: int = 16, channels: int = 3, classes: int = 10
) -> nn.Sequential:
    """A wide residual network for images of 32×32 or so, with fresh weights.

    Args:
        depth: 6·n+4 for n blocks in each of the three stages.
        width: how many times 16, 32 and 64 channels the stages have.
        groups: of the group normalisation.
        channels: of the images.
        classes: how many there are.

    >>> network = wide_resnet()
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    blocks, odd = divmod(whole("depth", depth, at_least=10) - 4, 6)
    if odd:
        raise InvalidArgument(f"depth must be 10, 16, 22, … (6·n+4), got {depth!r}")
    if 16 % whole("groups", groups):
        raise InvalidArgument(f"groups must divide the 16 channels of the stem, got {groups!r}")
    layers: list[nn.Module] = [StandardisedConv2d(whole("channels", channels), 16, 3)]
    before = 16
    for stride, base in ((1, 16), (2, 32), (2, 64)):
        after = base * whole("width", width)
        layers.append(_Block(before, after, groups=groups, stride=stride, first=True))
        layers += [_Block(after, after, groups=groups) for _ in range(blocks - 1)]
        before = after
    head = _dense(before, whole("classes", classes))
    return nn.Sequential(*layers, *_prepared(before, groups), _Mean(), head)


class StandardisedConv2d(nn.Module):
    """A convolution that keeps its size, by filters of mean 0 and norm ``gain``.

    W' = gain·(W − mean W)/√(N·var W) over the N weights of each filter, so that W' neither depends
    on W's scale nor passes on the mean of what comes in.

    >>> layer = StandardisedConv2d(3, 16, 3)
    >>> layer.standardised().flatten(1).norm(dim=1)[:2].detach().round(decimals=4)
    tensor([1., 1.])
    """

    def __init__(self, inputs: int, outputs: int, size: int, *, stride: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, size, size))
        self.gain = nn.Parameter(torch.ones(outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.stride = stride
        nn.init.normal_(self.weight, std=(inputs * size**2) ** -0.5)

    def standardised(self) -> Tensor:
        """The filters as they are used."""
        return standardised(self.weight, self.gain)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (rows, outputs, height/stride, width/stride)."""
        around = self.weight.shape[-1] // 2
        return functional.conv2d(images, self.standardised(), self.bias, self.stride, around)


def with_plain_filters(network: nn.Sequential) -> nn.Sequential:
    """The network with each standardised convolution replaced by one of the filters that it used.

    It computes what it did. Learning that goes on from there moves the filters themselves: to first
    order the directions are those of weight and gain (and of the mean), at a rate of gain/‖W‖.

    >>> network, images = wide_resnet(depth=10, width=1), torch.rand(2, 3, 32, 32)
    >>> before = network(images)
    >>> torch.allclose(with_plain_filters(network)(images), before, atol=1e-5)
    True
    """
    for path, layer in list(network.named_modules()):
        if isinstance(layer, StandardisedConv2d):
            outputs, inputs, size, _ = layer.weight.shape
            plain = nn.Conv2d(inputs, outputs, size, stride=layer.stride, padding=size // 2)
            with torch.no_grad():
                plain.weight.copy_(layer.standardised())
                plain.bias.copy_(layer.bias)  # type: ignore[union-attr]
            holder, _, name = path.rpartition(".")
            setattr(network.get_submodule(holder), name, plain)
    return network


class _Block(nn.Module):
    """Two convolutions beside a way past them; the first block of a stage has one on that way."""

    def __init__(
        self, inputs: int, outputs: int, *, groups: int, stride: int = 1, first: bool = False
    ) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_prepared(inputs, groups), StandardisedConv2d(inputs, outputs, 3, stride=stride),
            *_prepared(outputs, groups), StandardisedConv2d(outputs, outputs, 3),
        )  # fmt: skip
        self.past = (
            nn.Sequential(
                *_prepared(inputs, groups), StandardisedConv2d(inputs, outputs, 1, stride=stride)
            )
            if first
            else nn.Identity()
        )

    def forward(self, images: Tensor) -> Tensor:
        total: Tensor = self.residual(images) + self.past(images)
        return total


class _Mean(nn.Module):
    """The mean over all places."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))


def _prepared(channels: int, groups: int) -> tuple[nn.Module, nn.Module]:
    """The norm comes after the activation, as De et al. have it."""
    return nn.ReLU(), nn.GroupNorm(groups, channels)


def _dense(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.trunc_normal_(layer.weight, std=inputs**-0.5, a=-2 * inputs**-0.5, b=2 * inputs**-0.5)
    nn.init.zeros_(layer.bias)
    return layer


# ---- a small CNN on scattering maps


class MapCnn(nn.Module):
    """A convolution of single places (1×1), tanh, and a dense layer over all of them.

    A shallower head than the CNN of Tramèr & Boneh 2021 (two 3×3 convolutions on J = 2 maps). Maps
    that ``MultiScale.places`` made know their surroundings already, and weights that a larger
    window would need cost more in noise than they find.

    Args:
        channels: of the maps.
        size: height and width of the maps.
        width: channels of the convolution.
        classes: how many there are.

    >>> MapCnn(512, size=3)(torch.zeros(5, 512, 3, 3)).shape
    torch.Size([5, 10])
    """

    def __init__(self, channels: int, *, size: int, width: int = 128, classes: int = 10) -> None:
        super().__init__()
        inner = whole("width", width)
        self.convolution = nn.Conv2d(whole("channels", channels), inner, 1)
        self.last = nn.Linear(inner * whole("size", size) ** 2, whole("classes", classes))
        nn.init.zeros_(self.last.weight)

    def forward(self, maps: Tensor) -> Tensor:
        """Scores, shape (images, classes)."""
        scores: Tensor = self.last(torch.tanh(self.convolution(maps)).flatten(1))
        return scores


# ---- a small model of text: the next character from the few before it


class CharacterMlp(nn.Module):
    """One hidden layer over the last characters (after Bengio et al. 2003).

    Each place sees ``context`` characters and nothing else; before a text's beginning it sees
    zeros. All places of a text are computed at once. Characters stand for themselves as random
    codes, which are drawn once and not learned: they cost no privacy. With tanh, which is odd,
    contexts that have little in common have little to do with one another from the first step on.

    Args:
        symbols: how many characters there are.
        context: how many of the last ones are looked at.
        width: of the hidden layer.
        code: how many numbers a character becomes.

    >>> CharacterMlp()(torch.zeros(2, 50, dtype=torch.int64)).shape
    torch.Size([2, 50, 128])
    """

    def __init__(
        self, symbols: int = 128, *, context: int = 8, width: int = 128, code: int = 16
    ) -> None:
        super().__init__()
        self.context = whole("context", context)
        self.codes: Tensor
        self.register_buffer("codes", torch.randn(whole("symbols", symbols), whole("code", code)))
        self.hidden = nn.Linear(context * code, whole("width", width))
        self.last = nn.Linear(width, symbols)
        nn.init.normal_(self.hidden.weight, std=2.0 / (context * code) ** 0.5)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of what follows each place, shape (texts, places, symbols)."""
        codes = F.pad(F.embedding(tokens, self.codes), (0, 0, self.context - 1, 0))
        seen = codes.unfold(1, self.context, 1).flatten(2)
        scores: Tensor = self.last(torch.tanh(self.hidden(seen)))
        return scores
