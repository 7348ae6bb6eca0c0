"""Networks and fixed features for private learning, none of which looks at data by itself."""

from tacit.models.devices import batched
from tacit.models.filters import standardised
from tacit.models.multiscale import MultiScale
from tacit.models.networks import (
    MapCnn,
    abadi_cnn,
    abadi_mlp,
    scatter_cnn,
    scatter_linear,
    tempered_cnn,
    wide_resnet,
    with_plain_filters,
)
from tacit.models.scattering import Scattering2d
from tacit.models.style_networks import style_images
from tacit.models.synthetic import synthetic_images
from tacit.models.whitening import Whitening, with_whitened_inputs

__all__ = [
    "MapCnn",
    "MultiScale",
    "Scattering2d",
    "Whitening",
    "abadi_cnn",
    "abadi_mlp",
    "batched",
    "scatter_cnn",
    "scatter_linear",
    "standardised",
    "style_images",
    "synthetic_images",
    "tempered_cnn",
    "wide_resnet",
    "with_plain_filters",
    "with_whitened_inputs",
]
