#!/bin/sh
# Installs the Debian packages that are missing: `build` (compile and test) or `tools` (lint, format, fuzz).
set -eu

case "${1:-build}" in
  build) needed="g++ cmake ninja-build libfmt-dev libcli11-dev nlohmann-json3-dev
                 libgtest-dev libgmock-dev libbenchmark-dev libopenblas-dev pkgconf
                 python3-dev python3-venv" ;;
  tools) needed="clang clang-format clang-tidy libclang-rt-14-dev" ;;
  *) echo "usage: scripts/setup.sh [build|tools]" >&2; exit 2 ;;
esac

missing=""
for package in $needed; do
  status=$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "No apt-get here. What these Debian packages hold is needed:$missing" >&2
  exit 1
fi

as_root=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Neither root nor sudo. Please install as root:$missing" >&2
    exit 1
  fi
  as_root=sudo
fi

echo "Installing missing Debian packages:$missing"
$as_root apt-get update -qq
# Unquoted on purpose: one word per package.
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $missing
