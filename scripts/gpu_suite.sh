#!/bin/sh
# Runs what needs several GPUs on all GPUs of this machine, over every fabric that it can imitate: `test` or `bench`.
set -eu

command=build/release/flashoverlap
gpus=${GPUS:-$(nvidia-smi --list-gpus | wc -l)}
runs=${RUNS:-20}
ranks=scripts/run_ranks.sh
multi_node=build/release/examples/multi_node

[ -x $command ] || { echo "$command is missing: make build" >&2; exit 1; }
case "$($command check --gpus "$gpus" gemm_all_reduce --m 128 --n 64 --k 64 2>&1)" in
  *"was built without"*) echo "built without CUDA or NCCL: nothing here can run" >&2; exit 1 ;;
esac

several() {
  [ "$gpus" -ge 2 ] || { echo "$gpus GPU: what needs several is skipped"; exit 0; }
}

run() {
  echo "+ $*"
  "$@"
}

check() {
  run "$@" $command check --gpus "$gpus" --runs "$runs" --delays 200 --graph
}

# More ranks than GPUs, where NCCL lets ranks share one: 8 of one host, 16 of two, and two hosts with all GPUs each
check_shared() {
  [ "$gpus" -lt 8 ] || return 0
  shared="check --m 640 --n 896 --k 1024 --graph --wait-limit 120"
  if ! answer=$($ranks 8 --gpus "$gpus" $command check --gpus 8 gemm_all_reduce --strategy sequential --m 128 --n 64 \
      --k 64 --runs 1 2>&1); then
    case "$answer" in
      *"Duplicate GPU"*) echo "8 ranks on $gpus GPUs: skipped, as this NCCL gives each rank a GPU (2.30 does not)" ;;
      *) echo "$answer" >&2; exit 1 ;;
    esac
    return 0
  fi
  run $ranks 8 --gpus "$gpus" $command $shared --gpus 8 --runs "$runs" --delays 200
  for strategy in sequential signal p2p; do
    run $ranks 16 --gpus "$gpus" --hosts 2 $command $shared --gpus 16 --strategy $strategy --runs 1 --delays 200
  done
  run $ranks $((2 * gpus)) --gpus "$gpus" --hosts 2 $multi_node
}

# FABRIC STRATEGIES M LAUNCHER...: each operation, with a picture of the last shape
bench() {
  fabric=$1
  strategies=$2
  m=$3
  shift 3
  for operation in gemm_all_reduce gemm_reduce_scatter gemm_all_to_all all_gather_gemm all_to_all_gemm; do
    file=out/bench-$operation-$gpus-$fabric
    run "$@" $command bench $operation --gpus "$gpus" --m "$m" --strategy "$strategies" --layout natural,tiled \
      --json "$file.json" --timeline "$file.svg"
  done
}

has_python() {
  python3 -c "from importlib.util import find_spec as find; exit(not (find('torch') and find('flashoverlap')))" ||
    { echo "no PyTorch, or no flashoverlap for Python (pip install .): left out"; return 1; }
}

# Next to other libraries, those that are installed
bench_peers() {
  has_python || return 0
  run python3 -c "import torch, flashoverlap.gpu"
  for operation in gemm_reduce_scatter gemm_all_reduce all_gather_gemm; do
    run $ranks "$gpus" bench/peers/shapes.py $operation --out out/bench-$operation-$gpus-peers.json
  done
  run $ranks "$gpus" bench/peers/blocks.py --out out/bench-block-$gpus.json
  run $ranks "$gpus" bench/peers/layers.py attention experts --out out/bench-layers-$gpus.json
}

# The Python package, where it is installed next to PyTorch
check_python() {
  has_python || return 0
  run python3 -c "import torch, flashoverlap.gpu"
  run env FLASHOVERLAP_TUNING=off $ranks "$gpus" python3 -m pytest --quiet tests/python/gpu
  case "$gpus" in
    2 | 4 | 8) run env FLASHOVERLAP_TUNING=off $ranks "$gpus" python3 examples/python/decode.py --m 1 16 256 ;;
  esac
}

case "${1:-}" in
  test)
    run $command check --gpus 1
    run env FLASHOVERLAP_KERNELS=sm80 $command check --gpus 1
    check_shared
    several
    check env
    check env FLASHOVERLAP_KERNELS=sm80
    check env NCCL_P2P_DISABLE=1
    check $ranks "$gpus" --hosts 2
    run $ranks "$gpus" --hosts 2 $multi_node
    check_python
    ;;
  bench)
    several
    bench nvlink signal,copy,store 1024,2048,4096,8192,16384 env
    bench_peers
    bench pcie_like signal,p2p 2048,8192 env NCCL_P2P_DISABLE=1 NCCL_P2P_PCI_CHUNKSIZE=524288
    bench network_like signal,p2p 2048 $ranks "$gpus" --hosts 2
    ;;
  *) echo "usage: scripts/gpu_suite.sh test|bench" >&2; exit 2 ;;
esac
