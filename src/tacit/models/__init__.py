"""Networks and fixed features for private learning, none of which looks at data by itself."""

from tacit.models.batching import batched
from tacit.models.map_cnn import MapCnn
from tacit.models.multiscale import MultiScale
from tacit.models.networks import (
    abadi_cnn,
    abadi_mlp,
    scatter_cnn,
    scatter_linear,
    tempered_cnn,
)
from tacit.models.scattering import Scattering2d
from tacit.models.synthetic import synthetic_images
from tacit.models.whitening import Whitening
from tacit.models.wide_residual import wide_resnet

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
    "synthetic_images",
    "tempered_cnn",
    "wide_resnet",
]
