"""The secret sharer: does a model remember a secret that stood in its training data?

Carlini et al. 2019 (https://arxiv.org/abs/1802.08232). A canary with a random secret is put into
the data; afterwards the secret's *exposure* says how far up it is among all that it could have
been, and a search tries to take it out of the model.

>>> import numpy as np
>>> secret = SecretFormat("the code is {digits:4}")
>>> canary = secret.canary("2812")
>>> def model(tokens):  # it knows that 2 comes first, then 8, 1 and 2 again, and is half sure
...     follows = {ord(" "): "2", ord("2"): "8", ord("8"): "1", ord("1"): "2"}
...     logs = np.full((*tokens.shape, 128), np.log(0.5 / 127))
...     for token, character in follows.items():
...         logs[tokens == token, ord(character)] = np.log(0.5)
...     return logs
>>> found = measure(model, secret.space(), canary.tokens(), candidates=1000, seed=0)
>>> round(found.exposure.bits, 2), round(secret.max_exposure, 2), found.extracted
(13.29, 13.29, True)
"""

from __future__ import annotations

from tacit.auditing.secrets.exposure import (
    Exposure,
    SkewNormal,
    combined_p_value,
    exposure_bound,
    exposure_by_extrapolation,
    exposure_by_rank,
    exposure_by_sampling,
    exposure_of_rank,
    fit_skew_normal,
    random_exposure,
)
from tacit.auditing.secrets.extraction import (
    Extracted,
    MeasuredSecret,
    NextToken,
    beam,
    exact_rank,
    greedy,
    likeliest,
    log_perplexities,
    measure,
    next_token_of,
)
from tacit.auditing.secrets.formats import Canary, SecretFormat, Space, insert, insert_into_unit

__all__ = [
    "Canary",
    "Exposure",
    "Extracted",
    "MeasuredSecret",
    "NextToken",
    "SecretFormat",
    "SkewNormal",
    "Space",
    "beam",
    "combined_p_value",
    "exact_rank",
    "exposure_bound",
    "exposure_by_extrapolation",
    "exposure_by_rank",
    "exposure_by_sampling",
    "exposure_of_rank",
    "fit_skew_normal",
    "greedy",
    "insert",
    "insert_into_unit",
    "likeliest",
    "log_perplexities",
    "measure",
    "next_token_of",
    "random_exposure",
]
