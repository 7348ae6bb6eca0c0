"""The exact accountant: certified ends of ε(δ) and δ(ε).

>>> from tacit.accounting.exact.certificate import enclose_epsilon
>>> from tacit.accounting.events import Gaussian, PoissonSampled
>>> found = enclose_epsilon(((PoissonSampled(0.01, Gaussian(4.0)), 10_000),), 1e-5, "add-remove")
>>> found.lower <= 0.9468668007644 <= found.upper, found.upper - found.lower < 1e-10
(True, True)
"""
