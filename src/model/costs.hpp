/// Formulas that the simulator and the predictor share: what tiles and transfers cost on a machine.
#pragma once

#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Computing one tile entry. Ragged tiles take the time of full ones, as the hardware computes full tiles.
double tile_entry_microseconds(const Problem& problem, const Schedule& schedule, const Machine& machine);

/// Multiprocessors that collectives use: the schedule's cap, if that is lower than what the machine's occupy.
int collective_multiprocessors(const Schedule& schedule, const Machine& machine);

/// A collective under the schedule's cap, from its start on; see `Machine::collective_microseconds`.
double capped_collective_microseconds(const Problem& problem, const Schedule& schedule,
                                      const Machine& machine, MessageKind kind, double bytes);

/// Bytes of rows of one of the plan's buffers.
double bytes_of(const Plan& plan, const Region& region);

/// Bytes of a tile that other ranks receive.
double bytes_to_peers(const Plan& plan, const Tile& tile);

/// Whether a message is a copy or store into the memory of another rank.
bool writes_to_peer(const Plan& plan, const Message& message);

/// What a message is measured by: the full matrix of a collective, what a copy or store moves, the larger of
/// what an exchange sends to and receives from other ranks. 0 for messages without data.
double transferred_bytes(const Plan& plan, const Message& message);

/// From the start of a message's transfer to its end; 0 for messages without data.
double transfer_microseconds(const Plan& plan, const Message& message, const Machine& machine);

}  // namespace flashoverlap
