"""The prior: from a seed to the same file, in one piece or several; views, loss and schedule."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tacit.cli import main
from tacit.errors import CheckpointError, InvalidArgument
from tacit.recipes import prior

if TYPE_CHECKING:
    from pathlib import Path

TINY = prior.PriorSettings(
    images=16, size=16, view=8, depth=10, width=1, features=8, projection=16, passes=6, batch=8
)


def test_a_seed_gives_the_same_bytes_in_one_piece_or_in_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of any data can be in a file that follows from its seed to the last bit."""

    def no_files(*given: object) -> None:
        raise AssertionError(f"data were looked for: {given}")

    monkeypatch.setattr("tacit.data.sets.load", no_files)
    whole = prior.build(tmp_path / "whole", TINY, device="cpu")
    assert whole is not None
    torch.manual_seed(99)  # the process's own generators do not matter
    np.random.seed(99)  # noqa: NPY002
    assert prior.build(tmp_path / "parts", TINY, device="cpu", seconds=1e-9) is None
    kept = sorted(one.name for one in (tmp_path / "parts").glob("*.safetensors"))
    assert kept == ["momentum-10.safetensors", "weights-10.safetensors"]
    parts = prior.build(tmp_path / "parts", TINY, device="cpu")
    assert parts is not None
    assert parts.read_bytes() == whole.read_bytes()
    record = json.loads((tmp_path / "parts" / prior.RECORD).read_text())
    assert record["sha256"] == hashlib.sha256(whole.read_bytes()).hexdigest()
    assert [(one["from"], one["to"]) for one in record["pieces"]] == [(0, 10), (10, 12)]
    assert prior.read(whole).settings == TINY
    with pytest.raises(InvalidArgument, match="holds a finished prior"):
        prior.build(tmp_path / "parts", TINY, device="cpu")


def test_another_seed_gives_other_weights_and_other_settings_do_not_go_on(tmp_path: Path) -> None:
    short = replace(TINY, passes=20, images=16, batch=8)
    prior.build(tmp_path, short, device="cpu", seconds=1e-9)
    with pytest.raises(InvalidArgument, match=r"seed must be 0 as .* has it, got 1"):
        prior.build(tmp_path, replace(short, seed=1), device="cpu")
    with pytest.raises(InvalidArgument, match=r"passes must be 20.* got 6"):  # it would fall by now
        prior.build(tmp_path, replace(short, passes=6), device="cpu")
    assert prior.build(tmp_path, replace(short, passes=21), device="cpu", seconds=1e-9) is None
    first, other = (replace(TINY, seed=seed).network() for seed in (0, 1))
    assert not torch.equal(first[0].weight, other[0].weight)  # type: ignore[arg-type]


@pytest.mark.parametrize("view", [8, 10, 31])
def test_what_is_kept_are_the_layers_below_the_projection(tmp_path: Path, view: int) -> None:
    """It sees every place of the last maps; the file is the same network's with and without it."""
    with_it, without = (replace(TINY, view=view, projection=wide).network() for wide in (32, 0))
    seen = torch.rand(2, 3, view, view)
    assert with_it(seen).shape == without(seen).shape == (2, 8)
    side = math.ceil(view / 4)
    dense = [one for one in with_it.modules() if isinstance(one, torch.nn.Linear)]
    assert [one.in_features for one in dense] == [64 * side**2, 32, 32]
    body, last = without[:-2], with_it[-1]
    body.load_state_dict(with_it[:-1].state_dict())
    assert torch.equal(with_it(seen), last(body(seen)))
    shapes = [
        {name: one.shape for name, one in prior._body(network).items()}
        for network in (with_it, without)
    ]
    assert shapes[0] == shapes[1]
    path = tmp_path / prior.FILE
    path.write_bytes(prior.to_bytes(with_it, replace(TINY, view=view, projection=32)))
    assert prior.read(path).settings.projection == 32
    assert {*prior.read(path).weights} == {*shapes[0]}


