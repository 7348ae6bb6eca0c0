# ruff: noqa: E501, E731 - a row of the table is one line, and a short build has no name
"""The table: small models, each with its data, its losses and the rules that should serve it.

It needs torch alone, so that `benchmarks/opacus_table.py` can put the same rows to Opacus.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from . import networks
from .networks import Attention, Bare, CellLoop, Lora, Recurrent, Through, TimeMajor, frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

Draw = Callable[[int, Generator], Tensor]
Losses = Callable[..., Tensor]

NAN, INF = float("nan"), float("inf")

# The rules' names as `uses` shows them: rename them here.
LINEAR, CONV, CONV_TRANSPOSE, MATMUL, EINSUM = (
    "linear",
    "conv",
    "conv_transpose",
    "matmul",
    "einsum",
)
EMBEDDING, EMBEDDING_BAG, PRELU, ELEMENTWISE = (
    "embedding",
    "embedding",
    "elementwise",
    "elementwise",
)
LAYER_NORM, RMS_NORM, GROUP_NORM = "layer_norm", "rms_norm", "group_norm"
INSTANCE_NORM, BATCH_NORM = "group_norm", "batch_norm"
RNN, LSTM, GRU = "linear", "linear", "linear"  # written out over time
FALLBACK = "fallback"


@dataclass(frozen=True, kw_only=True, eq=False)  # a case is itself alone, and so a cache's key
class Case:
    """One row of the table.

    Attributes:
        build: The model, in float32; the case's name seeds it.
        inputs: One drawing function per input; every input has its rows in dimension 0.
        losses: Called with the model and the inputs; gives one loss per row.
        rules: Rules that must be among those used.
        native: True where every operation must have a rule of its own, False where the fallback
            must serve one, None where either will do.
        may_refuse: The engine may refuse the model instead: a refusal is safe, a wrong norm is not.
        views: So many consecutive rows are one unit.
        spoilt: Rows of the first input that are overwritten with one value.
        time_major: The layers see (time, rows, ...): for Opacus, which has a switch for that.
        empty: PyTorch itself can run this model on no rows.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: tuple[Draw, ...]
    losses: Losses
    rules: frozenset[str] = frozenset()
    native: bool | None = True
    may_refuse: bool = False
    rows: int = 5
    views: int = 1
    autocast: torch.dtype | None = None
    dtype: torch.dtype = torch.float32
    spoilt: Mapping[int, float] = field(default_factory=dict)
    as_built: bool = False
    time_major: bool = False
    empty: bool = True

    @property
    def slug(self) -> str:
        """The name as it stands in a test's id."""
        return self.name.replace(", ", "-").replace(" ", "_")

    @property
    def seed(self) -> int:
        return zlib.crc32(self.name.encode())

    def model(self) -> nn.Module:
        """The same model at every call, its parameters moved off the special values 0 and 1."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            model = self.build()
            if not self.as_built:
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.add_(0.1 * torch.randn_like(parameter))
        return model.to(self.dtype)

    def draw(self, rows: int, *, other: bool = False) -> tuple[Tensor, ...]:
        """The batch, or another one that has nothing to do with it."""
        generator = Generator().manual_seed(self.seed + 1 + other)
        inputs = tuple(draw(rows, generator) for draw in self.inputs)
        inputs = tuple(x.to(self.dtype) if x.is_floating_point() else x for x in inputs)
        for row, value in self.spoilt.items():
            if row < rows and not other:
                inputs[0][row] = value
        return inputs

    def batch(self) -> tuple[Tensor, ...]:
        return self.draw(self.rows)

    def call(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        """The losses, under autocast where the case says so and the model is in float32."""
        if self.autocast is None or inputs[0].dtype == torch.float64:
            return self.losses(model, *inputs)
        with torch.autocast(inputs[0].device.type, self.autocast):
            return self.losses(model, *inputs)


# --- data


def floats(*shape: int) -> Draw:
    return lambda rows, generator: torch.randn(rows, *shape, generator=generator)


def ids(count: int, *shape: int) -> Draw:
    return lambda rows, generator: torch.randint(count, (rows, *shape), generator=generator)


def repeated(count: int, time: int) -> Draw:
    """Ids of which every row holds some more than once, and the padding index 0 at times."""

    def draw(rows: int, generator: Generator) -> Tensor:
        drawn = torch.randint(count, (rows, time), generator=generator)
        drawn[:, 1] = drawn[:, 0]
        drawn[::2, 2] = 0
        return drawn

    return draw


def lengths(longest: int) -> Draw:
    return lambda rows, generator: torch.randint(1, longest + 1, (rows,), generator=generator)


def hidden(time: int) -> Draw:
    """A padding mask: True at the end of a row, never everywhere."""
    return lambda rows, generator: torch.arange(time) >= lengths(time)(rows, generator)[:, None]


# --- losses


def wide(out: Tensor) -> Tensor:
    return out.float() if out.dtype in (torch.bfloat16, torch.float16) else out


def squared_error(model: nn.Module, *inputs: Tensor) -> Tensor:
    """The distance to a target that differs in every place, so that no gradient is symmetric."""
    return distance(model(*inputs))


def distance(out: Tensor) -> Tensor:
    flat = wide(out).reshape(out.shape[0], out.shape[1:].numel())
    target = torch.linspace(-1, 2, flat.shape[1], dtype=flat.dtype, device=flat.device)
    return (flat - target).square().sum(1)


def classified(model: nn.Module, x: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(wide(model(x)), label, reduction="none")


def next_token(model: nn.Module, tokens: Tensor) -> Tensor:
    logits = wide(model(tokens))[:, :-1].transpose(1, 2)
    return F.cross_entropy(logits, tokens[:, 1:], reduction="none").mean(1)


def with_penalty(model: nn.Module, x: Tensor) -> Tensor:
    return squared_error(model, x) + 0.5 * model.weight.square().sum()


def with_temperature(model: nn.Module, x: Tensor, label: Tensor) -> Tensor:
    logits = model.body(x) * model.temperature.exp()
    return F.cross_entropy(logits, label, reduction="none")


def to_centres(model: nn.Module, x: Tensor, label: Tensor) -> Tensor:
    return (model.body(x) - model.centres[label]).square().sum(1)


def root(model: nn.Module, x: Tensor) -> Tensor:
    """Finite everywhere, with a gradient of NaN where the model gives nothing but zeros."""
    return model(x).square().sum(1).sqrt()


# --- the rows of the table


def case(name: str, build: Callable[[], nn.Module], *inputs: Draw, rules: str | None = None,
         losses: Losses = squared_error, **options: object) -> Case:  # fmt: skip
    wanted = frozenset(rules.split()) if rules else frozenset()
    return Case(name=name, build=build, inputs=inputs, losses=losses, rules=wanted, **options)  # type: ignore[arg-type]


def linear_cases() -> list[Case]:
    tower = lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Linear(6, 3))
    return [
        case("linear 2-D", lambda: nn.Linear(5, 4), floats(5), rules=LINEAR),
        case("linear 2-D without bias", lambda: nn.Linear(5, 4, bias=False), floats(5), rules=LINEAR),
        case("linear 3-D", lambda: nn.Linear(5, 4), floats(3, 5), rules=LINEAR),
        case("linear 3-D, time equals rows", lambda: nn.Linear(5, 4), floats(5, 5), rules=LINEAR),
        case("linear 3-D, long", lambda: nn.Linear(2, 2), floats(20, 2), rules=LINEAR),
        case("linear 4-D without bias", lambda: nn.Linear(5, 4, bias=False), floats(2, 3, 5), rules=LINEAR),
        case("linear, weight frozen", _linear_bias_only, floats(3, 5), rules=LINEAR),
        case("linear, one row", lambda: nn.Linear(5, 4), floats(3, 5), rules=LINEAR, rows=1),
        case("mlp, in-place relu", tower, floats(5), ids(3), losses=classified, rules=LINEAR),
        case("functional linear", lambda: Bare(lambda m, x: F.linear(x, m.w, m.b), w=(3, 5), b=(3,)), floats(2, 5), rules=LINEAR),
        case("hugging face conv1d", lambda: networks.HuggingFaceConv1D(6, 4), floats(3, 4), rules=MATMUL),
        case("hugging face conv1d, time equals rows", lambda: networks.HuggingFaceConv1D(6, 4), floats(5, 4), rules=MATMUL),
        case("bilinear", lambda: nn.Bilinear(3, 4, 2), floats(3), floats(4), native=None),
        case("dropout at 0", lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.Linear(4, 2)), floats(4), rules=LINEAR),
        case("double precision", lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)), floats(5), rules=LINEAR, dtype=torch.float64),
    ]  # fmt: skip


def _linear_bias_only() -> nn.Module:
    layer = nn.Linear(5, 4)
    layer.weight.requires_grad_(requires_grad=False)
    return layer


def conv_cases() -> list[Case]:
    def conv1d(**options: object) -> Callable[[], nn.Module]:
        return lambda: nn.Conv1d(4, 6, 3, **options)  # type: ignore[arg-type]

    def conv2d(**options: object) -> Callable[[], nn.Module]:
        return lambda: nn.Conv2d(4, 6, 3, **options)  # type: ignore[arg-type]

    line, image = floats(4, 9), floats(4, 7, 6)
    return [
        case("conv1d", conv1d(), line, rules=CONV),
        case("conv1d, stride, dilation", conv1d(stride=2, dilation=2, padding=2), line, rules=CONV),
        case("conv1d, same", conv1d(padding="same", dilation=3), line, rules=CONV),
        case("conv1d, same, even kernel", lambda: nn.Conv1d(4, 6, 4, padding="same", dilation=2), line, rules=CONV),
        case("conv1d, causal", lambda: Through(lambda m, x: m.conv(F.pad(x, (2, 0))), conv=nn.Conv1d(4, 6, 3)), line, rules=CONV),
        case("conv1d, reflect", conv1d(padding=2, padding_mode="reflect"), line, rules=CONV),
        case("conv2d", conv2d(), image, rules=CONV),
        case("conv2d without bias", conv2d(bias=False, padding=1), image, rules=CONV),
        case("conv2d, channels equal rows", conv2d(), floats(4, 5, 5), rules=CONV, rows=4),
        case("conv2d, 1x1", lambda: nn.Conv2d(4, 6, 1), image, rules=CONV),
        case("conv2d, stride misses the edge", conv2d(stride=(2, 3)), image, rules=CONV),
        case("conv2d, unequal kernel", lambda: nn.Conv2d(4, 3, (2, 5), padding=(1, 2), dilation=(2, 1)), image, rules=CONV),
        case("conv2d, groups", conv2d(groups=2, padding=1), image, rules=CONV),
        case("conv2d, depthwise", lambda: nn.Conv2d(4, 8, 3, groups=4, bias=False), image, rules=CONV),
        case("conv2d, replicate", conv2d(padding=(1, 2), padding_mode="replicate"), image, rules=CONV),
        case("conv2d, circular", conv2d(padding=1, padding_mode="circular", groups=2), image, rules=CONV),
        case("conv2d, valid", conv2d(padding="valid"), image, rules=CONV),
        case("conv3d", lambda: nn.Conv3d(2, 4, (2, 3, 2), stride=(1, 2, 1), padding=1, groups=2), floats(2, 4, 5, 3), rules=CONV),
        case("conv_transpose1d", lambda: nn.ConvTranspose1d(4, 3, 3, stride=2), line, rules=CONV_TRANSPOSE),
        case("conv_transpose1d, groups", lambda: nn.ConvTranspose1d(4, 6, 3, groups=2, dilation=2), line, rules=CONV_TRANSPOSE),
        case("conv_transpose2d", lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), image, rules=CONV_TRANSPOSE),
        case("conv_transpose3d", lambda: nn.ConvTranspose3d(2, 3, 2, bias=False), floats(2, 3, 2, 3), rules=CONV_TRANSPOSE),
        case("conv2d, reused", lambda: Through(lambda m, x: m.conv(torch.tanh(m.conv(x))), conv=nn.Conv2d(2, 2, 3, padding=1)), floats(2, 4, 4), rules=CONV),
    ]  # fmt: skip


def embedding_cases() -> list[Case]:
    def table(**options: object) -> Callable[[], nn.Module]:
        return lambda: nn.Embedding(7, 3, **options)  # type: ignore[arg-type]

    def bag(**options: object) -> Callable[[], nn.Module]:
        return lambda: nn.EmbeddingBag(7, 3, **options)  # type: ignore[arg-type]

    def weighted(m: nn.Module, tokens: Tensor, weights: Tensor) -> Tensor:
        return m.bag(tokens, per_sample_weights=weights)

    return [
        case("embedding", table(), ids(7, 4), rules=EMBEDDING),
        case("embedding, one id a row", table(), ids(7), rules=EMBEDDING),
        case("embedding, repeated ids, padding", table(padding_idx=0), repeated(7, 5), rules=EMBEDDING),
        case("embedding, 3-D ids", table(padding_idx=2), ids(7, 2, 3), rules=EMBEDDING),
        case("embedding bag, sum", bag(mode="sum"), repeated(7, 5), rules=EMBEDDING_BAG),
        case("embedding bag, mean, padding", bag(mode="mean", padding_idx=0), repeated(7, 5), rules=EMBEDDING_BAG),
        case("embedding bag, offsets, sum", lambda: networks.RaggedBag("sum"), repeated(7, 5), lengths(5), rules=EMBEDDING_BAG),
        case("embedding bag, offsets, mean", lambda: networks.RaggedBag("mean"), repeated(7, 5), lengths(5), rules=EMBEDDING_BAG),
        case("embedding bag, weights", lambda: Through(weighted, bag=nn.EmbeddingBag(7, 3, mode="sum")), repeated(7, 5), floats(5), rules=EMBEDDING_BAG),
        case("embedding by indexing", lambda: Bare(lambda m, x: m.table[x], table=(7, 3)), repeated(7, 4), native=None),
        case("embedding by indexing from the end", lambda: Bare(lambda m, x: m.table[torch.where(x % 2 == 0, x, x - 7)], table=(7, 3)), repeated(7, 4), native=None),
    ]  # fmt: skip


def norm_cases() -> list[Case]:
    def affine(kind: type[nn.Module], *arguments: object) -> Callable[[], nn.Module]:
        return lambda: kind(*arguments, affine=True)

    return [
        case("layer norm", lambda: nn.LayerNorm(6), floats(6), rules=LAYER_NORM),
        case("layer norm 3-D without bias", lambda: nn.LayerNorm(6, bias=False), floats(5, 6), rules=LAYER_NORM),
        case("layer norm, two dimensions", lambda: nn.LayerNorm((3, 4)), floats(2, 3, 4), rules=LAYER_NORM),
        case("rms norm", lambda: nn.RMSNorm(6), floats(3, 6), rules=RMS_NORM),
        case("rms norm, two dimensions", lambda: nn.RMSNorm((3, 4)), floats(3, 4), rules=RMS_NORM),
        case("group norm", lambda: nn.GroupNorm(2, 6), floats(6, 3, 4), rules=GROUP_NORM),
        case("group norm 2-D", lambda: nn.GroupNorm(2, 6), floats(6), rules=GROUP_NORM),
        case("instance norm 1d", affine(nn.InstanceNorm1d, 4), floats(4, 6), rules=INSTANCE_NORM, empty=False),
        case("instance norm 2d", affine(nn.InstanceNorm2d, 4), floats(4, 3, 3), rules=INSTANCE_NORM, empty=False),
        case("batch norm, evaluated", networks.evaluated_batch_norm, floats(2, 5, 5), rules="conv batch_norm"),
        case("prelu", nn.PReLU, floats(4, 3), rules=PRELU),
        case("prelu per channel", lambda: nn.PReLU(4), floats(4, 3, 2), rules=PRELU),
    ]  # fmt: skip


def attention_cases() -> list[Case]:
    series, other = floats(4, 8), floats(3, 8)
    encoder = {"d_model": 8, "nhead": 2, "dim_feedforward": 12, "dropout": 0.0}

    def encode(**options: object) -> nn.Module:
        return nn.TransformerEncoderLayer(**encoder, **options)  # type: ignore[arg-type]

    def decode(**options: object) -> nn.Module:
        return nn.TransformerDecoderLayer(**encoder, **options)  # type: ignore[arg-type]

    return [
        case("attention", lambda: Attention(batch_first=True), series, rules=LINEAR),
        case("attention, with weights", lambda: Attention(batch_first=True, need_weights=True), series, rules=LINEAR),
        case("attention, time first", Attention, series, rules=LINEAR, time_major=True),
        case("attention, time first, time equals rows", lambda: Attention(need_weights=True), floats(5, 8), rules=LINEAR, time_major=True),
        case("attention, padding mask", lambda: Attention(batch_first=True), series, series, hidden(4), rules=LINEAR, empty=False),
        case("attention, cross", lambda: Attention(batch_first=True), series, other, rules=LINEAR),
        case("attention, cross, kdim, vdim", lambda: Through(_key_and_value, attention=Attention(batch_first=True, kdim=5, vdim=3)), series, floats(3, 5), floats(3, 3), rules=LINEAR),
        case("attention, bias_k and zero", lambda: Attention(add_bias_kv=True, add_zero_attn=True, batch_first=True), series, rules=LINEAR),
        case("encoder layer", lambda: encode(batch_first=True), series, rules="linear layer_norm"),
        case("encoder layer, time first", lambda: TimeMajor(encode()), series, rules="linear layer_norm", time_major=True),
        case("encoder layer, norm first, gelu", lambda: encode(batch_first=True, norm_first=True, activation="gelu"), series, rules="linear layer_norm"),
        case("decoder layer", lambda: decode(batch_first=True), series, other, rules="linear layer_norm"),
        case("decoder layer, time first", lambda: TimeMajor(decode(norm_first=True)), series, other, rules="linear layer_norm", time_major=True),
    ]  # fmt: skip


def _key_and_value(m: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return m.attention(query, key, None, value)


def recurrent_cases() -> list[Case]:
    series = floats(4, 3)

    def recurrent(kind: type[nn.RNNBase], *, states_only: bool = False,
                  **options: object) -> Callable[[], nn.Module]:  # fmt: skip
        return lambda: Recurrent(kind(3, 4, **options), states_only=states_only)  # type: ignore[arg-type]

    return [
        case("rnn, tanh", recurrent(nn.RNN, batch_first=True), series, rules=RNN),
        case("rnn, relu, two layers, time first", recurrent(nn.RNN, nonlinearity="relu", num_layers=2), series, rules=RNN, time_major=True),
        case("lstm", recurrent(nn.LSTM, batch_first=True), series, rules=LSTM),
        case("lstm, last states", recurrent(nn.LSTM, batch_first=True, states_only=True), series, rules=LSTM),
        case("lstm, two layers, time first", recurrent(nn.LSTM, num_layers=2), series, rules=LSTM, time_major=True),
        case("lstm, bidirectional, time equals rows", recurrent(nn.LSTM, bidirectional=True), floats(5, 3), rules=LSTM, time_major=True),
        case("lstm, projected, without bias", recurrent(nn.LSTM, batch_first=True, proj_size=2, bias=False), series, rules=LSTM),
        case("lstm, packed", networks.PackedLstm, series, lengths(4), rules=LSTM, may_refuse=True, empty=False),
        case("gru", recurrent(nn.GRU, batch_first=True), series, rules=GRU),
        case("gru, bidirectional, two layers", recurrent(nn.GRU, batch_first=True, bidirectional=True, num_layers=2), series, rules=GRU),
        case("gru, learned start", networks.LearnedStart, series, rules=GRU),
        case("lstm cell in a loop", lambda: CellLoop(nn.LSTMCell(3, 4)), series, native=None),
        case("gru cell in a loop", lambda: CellLoop(nn.GRUCell(3, 4)), series, native=None),
    ]  # fmt: skip


def bare_cases() -> list[Case]:
    x, series = floats(4), floats(3, 4)

    def bare(name: str, function: Callable[..., Tensor], draw: Draw = series, rules: str = "",
             native: bool | None = True, empty: bool = True, may_refuse: bool = False,
             **shapes: tuple[int, ...]) -> Case:  # fmt: skip
        build = lambda: Bare(function, **shapes)
        options = {"native": native, "empty": empty, "may_refuse": may_refuse}
        return case(name, build, draw, rules=rules, **options)

    return [
        bare("bias", lambda m, x: x + m.b, rules=ELEMENTWISE, b=(4,)),
        bare("bias on the left", lambda m, x: m.b + x, rules=ELEMENTWISE, b=(3, 1)),
        bare("scale", lambda m, x: x * m.s, rules=ELEMENTWISE, s=(4,)),
        bare("scalar scale", lambda m, x: x * m.s, x, rules=ELEMENTWISE, s=()),
        bare("subtraction", lambda m, x: m.b - x.square(), rules=ELEMENTWISE, b=(1, 4)),
        bare("division", lambda m, x: x / (2 + m.s.square()), rules=ELEMENTWISE, s=(4,)),
        bare("division of a parameter", lambda m, x: m.s / (1 + x.square()), rules=ELEMENTWISE, s=(4,)),
        bare("scale and shift of one parameter", lambda m, x: x * m.s + m.s, rules=ELEMENTWISE, s=(4,)),
        bare("positive scale by exp", lambda m, x: x * m.s.exp(), rules=ELEMENTWISE, s=(4,)),
        bare("positive scale by softplus", lambda m, x: F.softplus(m.s) * x, rules=ELEMENTWISE, s=(1,)),
        bare("in-place bias", lambda m, x: (2 * x).add_(m.b), may_refuse=True, b=(4,)),
        bare("power", lambda m, x: (1 + x.square()) ** m.p, native=None, p=(4,)),
        bare("positional embedding", lambda m, x: torch.tanh(x + m.p[: x.shape[1]]), rules=ELEMENTWISE, p=(6, 4)),
        bare("class token", lambda m, x: torch.cat([m.t.expand(len(x), -1, -1), x], dim=1).cumsum(1), t=(1, 1, 4)),
        bare("x @ w", lambda m, x: x @ m.w, rules=MATMUL, w=(4, 2)),
        bare("x @ w, 2-D", lambda m, x: x @ m.w, x, rules=MATMUL, w=(4, 2)),
        bare("x @ vector", lambda m, x: x @ m.w, rules=MATMUL, w=(4,)),
        bare("w @ x", lambda m, x: m.w @ x, rules=MATMUL, w=(2, 3)),
        bare("w @ x, rows last", lambda m, x: (m.w @ x.permute(1, 2, 0)).permute(2, 0, 1), rules=MATMUL, w=(2, 4)),
        bare("matmul, square", lambda m, x: torch.matmul(m.w, torch.matmul(x, m.v)), floats(5, 5), rules=MATMUL, w=(5, 5), v=(5, 5)),
        bare("matmul, batched weight", lambda m, x: torch.matmul(x, m.w), floats(2, 3, 4), rules=MATMUL, w=(2, 4, 3)),
        bare("bmm, expanded weight", lambda m, x: torch.bmm(x, m.w.expand(len(x), -1, -1)), native=None, w=(4, 2)),
        bare("einsum, linear", lambda m, x: torch.einsum("bti,io->bto", x, m.w), rules=EINSUM, w=(4, 2)),
        bare("einsum, heads", lambda m, x: torch.einsum("bti,hio->bhto", x, m.w), rules=EINSUM, w=(2, 4, 3)),
        bare("einsum, ellipsis", lambda m, x: torch.einsum("...i,i->...", x, m.w), rules=EINSUM, w=(4,)),
        bare("einsum, mixing time", lambda m, x: torch.einsum("st,bti->bsi", m.w, x), rules=EINSUM, w=(2, 3)),
        bare("einsum, bilinear form", lambda m, x: torch.einsum("bi,ij,bj->b", x, m.w, x)[:, None], x, rules=EINSUM, w=(4, 4)),
        bare("einsum, three factors", lambda m, x: torch.einsum("bti,ir,ro->bto", x, m.a, m.b), native=None, a=(4, 2), b=(2, 3)),
        bare("where", lambda m, x: torch.where(x > 0, x, m.b * x), rules=ELEMENTWISE, b=(4,)),
        bare("where, parameter as it is", lambda m, x: torch.where(x > 0, m.a, m.b), native=None, a=(4,), b=(3, 1)),
        bare("stack", lambda m, x: torch.stack([x, m.b.expand_as(x)], dim=1).prod(1), native=None, b=(4,)),
        bare("cumsum of a product", lambda m, x: torch.cumsum(x * m.w, dim=-1), rules=ELEMENTWISE, w=(4,)),
        bare("concatenated weights", lambda m, x: F.linear(x, torch.cat([m.q, m.k])), rules=LINEAR, q=(2, 4), k=(3, 4)),
        bare("stacked weights", lambda m, x: F.linear(x, torch.stack([m.q, m.k]).mean(0)), rules=LINEAR, q=(2, 4), k=(2, 4)),
        bare("unused parameter", lambda m, x: x * m.s, rules=ELEMENTWISE, s=(4,), unused=(3,)),
        bare("addcmul", lambda m, x: torch.addcmul(m.b, x, m.s, value=0.5), native=None, b=(4,), s=(4,)),
        bare("lerp", lambda m, x: torch.lerp(x, m.end, m.share), native=None, end=(4,), share=(1,)),
        bare("cdist", lambda m, x: torch.cdist(x, m.centres), native=False, centres=(5, 4)),
        bare("grid_sample", _sampled, floats(2, 4, 4), native=None, grid=(1, 3, 3, 2)),
        bare("convolution by fft", _by_fft, floats(8), native=None, empty=False, kernel=(8,)),
        bare("temperature softmax", lambda m, x: (x / (1 + m.t.square())).softmax(-1), x, rules=ELEMENTWISE, t=()),
        bare("fake gradient reversal", lambda m, x: x.detach() * m.s - (x * m.s).detach(), rules=ELEMENTWISE, s=(4,)),
    ]  # fmt: skip


def _sampled(m: nn.Module, x: Tensor) -> Tensor:
    grid = torch.tanh(m.grid).expand(len(x), -1, -1, -1)
    return F.grid_sample(x, grid, align_corners=False)


def _by_fft(m: nn.Module, x: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(m.kernel), n=x.shape[-1])


def tied_cases() -> list[Case]:
    def towers(m: nn.Module, left: Tensor, right: Tensor) -> Tensor:
        return m.tower(left) * m.tower(right)

    def twice(m: nn.Module, x: Tensor) -> Tensor:
        return m.layer(torch.tanh(m.layer(x)))

    return [
        case("tied embedding and head", networks.TiedLanguageModel, ids(9, 4), losses=next_token, rules="linear embedding"),
        case("tied autoencoder", networks.TiedAutoencoder, floats(6), rules="linear matmul"),
        case("linear, reused", lambda: Through(twice, layer=nn.Linear(4, 4)), floats(4), rules=LINEAR),
        case("linear, reused, 3-D", lambda: Through(twice, layer=nn.Linear(4, 4)), floats(3, 4), rules=LINEAR),
        case("linear, reused at 2-D and 3-D", lambda: Through(lambda m, x: m.layer(x) * m.layer(x.mean(1))[:, None], layer=nn.Linear(4, 4)), floats(3, 4), rules=LINEAR),
        case("layer norm, reused", lambda: Through(twice, layer=nn.LayerNorm(4)), floats(3, 4), rules=LAYER_NORM),
        case("siamese", lambda: Through(towers, tower=nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))), floats(4), floats(4), rules=LINEAR),
        case("slices of a weight", networks.Sliced, floats(3, 4), rules=LINEAR),
        case("weight also in a product", lambda: Through(lambda m, x: m.layer(x) + m.layer.weight[0] * x, layer=nn.Linear(4, 4)), floats(4), rules="linear elementwise"),
        case("weight norm, linear", lambda: networks.weight_norm(nn.Linear(4, 3)), floats(2, 4), rules=LINEAR),
        case("weight norm, conv", lambda: networks.weight_norm(nn.Conv2d(2, 3, 3)), floats(2, 4, 4), rules=CONV),
        case("symmetric parametrization", networks.symmetric, floats(4), rules=LINEAR),
        case("mixture of branches", networks.Mixture, floats(4), rules="linear elementwise"),
        case("penalty in the loss", lambda: nn.Linear(4, 3), floats(4), losses=with_penalty, rules=LINEAR, native=None),
        case("temperature in the loss", _temperature, floats(4), ids(3), losses=with_temperature, rules="linear elementwise"),
        case("centres in the loss", _centres, floats(4), ids(3), losses=to_centres, rules=LINEAR, native=None),
    ]  # fmt: skip


def _temperature() -> nn.Module:
    model = Bare(lambda _m, x: x, temperature=())
    model.add_module("body", nn.Linear(4, 3))
    return model


def _centres() -> nn.Module:
    model = Bare(lambda _m, x: x, centres=(3, 2))
    model.add_module("body", nn.Linear(4, 2))
    return model


def frozen_cases() -> list[Case]:
    def lora(name: str, *, zero: bool, layers: bool, rules: str) -> Case:
        build = lambda: Lora(zero=zero, layers=layers)
        return case(name, build, floats(3, 6), rules=rules, as_built=True)

    body = lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU())
    return [
        case("frozen body", lambda: nn.Sequential(frozen(body()), nn.Flatten(), nn.Linear(12, 3)), floats(2, 4, 4), rules=LINEAR),
        case("frozen head", lambda: nn.Sequential(body(), nn.Flatten(), frozen(nn.Linear(12, 3))), floats(2, 4, 4), rules=CONV),
        case("frozen norm between", lambda: nn.Sequential(nn.Linear(4, 4), frozen(nn.LayerNorm(4)), nn.Linear(4, 2)), floats(4), rules=LINEAR),
        lora("lora, parameters", zero=False, layers=False, rules=MATMUL),
        lora("lora, parameters, zero", zero=True, layers=False, rules=MATMUL),
        lora("lora, layers", zero=False, layers=True, rules=LINEAR),
        lora("lora, layers, zero", zero=True, layers=True, rules=LINEAR),
    ]  # fmt: skip


def network_cases() -> list[Case]:
    return [
        case("gpt, tied head", networks.Gpt, ids(11, 6), losses=next_token, rules="linear embedding layer_norm"),
        case("gpt, time equals rows", networks.Gpt, ids(11, 5), losses=next_token, rules="linear embedding layer_norm"),
        case("resnet, group norm", networks.resnet, floats(3, 6, 6), ids(5), losses=classified, rules="conv group_norm linear"),
        case("resnet, in place", lambda: networks.resnet(inplace=True), floats(3, 6, 6), ids(5), losses=classified, rules="conv group_norm linear"),
        case("vit", networks.Vit, floats(1, 6, 6), ids(5), losses=classified, rules="conv linear layer_norm"),
        case("unet", networks.Unet, floats(2, 4, 4), rules="conv conv_transpose"),
    ]  # fmt: skip


def moved_row_cases() -> list[Case]:
    """Rows that change places inside the model: to guess their order is to get them wrong."""
    layer = nn.Linear

    def through(name: str, function: Callable[..., Tensor], draw: Draw, **options: object) -> Case:
        build = lambda: Through(function, layer=layer(4, 3))
        return case(name, build, draw, rules=LINEAR, **options)  # type: ignore[arg-type]

    return [
        through("time first", lambda m, x: m.layer(x.transpose(0, 1)).transpose(0, 1), floats(3, 4), time_major=True),
        through("time first, time equals rows", lambda m, x: m.layer(x.transpose(0, 1)).transpose(0, 1), floats(5, 4), time_major=True),
        through("rows in the middle of 4-D", lambda m, x: m.layer(x.permute(1, 0, 2, 3)).permute(1, 0, 2, 3), floats(2, 3, 4), time_major=True),
        through("rows and time flattened", lambda m, x: m.layer(x.reshape(-1, 4)).view(*x.shape[:2], 3), floats(3, 4)),
        through("time and rows flattened", lambda m, x: m.layer(x.transpose(0, 1).reshape(-1, 4)).view(x.shape[1], len(x), 3).transpose(0, 1), floats(3, 4), may_refuse=True),
        through("rows reversed", lambda m, x: m.layer(x.flip(0)).flip(0), floats(4), may_refuse=True),
        through("rows permuted", _permuted, floats(4), may_refuse=True),
        through("rows repeated blockwise", lambda m, x: torch.stack(m.layer(x.repeat(2, 1)).chunk(2), 1).prod(1), floats(4), may_refuse=True),
        through("rows repeated each", lambda m, x: m.layer(x.repeat_interleave(2, 0)).view(len(x), 2, 3).prod(1), floats(4), may_refuse=True),
        case("siamese, stacked", networks.StackedPair, floats(4), floats(4), rules=LINEAR, may_refuse=True),
        case("experts", networks.Experts, floats(4), rules=LINEAR, may_refuse=True),
        case("checkpointed", networks.Checkpointed, floats(4), rules=LINEAR, may_refuse=True),
    ]  # fmt: skip


def _permuted(m: nn.Module, x: Tensor) -> Tensor:
    order = torch.arange(len(x), device=x.device).roll(2)
    return m.layer(x[order])[order.argsort()]


def unusual_row_cases() -> list[Case]:
    def tower(*, bias: bool = True) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 5, bias=bias), nn.ReLU(), nn.Linear(5, 3, bias=bias))

    conv = lambda: nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(8, 3)
    )
    bare = lambda: Bare(lambda m, x: (x * m.s + m.b) @ m.w, s=(4,), b=(4,), w=(4, 2))
    return [
        case("nan row", tower, floats(4), spoilt={2: NAN}, rules=LINEAR),
        case("infinite row", tower, floats(4), spoilt={1: INF}, rules=LINEAR),
        case("nan and infinite rows, conv", conv, floats(1, 4, 4), spoilt={0: NAN, 3: -INF}, rules=CONV),
        case("nan row, bare parameters", bare, floats(3, 4), spoilt={4: NAN}, rules="elementwise matmul"),
        case("nan row, lstm", lambda: Recurrent(nn.LSTM(3, 4, batch_first=True)), floats(4, 3), spoilt={2: NAN}, rules=LSTM),
        case("nan row, attention", lambda: Attention(batch_first=True), floats(4, 8), spoilt={2: NAN}, rules=LINEAR),
        case("nan row, fallback", lambda: Bare(lambda m, x: torch.cdist(x, m.w), w=(3, 4)), floats(2, 4), spoilt={1: NAN}, native=False),
        case("nan in the gradient only", lambda: tower(bias=False), floats(4), losses=root, spoilt={3: 0.0}, rules=LINEAR),
        case("zero gradient in a row", lambda: nn.Linear(4, 3, bias=False), floats(4), spoilt={2: 0.0}, rules=LINEAR),
        case("every row nan", tower, floats(4), spoilt=dict.fromkeys(range(5), NAN), rules=LINEAR),
        case("two views", tower, floats(4), views=2, rows=6, rules=LINEAR),
        case("two views of a series", lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), floats(3, 4), views=2, rows=6, rules="linear layer_norm"),
        case("four views, conv", conv, floats(1, 4, 4), views=4, rows=12, rules="conv group_norm linear"),
        case("two views, one of them nan", tower, floats(4), views=2, rows=6, spoilt={3: NAN}, rules=LINEAR),
        case("two views, tied", networks.Gpt, ids(11, 4), losses=next_token, views=2, rows=4, rules="linear embedding"),
        case("two views, fallback", lambda: Bare(lambda m, x: torch.cdist(x, m.w), w=(3, 4)), floats(2, 4), views=2, rows=6, native=False),
    ]  # fmt: skip


def bf16_cases() -> list[Case]:
    """Wide enough that the roundings of single products even out."""
    half = {"autocast": torch.bfloat16}
    tower = lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16))
    conv = lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.SiLU(), nn.Flatten(), nn.Linear(576, 5)
    )
    encoder = lambda: nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True)
    bare = lambda: Bare(lambda m, x: (x * m.s + m.b) @ m.w, s=(32,), b=(32,), w=(32, 16))
    return [
        case("bf16 mlp", tower, floats(32), rules=LINEAR, **half),
        case("bf16 mlp 3-D", tower, floats(6, 32), rules=LINEAR, **half),
        case("bf16 conv", lambda: nn.Conv2d(4, 16, 3, padding=1, groups=2), floats(4, 8, 8), rules=CONV, **half),
        case("bf16 conv net", conv, floats(3, 8, 8), rules="conv group_norm linear", **half),
        case("bf16 gpt, tied head", lambda: networks.Gpt(32, 32), ids(32, 6), losses=next_token, rules="linear embedding layer_norm", **half),
        case("bf16 encoder layer", encoder, floats(6, 32), rules="linear layer_norm", **half),
        case("bf16 vit", lambda: networks.Vit(32), floats(1, 6, 6), ids(5), losses=classified, rules="conv linear layer_norm", **half),
        case("bf16 bare parameters", bare, floats(6, 32), rules="elementwise matmul", **half),
        case("bf16 linear, reused", lambda: Through(lambda m, x: m.layer(torch.tanh(m.layer(x))), layer=nn.Linear(32, 32)), floats(6, 32), rules=LINEAR, **half),
        case("bf16 two views", tower, floats(32), views=2, rows=6, rules=LINEAR, **half),
    ]  # fmt: skip


TABLE: tuple[Case, ...] = tuple(
    row
    for family in (
        linear_cases, conv_cases, embedding_cases, norm_cases, attention_cases, recurrent_cases,
        bare_cases, tied_cases, frozen_cases, network_cases, moved_row_cases, unusual_row_cases,
        bf16_cases,
    )
    for row in family()
)  # fmt: skip
