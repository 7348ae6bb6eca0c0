"""PLD_accounting: random allocation of Gaussian steps, and nothing else of the rows."""

from PLD_accounting import gaussian_allocation_epsilon_range

from accounting_rows import Allocated, Row
from accounting_worker import Accountant, Unsupported, serve


def ends(row: Row) -> tuple[float, float]:
    """Its upper and lower end."""
    if not isinstance(row.task, Allocated):
        raise Unsupported("only random allocation is asked of it")
    upper, lower = gaussian_allocation_epsilon_range(
        delta=row.delta,
        sigma=row.task.noise_multiplier,
        num_steps=row.task.steps,
        num_epochs=row.task.epochs,
    )
    return float(upper), float(lower)


def bracket(row: Row) -> tuple[float, float]:
    upper, lower = ends(row)
    return lower, upper


if __name__ == "__main__":
    accountant = Accountant(lambda row: ends(row)[0], bracket=bracket)
    serve({"pld": accountant}, packages=("PLD_accounting", "numpy", "scipy"))
