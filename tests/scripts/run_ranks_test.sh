#!/usr/bin/env bash
# What scripts/run_ranks.sh tells the ranks, and how it ends. The argument is the repository's root.
set -u
run_ranks="$1/scripts/run_ranks.sh"
failures=0

expect_equal() {
  local name="$1" wanted="$2" actual="$3"
  [ "$wanted" = "$actual" ] && return
  printf '%s\n  wanted: %s\n  actual: %s\n' "$name" "$wanted" "$actual"
  failures=$((failures + 1))
}

# VARIABLES ARGUMENTS...: what the ranks have in these variables, sorted, on one line
told() {
  local variables="$1"
  shift
  env -u NCCL_HOSTID -u NCCL_MULTI_RANK_GPU_ENABLE "$run_ranks" "$@" bash -c "echo \"$variables;\"" | sort | paste -sd ' '
}

expect_equal "each rank has a GPU of its own" "0 0 3; 1 1 3; 2 2 3;" \
  "$(told '$RANK $LOCAL_RANK $WORLD_SIZE' 3)"
expect_equal "ranks take GPUs in turn" "0 0 1; 1 1 1; 2 0 1; 3 1 1;" \
  "$(told '$RANK $LOCAL_RANK $NCCL_MULTI_RANK_GPU_ENABLE' 4 --gpus 2)"
expect_equal "NCCL is told of shared GPUs only" "0 ; 1 ;" "$(told '$RANK $NCCL_MULTI_RANK_GPU_ENABLE' 2 --gpus 2)"
expect_equal "hosts hold ranks that follow each other" "0 host0; 1 host0; 2 host0; 3 host1; 4 host1; 5 host1;" \
  "$(told '$RANK $NCCL_HOSTID' 6 --gpus 3 --hosts 2)"

for arguments in "" "0 true" "two true" "2" "2 --gpus 3 true" "2 --gpus 0 true" "2 --hosts 3 true" "2 --hosts"; do
  # shellcheck disable=SC2086
  "$run_ranks" $arguments >/dev/null 2>&1
  expect_equal "refused: '$arguments'" 2 $?
done

"$run_ranks" 3 true
expect_equal "all ranks succeed" 0 $?

begin=$SECONDS
"$run_ranks" 3 bash -c '[ $RANK -ne 1 ] || exit 7; exec sleep 60'
expect_equal "the failing rank's status is returned" 7 $?
expect_equal "the others are ended" 1 $((SECONDS - begin < 30))

exit $((failures > 0))
