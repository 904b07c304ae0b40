#!/usr/bin/env bash
# What the completion of the package in PREFIX offers.
set -u
export LC_ALL=C
PATH=$1/bin:$PATH
. "$1/share/bash-completion/completions/flashoverlap" || exit 1
failures=0

# WORDS... of which the last is to be completed: what is offered, sorted, on one line
offered() {
  COMP_WORDS=(flashoverlap "$@")
  COMP_CWORD=$#
  _flashoverlap
  printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd ' '
}

expect() {
  local wanted="$1" actual
  shift
  actual=$(offered "$@")
  [ "$wanted" = "$actual" ] && return
  printf 'flashoverlap %s\n  wanted: %s\n  actual: %s\n' "$*" "$wanted" "$actual"
  failures=$((failures + 1))
}

expect "check" ch
expect "--help --version" --
expect "--capacity --cluster --comm-multiprocessors" plan --c
expect "gemm_all_reduce gemm_all_to_all" plan gemm_all_
expect "gemm gemm_all_reduce gemm_all_to_all gemm_reduce_scatter" bench gemm
expect "--leave-free" bench gemm --l
expect "copy" check gemm_all_reduce --strategy c
expect "best" plan gemm_all_reduce --strategy b
expect "a b" plan all_gather_gemm --gather ""
expect "" plan --m 12
expect "--cache --clear" tune --c
expect "--list" tune --cache cache --l
expect "" tune --export ""
expect "" timeline --svg ""
expect "--search --share-k --shots --strategy --svg" timeline --json --s
exit $((failures > 0))
