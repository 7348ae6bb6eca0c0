"""tacit: deep learning with differential privacy, and the proof of what it gave away."""

__version__ = "0.1.0"
