#!/usr/bin/env bash
# Starts a command once for each rank, as torchrun would, and waits for all. When one fails the others are ended, and
# its status is returned. Each rank has a GPU of this machine to itself. With --gpus, which needs NCCL 2.30, the ranks
# share this number of GPUs: slow, but it tests more ranks than there are GPUs. With --hosts, NCCL sees this number of
# hosts.
set -u

usage() {
  echo "usage: scripts/run_ranks.sh RANKS [--gpus GPUS] [--hosts HOSTS] COMMAND..." >&2
  exit 2
}

is_count() {
  [[ "$1" =~ ^[1-9][0-9]?$ ]]
}

ranks="${1:-}"
is_count "$ranks" || usage
shift
gpus="$ranks"
hosts=0
while [[ "${1:-}" = --gpus || "${1:-}" = --hosts ]]; do
  is_count "${2:-}" || usage
  [ "$2" -le "$ranks" ] || usage
  case "$1" in
    --gpus) gpus="$2" ;;
    --hosts) hosts="$2" ;;
  esac
  shift 2
done
[ $# -gt 0 ] || usage

[ "$gpus" -eq "$ranks" ] || export NCCL_MULTI_RANK_GPU_ENABLE=1
export WORLD_SIZE="$ranks" MASTER_ADDR=127.0.0.1 MASTER_PORT="${MASTER_PORT:-$((20000 + $$ % 10000))}"
processes=()
end_all() {
  kill "${processes[@]}" 2>/dev/null
  wait "${processes[@]}" 2>/dev/null
}
trap 'end_all; exit 130' INT TERM
for ((rank = 0; rank < ranks; ++rank)); do
  (
    export RANK="$rank" LOCAL_RANK=$((rank % gpus))
    [ "$hosts" -eq 0 ] || export NCCL_HOSTID="host$((rank * hosts / ranks))"
    exec "$@"
  ) &
  processes+=($!)
done

# Polled, as `wait -n` overlooks a process that was killed before the call.
while [ ${#processes[@]} -gt 0 ]; do
  running=()
  for process in "${processes[@]}"; do
    if kill -0 "$process" 2>/dev/null; then
      running+=("$process")
    else
      wait "$process"
      status=$?
      if [ "$status" -ne 0 ]; then
        sleep 1 # a rank that failed first may say why last
        end_all
        exit "$status"
      fi
    fi
  done
  processes=("${running[@]}")
  sleep 0.1
done