def test_a_file_of_before_had_no_projection(tmp_path: Path) -> None:
    from safetensors.torch import load, save  # noqa: PLC0415

    plain = {name: one for name, one in asdict(TINY).items() if name != "projection"}
    content = load(prior.to_bytes(TINY.network(), TINY))
    (tmp_path / prior.FILE).write_bytes(save(content, metadata={"prior": json.dumps(plain)}))
    assert prior.read(tmp_path / prior.FILE).settings == replace(TINY, projection=0)


def test_the_rate_rises_stays_and_falls() -> None:
    chosen = replace(prior.PriorSettings(), passes=100)
    rates = [chosen.rate(step) for step in range(chosen.steps)]
    assert chosen.steps == 100 * (105_000 // 768)
    assert max(rates) == pytest.approx(0.36)
    assert rates[0] == pytest.approx(0.36 / prior.WARM_UP)
    assert rates[prior.WARM_UP : chosen.falls_from] == [max(rates)] * (
        chosen.falls_from - prior.WARM_UP
    )
    assert chosen.falls_from == pytest.approx(0.6 * chosen.steps, abs=1)
    falling = rates[chosen.falls_from :]
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] < 1e-6


def test_the_loss_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(1)
    one, other = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in
                  rng.standard_normal((2, 6, 4)))  # fmt: skip

    def uniform(rows: np.ndarray) -> float:
        pairs = [
            math.exp(-2.0 * float(np.sum((rows[i] - rows[j]) ** 2)))
            for i in range(6) for j in range(6) if i != j
        ]  # fmt: skip
        return math.log(sum(pairs) / len(pairs))

    wanted = float(np.mean(np.sum((one - other) ** 2, axis=1)))
    wanted += (uniform(one) + uniform(other)) / 2
    found = prior.loss_of(torch.from_numpy(one), torch.from_numpy(other))
    assert float(found) == pytest.approx(wanted, rel=1e-12)


def test_views_are_parts_of_the_image_and_keep_a_colour_where_nothing_may_change() -> None:
    still = replace(TINY, jitter=0.0, grey=0.0, view=8)
    random = torch.Generator().manual_seed(1)
    down = torch.arange(16, dtype=torch.uint8).view(16, 1).expand(16, 16) * 10
    images = torch.stack([down, down.T, torch.full_like(down, 51)]).expand(64, 3, 16, 16)
    seen = (prior.views(images, still, random) + 1.0) * 127.5
    assert seen.shape == (64, 3, 8, 8)
    assert torch.allclose(seen[:, 2], torch.full((64, 8, 8), 51.0), atol=1e-3)
    assert float(seen[:, 0].diff(dim=1).min()) > 0  # never upside down
    assert float(seen[:, 0].diff(dim=2).abs().max()) < 1e-3
    mirrored = (seen[:, 1].diff(dim=2) < 0).all(-1).all(-1)
    assert 16 < int(mirrored.sum()) < 48
    shown = (seen[:, 0, -1, 0] - seen[:, 0, 0, 0]) / 150.0 * 8 / 7  # of the height, about
    assert float(shown.min()) > 0.2
    assert float(shown.max()) > 0.8


@pytest.mark.parametrize(
    ("size", "least", "most"), [(16, 0.4, 1.0), (32, 0.2, 0.4), (64, 0.1, 0.2)]
)
def test_a_pixel_of_a_view_is_the_mean_of_what_it_covers(
    size: int, least: float, most: float
) -> None:
    """Single points of a large image would be noise, of which nothing could be learned."""
    whole = replace(TINY, size=size, view=8, smallest=1.0, jitter=0.0, grey=0.0)
    random = torch.Generator().manual_seed(1)
    noise = torch.randint(0, 2, (64, 1, size, size), generator=random).to(torch.uint8) * 255
    seen = prior.views(noise.expand(64, 3, size, size), whole, random)
    assert seen.shape == (64, 3, 8, 8)
    assert least < float(seen.std()) < most  # a mean of four pixels, of sixteen, of sixty-four


