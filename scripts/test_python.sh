#!/usr/bin/env bash
# Installs the Python package into a new environment and runs its tests there, on ranks of the host.
# usage: scripts/test_python.sh [FOLDER [EXTRAS]]    EXTRAS: of pyproject.toml; test,torch runs the tests of PyTorch too
# Returns 77, skipped, where nanobind cannot be downloaded.
set -eu
cd "$(dirname "$0")/.."
folder="${1:-build/test-python}"
extras="${2:-test}"

python3 -m venv --clear "$folder"
if ! "$folder/bin/pip" download --quiet --no-deps --dest "$folder/reached" nanobind; then
  echo "not tested: nanobind cannot be had from PyPI" >&2
  exit 77
fi
"$folder/bin/pip" install --quiet --config-settings=cmake.define.FLASHOVERLAP_CUDA=OFF ".[$extras]"
"$folder/bin/python" -m pytest --quiet -rs -p no:cacheprovider
