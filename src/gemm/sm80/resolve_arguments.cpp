#include "gemm/sm80/resolve_arguments.hpp"

#include "flashoverlap/error.hpp"
#include "gemm/device/resolve_tiles.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap::sm80 {

void resolve_matrices(const Plan& plan, const GemmMemory& memory, GemmArguments& arguments) {
  const auto& own = memory.buffers[static_cast<std::size_t>(plan.rank)];
  for (const BufferRole role : {BufferRole::a, BufferRole::b, BufferRole::gathered})
    bind_operand(role, own[static_cast<std::size_t>(role)], arguments);
  arguments.out = resolve_destination(own[static_cast<std::size_t>(BufferRole::out)]);
  arguments.expert_depth = blocks_of_b(plan.problem) > 1 ? static_cast<std::int32_t>(plan.problem.k) : 0;
}

void bind_operand(BufferRole role, const DeviceMatrix& matrix, GemmArguments& arguments) {
  constexpr std::int64_t most_bytes = 1 << 24;  // `OperandLoader` counts the bytes of 256 rows in 32 bits
  require(reinterpret_cast<std::uintptr_t>(matrix.base) % 16 == 0, fmt::format("address of {}", name(role)),
          matrix.base, "must be a multiple of 16 bytes");
  require(matrix.pitch % 8 == 0 && matrix.pitch * 2 <= most_bytes, fmt::format("pitch of {}", name(role)),
          matrix.pitch, "must be a multiple of 8 elements, and a row at most 16 MiB");
  const DeviceOperand operand{static_cast<const std::byte*>(matrix.base),
                              static_cast<std::int32_t>(matrix.pitch * 2)};
  const int source = role == BufferRole::gathered ? 1 : 0;
  if (role != BufferRole::b) arguments.a[source] = operand;
  if (role != BufferRole::a) arguments.b[source] = operand;
}

}  // namespace flashoverlap::sm80
