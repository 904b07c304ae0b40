#pragma once

#include <span>
#include <vector>

#include "gemm/gemm_memory.hpp"
#include "gemm/sm90/device_tiles.hpp"
#include "gemm/sm90/ragged_tiles.hpp"

/// A plan's memory and tiles as the kernels of this family read them.
namespace flashoverlap::sm90 {

inline constexpr int warp_rows = 16;

/// How the TMA cuts a plan's matrices.
struct Boxes {
  DataType data_type;
  OperandLayout a_layout;
  OperandLayout b_layout;
  int a_rows;       ///< of A that a block loads at once, and of partial results: no more than its tiles have
  bool halves_a;    ///< or in two halves, for tiles that are joined
  int b_rows;       ///< of B: a part for each block of a cluster
  int b_matrices;   ///< one for each expert where these are matrices of their own, or 1
  int stored_rows;  ///< that every TMA store of the plan can take
};

/// `stored_rows`: that one TMA store of the kernel takes at most.
Boxes boxes_of(const Plan& plan, std::span<const RaggedTile> ragged, int stored_rows);

/// Sources are the operand itself (0) and the gathered one (1), which may stand for A or B. Throws
/// `InvalidArgument` for addresses that are no multiples of 16 bytes.
void bind_operand(const Boxes& boxes, BufferRole role, const DeviceMatrix& matrix, Matrices& matrices);

Destination resolve_destination(const Boxes& boxes, const DeviceMatrix& matrix);
std::vector<Destination> resolve_destinations(const Boxes& boxes, const GemmMemory& memory);

/// All that a launch works on but `out` and the destinations, which are memory of the caller.
void resolve_matrices(const Plan& plan, const GemmMemory& memory, const Boxes& boxes,
                      GemmArguments& arguments);

/// `memory`: see `GemmMemory::shares`.
void resolve_shares(const Plan& plan, std::byte* memory, GemmArguments& arguments);

/// Into the first of `tiles`, of which there are `most_entries`, and the arguments that go with them.
void resolve_tiles(const Plan& plan, std::span<const RaggedTile> ragged, const GemmMemory& memory,
                   const GemmOptions& options, const Boxes& boxes, std::span<DeviceTile> tiles,
                   GemmArguments& arguments);

}  // namespace flashoverlap::sm90
