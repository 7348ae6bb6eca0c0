"""autodp on Private-kNN: its screening bound, and a published configuration as its authors ask it.

Reads {"screenings": [[k, threshold, sigma], ...], "orders": [...], "run": {...}} and writes the
Rényi divergences and the ε of the run.
"""

import json
import sys
from importlib.metadata import version
from typing import Any

from autodp import rdp_acct, rdp_bank


def screening(case: list[float], order: float) -> float:
    """The bound that autodp calls data-independent."""
    params = {"k": case[0], "thresh": case[1], "sigma": case[2]}
    return float(rdp_bank.RDP_independent_noisy_screen(params, order))


def epsilon(run: dict[str, Any]) -> float:
    """The calls of the published ``knn.py``, one accountant for screenings and answers."""
    account = rdp_acct.anaRDPacct()
    account.compose_poisson_subsampled_mechanisms(
        lambda order: rdp_bank.RDP_gaussian({"sigma": run["screening_sigma"]}, order),
        run["rate"],
        coeff=run["queries"],
    )
    account.compose_poisson_subsampled_mechanisms(
        lambda order: rdp_bank.RDP_inde_pate_gaussian({"sigma": run["sigma"]}, order),
        run["rate"],
        coeff=run["answers"],
    )
    return float(account.get_eps(run["delta"]))


def main() -> None:
    job = json.load(sys.stdin)
    answer = {
        "version": version("autodp"),
        "screenings": [
            [screening(case, order) for order in job["orders"]] for case in job["screenings"]
        ],
        "epsilon": epsilon(job["run"]),
    }
    json.dump(answer, sys.stdout)


main()
