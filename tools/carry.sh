#!/bin/sh
# Puts into .carry/ what a bare machine with Python 3.12, torch, NumPy, SciPy and safetensors lacks to
# run the tests and benchmarks/mutants.py, for one that cannot download: about 50 MB, and ignored by
# git. Run there with PYTHONPATH=$PWD/src:$PWD/.carry.
set -eu
cd "$(dirname "$0")/.."
rm -rf .carry
"${PYTHON:-python3}" -m pip install --quiet --target .carry --no-deps --constraint constraints.txt \
    --python-version 3.12 --implementation cp --only-binary=:all: \
    --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 \
    alembic cffi click cryptography hypothesis iniconfig jinja2 mako markdown-it-py markupsafe mdurl \
    mpmath packaging pluggy pycparser pygments pytest rich safetensors sortedcontainers sqlalchemy \
    typing_extensions
find .carry -name __pycache__ -type d -prune -exec rm -rf {} +
exclude=$(git rev-parse --git-path info/exclude)
mkdir -p "$(dirname "$exclude")"
grep -qx '\.carry/' "$exclude" || echo '.carry/' >>"$exclude"
du -sh .carry
