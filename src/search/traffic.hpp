/// What a problem makes ranks send to each other, however it is scheduled.
#pragma once

#include "flashoverlap/plan.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap {

/// The collective that all of the communication can be done by.
MessageKind collective_of(Operation operation);

/// The rank whose C has the most rows. Counts rows where they are routed.
int rank_with_most_rows(const Problem& problem);

/// Bytes that the rank which must send the most sends to others.
double most_sent_bytes(const Problem& problem);

/// Bytes of the full matrix of a collective in which a rank sends this many.
double matrix_bytes(MessageKind kind, int ranks, double sent_bytes);

}  // namespace flashoverlap
