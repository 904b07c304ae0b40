#!/usr/bin/env bash
# Every command and every long option of every --help is in the manual of the package in PREFIX.
set -u
command=$1/bin/flashoverlap
manual=$(sed 's/\\-/-/g' "$1/share/man/man1/flashoverlap.1")
failures=0
options=0

expect() {
  grep -qE -- "(^|[^a-z_-])$1([^a-z_-]|$)" <<<"$manual" && return
  echo "the manual lacks $1, of flashoverlap $2"
  failures=$((failures + 1))
}

# ARGUMENTS...: a command and its subcommands
visit() {
  local help name
  help=$("$command" "$@" --help) || exit 1
  for name in $(grep -oE '^ +(-h,)?--[a-z-]+' <<<"$help" | sed 's/.*--/--/'); do
    options=$((options + 1))
    expect "$name" "$*"
  done
  for name in $(sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z_]*\)  .*/\1/p' <<<"$help"); do
    expect "$name" "$*"
    visit "$@" "$name"
  done
}

visit
[ "$options" -ge 50 ] || { echo "only $options options were found"; exit 1; }
exit $((failures > 0))
