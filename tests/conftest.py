"""One thread for PyTorch: the tests' models are small, and the workers share the cores."""

import torch

torch.set_num_threads(1)
