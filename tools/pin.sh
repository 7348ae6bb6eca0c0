#!/bin/sh
# Writes constraints.txt: the versions that a fresh environment resolves to today. torch is the one
# that the figures were measured with; a build's local version (+cpu) is left off, so that any build
# of it will do. Then constraints.lock, with the checksums of their files; TORCH_WHEEL names a build
# of torch that the package index does not have.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
pip="$work/venv/bin/python -m pip --disable-pip-version-check"
$pip install --quiet hatchling editables
$pip install --quiet --no-build-isolation --editable '.[dev,docs,hf,cluster]' torch==2.13.0
{
    echo "# Exact versions of everything that a development install brings (python 3.11)."
    echo "# Made by 'make constraints'; edit pyproject.toml and run that, not this file."
    $pip freeze --all --exclude-editable --exclude pip | sed 's/+[a-z0-9.]*$//' |
        LC_ALL=C sort --ignore-case
} >"$work/constraints.txt"
mv "$work/constraints.txt" constraints.txt
"$work/venv/bin/python" tools/hashes.py ${TORCH_WHEEL:+"$TORCH_WHEEL"}
