/// Formulas that the simulator and the predictor share: what tiles and transfers cost on a machine.
#pragma once

#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// A copy within the GPU, which reads and writes.
double copied_microseconds(const Machine& machine, double bytes);

/// What a tile's products take at the machine's rate.
double operations_microseconds(const Machine& machine, const KernelTile& tile, double k);

/// A wave of a kernel's tiles at full clocks, in a GEMM of this many waves: see `Machine::kernels`. Blocks
/// that wait for what they load wait less where fewer multiprocessors load.
double wave_microseconds(const Machine& machine, const KernelTile& tile, OperandLayout b_layout,
                         std::int64_t k, double waves, int multiprocessors);

/// What a GEMM takes at least to read its operands and write C once, elements of 16 bits.
double least_memory_microseconds(const Machine& machine, const Shape& gemm, std::int64_t k);

/// What it takes with this kernel: the memory's rate is reached as far as loads of the larger operand are
/// under way. What several tiles have in common comes from the L2 cache.
double memory_microseconds(const Machine& machine, const KernelTile& tile, const Shape& gemm, std::int64_t k,
                           int multiprocessors, bool share_k);

/// What a GEMM on this many multiprocessors takes at the clocks that the GPU can sustain, if it takes this
/// long at full ones: see `Machine::throttled`. The memory's rate does not depend on them.
double sustained_microseconds(const Machine& machine, double microseconds, int multiprocessors);

/// The time of one tile entry of a rank's GEMM with this many waves, of which the last may be shared and
/// count in part. Ragged tiles take as long as full ones, which the hardware computes.
double tile_entry_microseconds(const Problem& problem, int rank, const Schedule& schedule,
                               const Machine& machine, double waves);

/// The time of a tile that only adds: what it reads and writes, at its multiprocessors' part of the memory's
/// rate, which those share that add.
double adding_microseconds(const Plan& plan, const Machine& machine);
/// What a tile takes longer that adds other ranks' partial results to its own: what it reads.
double partials_microseconds(const Plan& plan, const Machine& machine);

/// Multiprocessors that collectives occupy: the machine's, or the schedule's cap where that is lower.
int collective_multiprocessors(const Schedule& schedule, const Machine& machine);

/// How many times as long tiles take while a collective or an exchange of this kind is under way.
double collective_slowdown(const Machine& machine, const Schedule& schedule, MessageKind kind);

/// Between the copies to peers that wait for tiles: a raise and a wait take 8 to 10 us; the rest is that
/// copies of ranks that are out of step meet at one peer. Fitted to 27 ReduceScatters on 4 H200.
inline constexpr double copy_pause_us = 12;

/// Multiprocessors that a GEMM of this many tile entries leaves to messages.
int free_multiprocessors(const Schedule& schedule, const Machine& machine, std::int64_t entries);

/// What stores of these bytes take at least by the multiprocessors that are left to them, if that is known.
double least_store_microseconds(const Schedule& schedule, const Machine& machine, double bytes);

/// The time that stores of these bytes to peers occupy a rank's link, besides their start.
double stored_microseconds(const Machine& machine, int ranks, double bytes);
/// The same where a GEMM's tiles are stored: with more than two ranks `to_all` or one after the other.
double tiles_stored_microseconds(const Machine& machine, const Problem& problem, double bytes, bool to_all);

/// How long after a tile is computed, which takes `tile_us`, its counter tells a peer that it has come, where
/// its block computes another one: meanwhile it stores it. Who waits for tiles waits for the slowest block's.
double store_delay_microseconds(const Machine& machine, const Problem& problem, const Schedule& schedule,
                                double tile_us);

/// The time of a collective under the schedule's cap, without its launch; for one without a cap see
/// `Machine::collective_microseconds`. `during_gemm`: all other multiprocessors compute tiles meanwhile.
double capped_collective_microseconds(int ranks, const Schedule& schedule, const Machine& machine,
                                      MessageKind kind, double bytes, bool during_gemm);

/// Whether the last one by `Strategy::signal` goes without the schedule's cap: a collective after the GEMM.
/// Exchanges keep it, as one rank may have fewer of them than another.
bool last_has_no_cap(const Problem& problem, MessageKind kind);

/// Bytes of rows of one of the plan's buffers.
double bytes_of(const Plan& plan, const Region& region);

/// Bytes of a tile that other ranks receive.
double bytes_to_peers(const Plan& plan, const Tile& tile);

/// Whether a message is a copy or store into the memory of another rank.
bool writes_to_peer(const Plan& plan, const Message& message);

/// The bytes that a message's time depends on: the full matrix of a collective, what a copy or store moves,
/// or the larger of what an exchange sends to and receives from other ranks. 0 for messages without data.
double transferred_bytes(const Plan& plan, const Message& message);

/// What a message's transfer takes, without its launch, if nothing is computed meanwhile, and if tiles are
/// all the time. 0 for messages without data.
struct TransferTime {
  double alone_us = 0;
  double during_gemm_us = 0;
};

/// `is_capped`: the schedule's cap holds for its collective. `follows_at_once`: a store is in the same kernel
/// as the one before it, and so takes what its bytes do at the rate of large ones.
TransferTime transfer_time(const Plan& plan, const Message& message, const Machine& machine, bool is_capped,
                           bool follows_at_once);

}  // namespace flashoverlap
