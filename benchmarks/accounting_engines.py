"""The accountants that are compared, and the settings at which each is run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Engine:
    """One column of the tables: an accountant of a peer's worker."""

    name: str
    peer: str
    accountant: str
    setting: str


TACIT = "tacit"
BASELINE = "dp-accounting-pld"

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(TACIT, "tacit", "exact", "`epsilon(event, delta=…)`, the default accountant"),
        Engine(BASELINE, "dp_accounting", "pld", "`PLDAccountant`, default grid, pessimistic"),
        Engine("dp-accounting-rdp", "dp_accounting", "rdp", "`RdpAccountant`, default orders"),
        Engine(
            "prv-accountant", "prv_accountant", "prv", "ε error 0.01, δ error δ/1000; upper end"
        ),
        Engine("opacus-prv", "opacus", "prv", "`PRVAccountant`, defaults (ε error 0.01)"),
        Engine("opacus-rdp", "opacus", "rdp", "`RDPAccountant`, default orders"),
        Engine("opacus-gdp", "opacus", "gdp", "`GaussianAccountant`: an approximation, no bound"),
        Engine(
            "pld-accounting",
            "pld_accounting",
            "pld",
            "`gaussian_allocation_epsilon_range`, default accuracy; upper end",
        ),
        Engine(
            "opake", "opake", "pld", "`random_allocation_gaussian_pld`, default grid; upper end"
        ),
        Engine("opake-coarse", "opake", "coarse", "the same on a grid of 0.01, not 0.0001"),
        Engine("autodp-rdp", "autodp", "rdp", "RDP composition, `improved_bound_flag=True`"),
        Engine(
            "autodp-fourier", "autodp", "fourier", "analytical Fourier accountant, `ComposeAFA`"
        ),
    )
}
