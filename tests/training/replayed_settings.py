"""Settings of a program, as a module of its own, and functions that go by them."""

WEIGHT = 1.0


def weight() -> float:
    return WEIGHT


def weight_inside() -> float:
    return sum([WEIGHT for _ in range(2)]) / 2
