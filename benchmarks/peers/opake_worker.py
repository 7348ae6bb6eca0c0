"""Opake: random allocation of Gaussian steps by its compiled accountant, upper ends only."""

import importlib.util
import sysconfig
from functools import partial
from pathlib import Path
from typing import Any

from accounting_rows import Allocated, Row
from accounting_worker import Accountant, Unsupported, serve

COMPILED = "opake/api/accounting/core/opake_accounting.abi3.so"


def compiled() -> Any:
    """The module below its Python layer, which does not load under every Python."""
    path = Path(sysconfig.get_paths()["platlib"]) / COMPILED
    spec = importlib.util.spec_from_file_location("opake_accounting", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def upper(row: Row, config: Any) -> float:
    """ε on one grid."""
    if not isinstance(row.task, Allocated):
        raise Unsupported("only random allocation is asked of it")
    task = row.task
    epoch = MODULE.random_allocation_gaussian_pld(task.noise_multiplier, task.steps, 1, config)
    return float(epoch.self_compose(task.epochs).epsilon_at(row.delta))


if __name__ == "__main__":
    MODULE = compiled()
    grids = {
        "pld": MODULE.DiscretizationConfig(),
        "coarse": MODULE.DiscretizationConfig(discretization=0.01),
    }
    serve(
        {name: Accountant(partial(upper, config=grid)) for name, grid in grids.items()},
        packages=("opake-accounting",),
    )
