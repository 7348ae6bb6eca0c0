"""kymatio's scattering transform of an array of images, asked for line by line.

Each line of the input is {"images": FILE.npy, "out": FILE.npy or "", "batch": B}; the answer is a
line with the seconds and the processor seconds that it took on one core. Only the torch front end
is imported, for the package as a whole does not import with today's SciPy.
"""

import json
import sys
import time
import warnings
from importlib.metadata import version

import numpy as np
import torch

warnings.simplefilter("ignore")  # kymatio has strings with invalid escapes
from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D  # noqa: E402


def main() -> None:
    torch.set_num_threads(1)
    print(json.dumps({name: version(name) for name in ("kymatio", "torch")}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answered(json.loads(line))), flush=True)


def answered(request: dict[str, object]) -> dict[str, float]:
    images = torch.from_numpy(np.load(str(request["images"]))).float() / 255
    transform = ScatteringTorch2D(2, tuple(images.shape[-2:]), L=8)
    transform(images[:16])  # what is set up once does not count
    start, worked = time.perf_counter(), time.process_time()
    features = torch.cat([transform(part) for part in images.split(int(str(request["batch"])))])
    answer = {
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - worked,
    }
    if request["out"]:
        np.save(str(request["out"]), features.numpy())
    return answer


if __name__ == "__main__":
    main()
