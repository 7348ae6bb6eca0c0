"""JAX-Privacy: optimised strategies of prefix sums, and their mean squared errors, in float64."""

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)

from jax_privacy.matrix_factorization import banded, buffered_toeplitz, toeplitz  # noqa: E402


def normalised(steps: int, bands: int) -> float:
    """Toeplitz, as its authors recommend, with columns divided by their norms."""
    coefficients = toeplitz.optimize_banded_toeplitz(steps, bands)
    whole = banded.ColumnNormalizedBanded.from_banded_toeplitz(steps, coefficients)
    return float(jnp.mean(banded.per_query_error(whole)))


def of_any_rows(steps: int, bands: int) -> float:
    """Every row has coefficients of its own."""
    return float(jnp.mean(banded.per_query_error(banded.optimize(steps, bands=bands))))


def buffered(steps: int, epochs: int) -> float:
    apart = steps // epochs
    found = buffered_toeplitz.optimize(
        n=steps, min_sep=apart, max_participations=epochs, error="mean"
    )
    loss = buffered_toeplitz.LossFn.build_min_sep(
        n=steps, error="mean", min_sep=apart, max_participations=epochs
    )
    return float(loss.loss(found))


WAYS: dict[str, Callable[[int, int], float]] = {
    "banded": normalised, "banded, any rows": of_any_rows, "buffered": buffered,
}  # fmt: skip


def main() -> None:
    rows: list[dict[str, Any]] = []
    for way, steps, size in json.load(sys.stdin):
        start = time.process_time()
        error = WAYS[way](steps, size)
        rows.append({"error": error, "seconds": time.process_time() - start})
    json.dump({"version": version("jax_privacy"), "rows": rows}, sys.stdout)


if __name__ == "__main__":
    main()
