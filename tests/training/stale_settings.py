"""A module of settings, as a user's program has one, for ``test_replays``."""

WEIGHT = 1.0


def weight() -> float:
    return WEIGHT