def test_grey_views_have_no_colour_and_turned_ones_keep_their_light() -> None:
    random = torch.Generator().manual_seed(1)
    images = torch.randint(100, 156, (32, 3, 16, 16), dtype=torch.uint8, generator=random)
    grey = prior.views(images, replace(TINY, grey=1.0), random)
    assert float((grey - grey.mean(1, keepdim=True)).abs().max()) < 1e-5
    turn = torch.linspace(-3.0, 3.0, 7)
    maps = prior._colour(torch.ones(7), torch.ones(7), turn)
    assert torch.allclose(maps @ maps.mT, torch.eye(3).expand(7, 3, 3), atol=1e-6)
    assert torch.allclose(maps.sum(2), torch.ones(7, 3), atol=1e-6)


def test_a_file_of_another_kind_or_shape_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file  # noqa: PLC0415

    save_file({"a": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="is no prior of tacit's"):
        prior.read(tmp_path / "other.safetensors")
    (tmp_path / "wide.safetensors").write_bytes(
        prior.to_bytes(replace(TINY, width=2).network(), TINY)
    )
    with pytest.raises(CheckpointError, match="its weights have other shapes"):
        prior.read(tmp_path / "wide.safetensors")


@pytest.mark.parametrize(
    ("name", "value"),
    [("depth", 10**9 + 6), ("width", 10**9), ("jitter", 1.5), ("lr", math.nan), ("images", 1),
     ("batch", 33), ("passes", 0), ("seed", 1 << 40), ("depth", 11), ("projection", 24),
     ("projection", 1 << 20)],
)  # fmt: skip
def test_a_setting_that_makes_no_prior_is_refused_in_a_file_too(
    tmp_path: Path, name: str, value: float
) -> None:
    from safetensors.torch import save  # noqa: PLC0415

    if (name, value) != ("depth", 11):  # which the network refuses
        with pytest.raises(InvalidArgument, match=name):
            replace(TINY, **{name: value})
    if math.isfinite(value):
        plain = json.dumps({**asdict(TINY), name: value})
        path = tmp_path / "hostile.safetensors"
        path.write_bytes(save({"a": torch.zeros(1)}, metadata={"prior": plain}))
        with pytest.raises(CheckpointError, match="is no prior of tacit's"):
            prior.read(path)


def test_the_command_says_how_far_it_is_and_what_it_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("images", "size", "view", "depth", "width", "features", "projection", "batch")
    sets = [f"--set={name}={getattr(TINY, name)}" for name in names]
    command = ["prior", "build", "--device", "cpu", "--out", str(tmp_path / "p"), *sets]
    monkeypatch.setattr(prior, "SHOWN", 0.0)
    assert main([*command, "--set=passes=1"]) == 0
    said = capsys.readouterr()
    digest = prior.read(tmp_path / "p" / prior.FILE).sha256
    assert said.out == f"{tmp_path / 'p' / prior.FILE}\nSHA-256 {digest}\n"
    assert "step 2 of 2, loss " in said.err
    assert main(["prior", "show", str(tmp_path / "p" / prior.FILE), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["sha256"], shown["settings"]["images"]) == (digest, 16)
    assert main(command) == 2
    assert "holds a finished prior" in capsys.readouterr().err
    assert main([*command, "--set=passes"]) == 2
    assert main(["prior", "show", str(tmp_path / "none")]) == 2


def test_a_missing_prior_is_refused_with_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    with pytest.raises(InvalidArgument, match="tacit prior build --device cuda"):
        prior.found()
    place = tmp_path / prior.FOLDER
    place.mkdir()
    (place / prior.FILE).write_bytes(prior.to_bytes(TINY.network(), TINY))
    assert prior.found().settings == TINY


def test_a_prior_that_is_not_there_is_named_in_plain_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prior", "show", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err
    assert said.strip().endswith("none cannot be read: No such file or directory; check its name")
    assert "Error" not in said
