"""The moment that both theorems share, against 60 digits."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from tacit.errors import InvalidArgument
from tacit.transfer.rdp_cost import checked_logs, checked_orders, log_moments


def truth(log_q, log_a, log_b, kappa):
    with mp.workdps(60):
        q = mp.exp(mp.mpf(log_q))
        a, b = (mp.exp(mp.mpf(kappa) * mp.mpf(one)) for one in (log_a, log_b))
        return float(mp.log((1 - q) * a + q * b))


@pytest.mark.parametrize("log_q", [-1e-3, -1.0, -20.0, -60.0])
@pytest.mark.parametrize("log_a", [0.0, 1e-15, 1e-3, 2.0])
@pytest.mark.parametrize("log_b", [1e-9, 0.3, 40.0])
@pytest.mark.parametrize("kappa", [1e-6, 1.0, 50.0, 1e4])
def test_no_digit_cancels_and_none_overflows(log_q, log_a, log_b, kappa):
    at = [np.array([one]) for one in (log_q, log_a, log_b, kappa)]
    assert log_moments(*at)[0] == pytest.approx(truth(log_q, log_a, log_b, kappa), rel=1e-12)


@pytest.mark.parametrize("bad", [[1.0], [2.0, np.inf], [np.nan], [[2.0]], -3])
def test_orders_lie_above_one(bad):
    with pytest.raises(InvalidArgument, match="orders"):
        checked_orders(bad)


@pytest.mark.parametrize("bad", [0.0, [0.1], [-np.inf], [np.nan], [[-1.0]]])
def test_logs_are_of_probabilities_below_one(bad):
    with pytest.raises(InvalidArgument, match="log_q"):
        checked_logs(bad)
