"""``python -m tacit``: the command ``tacit``."""

from __future__ import annotations

import sys

from tacit.cli import main

if __name__ == "__main__":
    sys.exit(main())
