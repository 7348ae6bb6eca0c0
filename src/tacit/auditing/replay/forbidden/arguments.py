"""Arguments out of range, of plans, styles, models and noise; and noise that is copied."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from tacit.accounting import Gaussian
from tacit.auditing.replay.forbidden.small_run import (
    Attempts,
    in_child,
    refuse,
    tried,
)
from tacit.randomness import (
    GaussianSource,
    RoundedGaussian,
    SecureStream,
    SystemStream,
    UnsafeSeededStream,
    discrete_gaussian,
    discrete_laplace,
    fresh_stream,
    granularity,
    grid_gaussian,
    grid_laplace,
    included,
    on_grid,
    rounded_gaussian,
    rounded_laplace,
    subset,
)
from tacit.training.clipping import clipped_gradients
from tacit.training.correlation import Anticorrelated, Banded, Buffered, InverseBanded
from tacit.training.performance import Performance
from tacit.training.plan import Plan
from tacit.training.replace_batchnorm import fix
from tacit.training.sampling import Allocation, Cyclic, FullBatch, Poisson, TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile, Automatic, PerGroup

if TYPE_CHECKING:
    from collections.abc import Callable

_DELTA = 1e-5
_NO_NUMBERS: tuple[Any, ...] = (0.0, -1.0, math.nan, math.inf, "1", None)


def honest_plan(**changed: Any) -> Plan:
    """A plan that is as it should be, but for what is ``changed``."""
    given = {"examples": 400, "lot_size": 40, "steps": 30, "noise_multiplier": 1.1, "clip": 0.5}
    return Plan(**(given | changed))


def plans() -> Attempts:
    """Plans of wrong numbers, and what is written of them."""
    wrong: list[dict[str, Any]] = [
        {field: value}
        for field in ("examples", "lot_size", "steps", "noise_multiplier", "clip")
        for value in _NO_NUMBERS
    ]
    wrong += [
        {"examples": 1.5}, {"steps": 1.5}, {"steps": True}, {"lot_size": 401}, {"clip": 1e13},
        {"clip": 1e-13}, {"adjacency": "none"}, {"unit": "nobody"}, {"unit": "user"},
        {"examples_per_user": 3}, {"unit": "user", "examples_per_user": 0}, {"views": 0},
        {"views": 1.5}, {"clipping": "flat"}, {"sampling": "poisson"}, {"noise": "loud"},
        {"sampling": FullBatch()}, {"sampling": TruncatedPoisson(30)},
        {"clipping": PerGroup({"": 1.0}), "clip": 2.0}, {"clipping": PerGroup({"": 1e13})},
    ]  # fmt: skip
    plan, plain = honest_plan(), json.loads(honest_plan().to_json())
    found: dict[str, Callable[[], object]] = {
        f"a plan with {one}": partial(honest_plan, **one) for one in wrong
    }
    for name, other in {
        "more": plain | {"more": 1}, "less": {k: v for k, v in plain.items() if k != "noise"},
        "an unknown style": plain | {"clipping": {"kind": "Strange"}},
        "a style of other fields": plain | {"clipping": {"kind": "Flat", "stability": 1.0}},
        "a style that is a text": plain | {"clipping": "Flat"},
        "unknown sampling": plain | {"sampling": {"kind": "Shuffled"}}, "a list": [1],
        "a text for a number": plain | {"noise_multiplier": "1.1"},
    }.items():  # fmt: skip
        found[f"a plan in JSON with {name}"] = partial(Plan.from_json, json.dumps(other))
    return found | {
        "a plan that is no JSON": lambda: Plan.from_json("{"),
        "more steps than planned": lambda: plan.event_after(31),
        "steps below none": lambda: plan.event_after(-1),
        "a δ below 0": lambda: plan.epsilon(-1e-9),
        "a δ above one": lambda: plan.epsilon(1.5),
        "epochs beside steps": lambda: _bought(epochs=2.0, steps=3),
        "neither epochs nor steps": _bought,
        "epochs without end": lambda: _bought(epochs=1e300),
        "no epochs": lambda: _bought(epochs=0.0),
        "an accountant that proves nothing": lambda: _bought(steps=30, accountant="gdp-clt"),
        "a δ above every chance": lambda: _bought(steps=1, lot_size=1e-6, delta=1e-2),
        "a budget that cut lots exceed": lambda: _bought(
            steps=30, delta=1e-9, sampling=TruncatedPoisson(41), accountant="rdp"
        ),
        "a budget that the count exceeds": lambda: _bought(
            steps=30, clipping=AdaptiveQuantile(count_noise=0.1)
        ),
        "a budget that is spent elsewhere": lambda: _bought(steps=30, also=Gaussian(0.5)),
    }


def correlations() -> Attempts:
    """Correlated noise of wrong numbers, and where no theorem covers it or nothing is built."""
    values: dict[str, Callable[[], object]] = {
        "bands below two": lambda: Banded(1), "bands without end": lambda: Banded(2_000),
        "half a band": lambda: InverseBanded(2.5),  # type: ignore[arg-type]
        "bands that do not begin with 1": lambda: Banded(2, coefficients=(0.5, 0.5)),
        "fewer bands than said": lambda: Banded(3, coefficients=(1.0, 0.5)),
        "bands of no numbers": lambda: Banded(2, coefficients=("a", "b")),  # type: ignore[arg-type]
        "bands that are a number": lambda: Banded(2, coefficients=1.0),  # type: ignore[arg-type]
        "a band without end": lambda: Banded(2, coefficients=(1.0, math.inf)),
        "an inverse band above 0": lambda: InverseBanded(2, coefficients=(1.0, 0.5)),
        "too many buffers": lambda: Buffered(11), "no buffers": lambda: Buffered(0),
        "scales without decays": lambda: Buffered(2, scales=(-0.1, -0.2)),
        "more buffers than said": lambda: Buffered(1, scales=(-0.1,) * 2, decays=(0.5,) * 2),
        "a buffer that stays": lambda: Buffered(1, scales=(-0.1,), decays=(1.0,)),
        "a buffer that adds": lambda: Buffered(1, scales=(0.1,), decays=(0.5,)),
        "a share of all": lambda: Anticorrelated(1.0),
        "a share of no number": lambda: Anticorrelated(math.nan),
        "a momentum of 1": lambda: Banded(2, momentum=1.0),
        "an unknown schedule": lambda: Banded(2, schedule="warm"),  # type: ignore[arg-type]
    }  # fmt: skip
    adaptive = AdaptiveQuantile(count_noise=3.0)
    plans: list[dict[str, Any]] = [
        {"correlation": "banded"},
        {"correlation": Banded()},
        {"sampling": Cyclic()},
        {"correlation": Banded(31)},
        {"correlation": Banded(11)},
        {"correlation": Banded(2), "clipping": adaptive},
        {"correlation": InverseBanded(2), "sampling": Poisson()},
        {"correlation": Banded(2), "sampling": TruncatedPoisson(60)},
        {"correlation": Banded(2), "sampling": Allocation()},
        {"correlation": Buffered(2), "sampling": Poisson()},
        {"correlation": InverseBanded(2, coefficients=(1.0, -1.5)), "sampling": Cyclic()},
    ]
    return values | {f"a plan with {one}": partial(honest_plan, **one) for one in plans}


def _bought(**changed: Any) -> Plan:
    given: dict[str, Any] = {
        "epsilon": 0.5, "delta": _DELTA, "examples": 400, "lot_size": 40, "clip": 1.0,
    }  # fmt: skip
    return Plan.for_budget(**(given | changed))


def styles() -> Attempts:
    """Clipping styles, bounds and performance settings."""
    found: dict[str, Callable[[], object]] = {
        "bounds that are a number": lambda: PerGroup(3.0),  # type: ignore[arg-type]
        "bounds that are a text": lambda: PerGroup("ab"),  # type: ignore[arg-type]
        "bounds that are no pairs": lambda: PerGroup([3.0]),  # type: ignore[arg-type]
        "bounds without names": lambda: PerGroup([(1, 3.0)]),  # type: ignore[arg-type]
        "no bounds": lambda: PerGroup({}),
        "a bound twice": lambda: PerGroup((("a", 1.0), ("a", 2.0))),
        "a precision that is none": lambda: Performance(precision="int8"),  # type: ignore[arg-type]
        "workers below none": lambda: Performance(workers=-1),
        "batches of nothing": lambda: Performance(batch=0),
        "leases of nothing": lambda: Performance(lease=0),
        "no lot that is cut": lambda: TruncatedPoisson(0),
        "a quantile of all": lambda: AdaptiveQuantile(count_noise=1.0, quantile=1.0),
        "a clip that runs away": lambda: AdaptiveQuantile(count_noise=1.0, learning_rate=-1.0),
    }
    for value in _NO_NUMBERS:
        found |= {
            f"a bound of {value!r}": partial(PerGroup, {"a": value}),
            f"a stability of {value!r}": partial(Automatic, value),
            f"a count's noise of {value!r}": partial(AdaptiveQuantile, count_noise=value),
        }
    return found


def models() -> Attempts:
    """Layers that cannot be replaced, and losses of another number than rows."""
    weight = nn.Parameter(torch.ones(3))
    own = type("OwnBatchNorm", (nn.BatchNorm1d,), {})
    return {
        "a batch norm of one feature": lambda: fix(nn.Sequential(nn.BatchNorm1d(1))),
        "a batch norm that has no size yet": lambda: fix(nn.Sequential(nn.LazyBatchNorm1d())),
        "a batch norm of another kind": lambda: fix(nn.Sequential(own(4))),
        "losses of another number than rows": lambda: clipped_gradients(
            {"weight": weight}, lambda: weight * 2.0, rows=4, clip=1.0
        ),
        "rows that are no multiple of views": lambda: clipped_gradients(
            {"weight": weight}, lambda: weight * 2.0, rows=3, clip=1.0, views=2
        ),
    }


# ---- noise


def noise() -> Attempts:
    """Noise of wrong widths, on other devices, copied, or of a system without randomness."""
    cpu, system = torch.device("cpu"), SystemStream()
    source, rounded = GaussianSource(cpu, fresh_stream("noise")), RoundedGaussian(system, cpu)
    secure, elsewhere = SecureStream("noise"), torch.empty(3, device="meta")
    whole = torch.zeros(3, dtype=torch.int64)
    found: dict[str, Callable[[], object]] = {
        "noise in half precision": lambda: source.normal_(torch.zeros(3, dtype=torch.float16)),
        "noise on another device": lambda: source.normal_(elsewhere),
        "noise in a forked child": lambda: _refused_in_child(
            lambda: source.normal_(torch.zeros(3))
        ),
        "whole noise of another type": lambda: rounded.integers_(torch.zeros(3), 1.0),
        "whole noise on another device": lambda: rounded.integers_(elsewhere.long(), 1.0),
        "whole noise that is too wide": lambda: rounded.integers_(whole, 2.0**46),
        "a grid that is no power of two": lambda: on_grid([1.0], 0.3),
        "what is on no grid": lambda: on_grid([math.nan], 0.25),
        "what is beyond a grid": lambda: on_grid([1e300], 0.25),
        "a grid of nothing": lambda: granularity(1e-320),
        "a missing value beside noise": lambda: grid_laplace([math.nan], 1.0, 1.0, system),
        "a rate above one": lambda: included(3, 1.5, system),
        "a rate below none": lambda: included(3, -0.1, system),
        "more than all of them": lambda: subset(np.arange(3), 4, system),
        "fewer than none of them": lambda: subset(np.arange(3), -1, system),
        "a purpose that is no text": lambda: SecureStream(3),  # type: ignore[arg-type]
        "a purpose of a seed that is none": lambda: UnsafeSeededStream(1, 3),  # type: ignore[arg-type]
        "a seed below none": lambda: UnsafeSeededStream(-1, "noise"),
        "a system without randomness": lambda: _refused_in_child(_dull),
        "a system that repeats itself": lambda: _refused_in_child(_repeating),
    }
    for name, one in (("a stream", secure), ("a source", source), ("whole noise", rounded)):
        for way, duplicate in (
            ("copied", copy.copy), ("copied whole", copy.deepcopy), ("pickled", pickle.dumps)
        ):  # fmt: skip
            found[f"{name} that is {way}"] = partial(duplicate, one)
    for draw, most in (
        (discrete_laplace, 2.0**60), (discrete_gaussian, 2.0**60), (rounded_laplace, 2.0**46),
        (rounded_gaussian, 2.0**46),
    ):  # fmt: skip
        for value in (*_NO_NUMBERS, most):
            found[f"{draw.__name__} of scale {value!r}"] = partial(draw, value, 2, system)
        found[f"{draw.__name__} of -1 numbers"] = partial(draw, 1.0, -1, system)
    for spread in (grid_laplace, grid_gaussian):
        for value in (*_NO_NUMBERS, 1e-40):
            found[f"{spread.__name__} of sensitivity {value!r}"] = partial(
                spread, [0.5], 1.0, value, system
            )
    return found


def _refused_in_child(work: Callable[[], object]) -> None:
    """Refused here if it was refused in a forked child."""
    if in_child(lambda: b"no" if not tried("", work) else b"yes") == b"no":
        refuse()


def _dull() -> object:
    os.urandom = bytes
    return SystemStream().bytes(16)


def _repeating() -> object:
    os.urandom = lambda count: bytes(range(256))[:count]
    return fresh_stream("noise").bytes(16)
