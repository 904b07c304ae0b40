#!/bin/sh
# Writes the fuzzers' seeds again after a change of the plan format: tests/fuzz/make_corpus.sh FLASHOVERLAP
set -eu
command=${1:?usage: make_corpus.sh path/to/flashoverlap}
folder=$(dirname "$0")/corpus
mkdir -p "$folder"

seed() {
  name=$1
  shift
  "$command" plan "$@" --k $k --ranks 2 --multiprocessors 2 --tile 4x4 --save "$folder/$name.json" >/dev/null
}

k=4
for strategy in sequential signal copy store p2p; do
  seed "reduce_scatter-$strategy" gemm_reduce_scatter --m 8 --n 4 --strategy "$strategy"
done
seed all_reduce-tiled gemm_all_reduce --m 8 --n 8 --layout tiled
seed all_reduce-rounds gemm_all_reduce --m 16 --n 4 --strategy store --rounds 2
seed all_reduce-shots gemm_all_reduce --m 4 --n 8 --strategy store --shots 2
seed all_to_all-tiled gemm_all_to_all --m 8 --n 8 --layout tiled --random-destinations 1
seed all_to_all-heads gemm_all_to_all --m 8 --n 8 --exchange heads --strategy copy
seed all_gather-b all_gather_gemm --m 4 --n 8 --gather b --strategy store
seed all_to_all_gemm-rows all_to_all_gemm --m 8 --n 4 --random-destinations 1
seed all_to_all_gemm-heads all_to_all_gemm --m 8 --n 4 --exchange heads --strategy p2p
k=72
seed all_gather-rounds all_gather_gemm --m 4 --n 4 --strategy copy --rounds 2
