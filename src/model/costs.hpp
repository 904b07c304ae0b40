/// Formulas that the simulator and the predictor share: what tiles and transfers cost on a machine.
#pragma once

#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// The time to compute one tile entry. Ragged tiles take as long as full ones, which the hardware computes.
double tile_entry_microseconds(const Problem& problem, const Schedule& schedule, const Machine& machine);

/// Multiprocessors that collectives occupy: the machine's, or the schedule's cap where that is lower.
int collective_multiprocessors(const Schedule& schedule, const Machine& machine);

/// The time of a collective under the schedule's cap, without its launch; see
/// `Machine::collective_microseconds`.
double capped_collective_microseconds(const Problem& problem, const Schedule& schedule,
                                      const Machine& machine, MessageKind kind, double bytes);

/// Bytes of rows of one of the plan's buffers.
double bytes_of(const Plan& plan, const Region& region);

/// Bytes of a tile that other ranks receive.
double bytes_to_peers(const Plan& plan, const Tile& tile);

/// Whether a message is a copy or store into the memory of another rank.
bool writes_to_peer(const Plan& plan, const Message& message);

/// The bytes that a message's time depends on: the full matrix of a collective, what a copy or store moves,
/// or the larger of what an exchange sends to and receives from other ranks. 0 for messages without data.
double transferred_bytes(const Plan& plan, const Message& message);

/// The time of a message's transfer, without its launch; 0 for messages without data.
double transfer_microseconds(const Plan& plan, const Message& message, const Machine& machine);

}  // namespace flashoverlap
