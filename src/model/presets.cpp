#include <fmt/ranges.h>

#include "flashoverlap/error.hpp"
#include "flashoverlap/machine.hpp"

namespace flashoverlap {

namespace {

constexpr double mib = 1 << 20;

/// What H200 NVLink and PCIe-like have in common: the GPU.
Machine h200() {
  Machine machine;
  machine.sources = {
      "compute_capability, multiprocessors, memory_gigabytes_per_second: datasheet",
      "teraflops, tile_microseconds: derived, fitted to cuBLAS bf16 on six shapes measured on H200, "
      "2026-11-20 "
      "(2048x8192x3584 162 us, 8192x8192x3584 647 us, 16384x8192x3584 1284 us, 8192x16384x6656 2419 us, "
      "1024x8192x1024 39 us, 8192x3584x8192 550 us); each is met within 7 %",
      "launch_microseconds: derived from the same run: GEMM then NCCL takes at most 1 us longer than the two "
      "alone",
      "signal_microseconds: measured on H200, 2026-11-20: cuStreamWaitValue32 released after the kernel that "
      "raised "
      "the counter ended",
  };
  machine.compute_capability = 90;
  machine.multiprocessors = 132;
  machine.teraflops = 966;
  machine.tile_microseconds = 10.7;
  machine.launch_microseconds = 1;
  machine.signal_microseconds = 3;
  machine.memory_gigabytes_per_second = 4800;
  return machine;
}

Machine h200_nvlink() {
  Machine machine = h200();
  machine.name = "h200-nvlink";
  machine.sources.insert(
      machine.sources.end(),
      {
          "comm_multiprocessors: measured on 8 H200, 2026-11-20, NCCL 2.28 by cap on thread blocks: with 16 "
          "AllReduce "
          "is 7 % and ReduceScatter 5 % slower than without a cap, with 8 by 1.7 and 1.5 times",
          "collectives, 2 ranks: measured on 2 H200 (NVLink, multicast off), NCCL 2.28, 2026-11-20",
          "collectives, 8 ranks, from 16.8 MB on: measured on 8 H200, as above",
          "collectives, 8 ranks, at 1 MiB: derived, the start-up measured with 2 ranks",
          "all_gather, 8 ranks, other than 134 MB: derived, ReduceScatter, which equals it at 134 MB (385 "
          "and 384 us)",
          "copy_engine: measured on 2, 4 (200-300 GB/s out of each, 250 taken) and 8 H200 (7 x 16.8 MB in "
          "650-800 us, "
          "725 taken), 2026-11-20; 1 MiB with 4 and 8 ranks derived from the start-up with 2",
          "store: measured on 8 H200, 2026-11-20 (7 x 16.8 MB in 337 us); 1 MiB derived from the copy "
          "engine's "
          "start-up",
      });
  machine.comm_multiprocessors = 16;
  machine.peer_access = true;
  machine.collectives = {
      {MessageKind::all_reduce,
       {{2, {{{1 * mib, 45}, {4 * mib, 42}, {16 * mib, 77}, {64 * mib, 248}, {256 * mib, 893}}}},
        {8, {{{1 * mib, 45}, {16.8e6, 149}, {33.6e6, 217}, {134.2e6, 698}, {268.4e6, 1377}}}}}},
      {MessageKind::reduce_scatter,
       {{2, {{{1 * mib, 43}, {4 * mib, 38}, {16 * mib, 53}, {64 * mib, 168}, {256 * mib, 585}}}},
        {8, {{{1 * mib, 43}, {16.8e6, 88}, {33.6e6, 115}, {134.2e6, 385}, {268.4e6, 737}}}}}},
      {MessageKind::all_gather,
       {{2, {{{1 * mib, 36}, {4 * mib, 39}, {16 * mib, 56}, {64 * mib, 159}, {256 * mib, 549}}}},
        {8, {{{1 * mib, 36}, {16.8e6, 88}, {33.6e6, 115}, {134.2e6, 384}, {268.4e6, 737}}}}}},
      {MessageKind::exchange,
       {{2, {{{1 * mib, 49}, {4 * mib, 44}, {16 * mib, 57}, {64 * mib, 140}, {256 * mib, 480}}}}}},
  };
  machine.copy_engine = {
      {2, {{{1 * mib, 4.92}, {4 * mib, 13.1}, {16 * mib, 46.2}, {64 * mib, 172.5}, {512 * mib, 1355.7}}}},
      {4, {{{1 * mib, 6.5}, {16 * mib, 67.1}}}},
      {8, {{{1 * mib, 8.8}, {16 * mib, 103.6}}}},
  };
  machine.store = {{8, {{{1 * mib, 5.3}, {16 * mib, 48.1}}}}};
  return machine;
}

Machine h200_pcie() {
  Machine machine = h200();
  machine.name = "h200-pcie";
  machine.sources.insert(
      machine.sources.end(),
      {
          "comm_multiprocessors: published, the reference code of arXiv 2504.19519 leaves 2",
          "all_reduce, 2 and 4 ranks, reduce_scatter, 4 ranks: measured on H200 with NCCL_P2P_DISABLE=1 "
          "(through host memory, as "
          "between PCIe cards), NCCL 2.28, 2026-11-20; at 1 MiB derived: the bandwidth of the smallest size "
          "measured "
          "after a start-up of 45 us, that of NVLink",
          "all_gather, exchange: derived, ReduceScatter, as each rank moves as many bytes",
      });
  machine.comm_multiprocessors = 2;
  const CurvesByRanks reduce_scatter = {
      {4, {{{1 * mib, 76}, {16 * mib, 493}, {64 * mib, 2123}, {256 * mib, 8607}}}}};
  machine.collectives = {
      {MessageKind::all_reduce,
       {{2, {{{1 * mib, 82}, {64 * mib, 2386}}}},
        {4, {{{1 * mib, 99}, {16 * mib, 871}, {64 * mib, 4076}, {256 * mib, 16533}}}}}},
      {MessageKind::reduce_scatter, reduce_scatter},
      {MessageKind::all_gather, reduce_scatter},
      {MessageKind::exchange, reduce_scatter},
  };
  return machine;
}

Machine a800() {
  Machine machine;
  machine.name = "a800";
  machine.sources = {
      "compute_capability, multiprocessors, memory_gigabytes_per_second: datasheet (A800 SXM)",
      "teraflops, tile_microseconds: derived, fitted to the GEMM times that evaluation/results.csv of "
      "github.com/infinigence/FlashOverlap (e704f6e) leaves after communication, m and n 8192 and 16384, k "
      "2048 to "
      "8192; each is met within 8 %",
      "all_reduce, reduce_scatter at 134 and 268 MB: derived, GEMM+NCCL with k = 4096 in the same file less "
      "the GEMM "
      "times in its configs/*_a800.json (2.361 and 4.513 ms); this gives 167-192 GB/s of bus bandwidth "
      "throughout",
      "all_reduce, reduce_scatter at 1 MiB: derived, the start-up measured on 2 H200",
      "all_gather, exchange: derived, ReduceScatter, as each rank moves as many bytes",
      "copy_engine, store: derived, the shares of the link (datasheet: 200 GB/s each way) that H200 reaches: "
      "88 % with "
      "2 ranks, 56 % with 4, 36 % with 8; stores 77 %; start-up as on H200",
      "comm_multiprocessors: published, the reference code of arXiv 2504.19519 leaves 2",
      "launch_microseconds, signal_microseconds: derived, as on H200",
  };
  machine.compute_capability = 80;
  machine.multiprocessors = 108;
  machine.teraflops = 277;
  machine.tile_microseconds = 16.8;
  machine.launch_microseconds = 1;
  machine.signal_microseconds = 3;
  machine.memory_gigabytes_per_second = 2039;
  machine.comm_multiprocessors = 2;
  machine.peer_access = true;
  const CurvesByRanks reduce_scatter = {{2, {{{1 * mib, 43}, {134.2e6, 402}, {268.4e6, 770}}}},
                                        {4, {{{1 * mib, 43}, {134.2e6, 540}, {268.4e6, 1084}}}},
                                        {8, {{{1 * mib, 43}, {134.2e6, 628}, {268.4e6, 1221}}}}};
  machine.collectives = {
      {MessageKind::all_reduce,
       {{2, {{{1 * mib, 45}, {134.2e6, 740}, {268.4e6, 1546}}}},
        {4, {{{1 * mib, 45}, {134.2e6, 1139}, {268.4e6, 2211}}}},
        {8, {{{1 * mib, 45}, {134.2e6, 1291}, {268.4e6, 2529}}}}}},
      {MessageKind::reduce_scatter, reduce_scatter},
      {MessageKind::all_gather, reduce_scatter},
      {MessageKind::exchange, reduce_scatter},
  };
  machine.copy_engine = {
      {2, {{{1 * mib, 8.2}, {16 * mib, 97.6}}}},
      {4, {{{1 * mib, 11.7}, {16 * mib, 153.3}}}},
      {8, {{{1 * mib, 16.8}, {16 * mib, 235.3}}}},
  };
  machine.store = {{8, {{{1 * mib, 9.1}, {16 * mib, 110.7}}}}};
  return machine;
}

Machine rtx4090() {
  Machine machine;
  machine.name = "rtx4090";
  machine.sources = {
      "compute_capability, multiprocessors, memory_gigabytes_per_second: datasheet",
      "teraflops, tile_microseconds: published, torch fp16 matmul 167 TFLOP/s at n = 2048 and 159 at 8192 "
      "(github.com/mli/transformers-benchmarks issue 4), which leave no time per tile; 1 us is kept for it",
      "peer_access: published, the GeForce driver gives none "
      "(allanchan339.github.io/bug-fixes/2025/05/21/4090-P2P.html)",
      "all_reduce, 4 ranks, from 268 MB on: published, nccl-tests on four RTX 4090 (25.7 GB/s of bus "
      "bandwidth; "
      "github.com/tinygrad/open-gpu-kernel-modules issue 36: behind a switch, with a driver that gives NCCL "
      "peer "
      "access; a stock driver goes through host memory and can be slower)",
      "all_reduce, 4 ranks, at 192 KiB: derived, 13 % of that bandwidth, the share published for one tile in "
      "arXiv "
      "2504.19519",
      "reduce_scatter, all_gather, exchange: derived, half of AllReduce, as each rank moves half as many "
      "bytes",
      "comm_multiprocessors: published, the reference code of arXiv 2504.19519 leaves 2",
      "launch_microseconds, signal_microseconds: derived, as on H200",
  };
  machine.compute_capability = 89;
  machine.multiprocessors = 128;
  machine.teraflops = 161;
  machine.tile_microseconds = 1;
  machine.launch_microseconds = 1;
  machine.signal_microseconds = 3;
  machine.memory_gigabytes_per_second = 1008;
  machine.comm_multiprocessors = 2;
  const CurvesByRanks half = {{4, {{{192 * 1024, 44.1}, {256 * mib, 7827}, {1024 * mib, 31038}}}}};
  machine.collectives = {
      {MessageKind::all_reduce, {{4, {{{192 * 1024, 88.2}, {256 * mib, 15654}, {1024 * mib, 62077}}}}}},
      {MessageKind::reduce_scatter, half},
      {MessageKind::all_gather, half},
      {MessageKind::exchange, half},
  };
  return machine;
}

std::vector<Machine> all_presets() {
  return {h200_nvlink(), h200_pcie(), a800(), rtx4090()};
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Machine& machine : all_presets()) names.push_back(machine.name);
  return names;
}

Machine preset(std::string_view name) {
  for (Machine& machine : all_presets()) {
    if (machine.name == name) return std::move(machine);
  }
  throw InvalidArgument("machine", fmt::format("\"{}\"", name),
                        fmt::format("must be one of {}", fmt::join(preset_names(), ", ")));
}

}  // namespace flashoverlap
