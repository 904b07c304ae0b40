#include <fmt/format.h>

#include "flashoverlap/plan.hpp"
#include "flashoverlap/reader.hpp"
#include "plan/at.hpp"

namespace flashoverlap {

std::string_view name(Operation operation) {
  switch (operation) {
    case Operation::gemm_all_reduce: return "gemm_all_reduce";
    case Operation::gemm_reduce_scatter: return "gemm_reduce_scatter";
    case Operation::gemm_all_to_all: return "gemm_all_to_all";
    case Operation::all_gather_gemm: return "all_gather_gemm";
    case Operation::all_to_all_gemm: return "all_to_all_gemm";
  }
  return "?";
}

std::string_view name(Operand operand) { return operand == Operand::a ? "a" : "b"; }

std::string_view name(OperandLayout layout) {
  return layout == OperandLayout::k_contiguous ? "k_contiguous" : "row_contiguous";
}

std::string_view name(Exchange exchange) { return exchange == Exchange::rows ? "rows" : "heads"; }

std::string_view name(Strategy strategy) {
  switch (strategy) {
    case Strategy::sequential: return "sequential";
    case Strategy::signal: return "signal";
    case Strategy::copy: return "copy";
    case Strategy::store: return "store";
    case Strategy::p2p: return "p2p";
  }
  return "?";
}

std::string_view name(Layout layout) {
  switch (layout) {
    case Layout::natural: return "natural";
    case Layout::tiled: return "tiled";
    case Layout::partial: return "partial";
  }
  return "?";
}

std::string_view name(Reader reader) {
  switch (reader) {
    case Reader::caller: return "caller";
    case Reader::norm: return "norm";
  }
  return "?";
}

std::string_view name(BufferRole role) {
  switch (role) {
    case BufferRole::a: return "a";
    case BufferRole::b: return "b";
    case BufferRole::out: return "out";
    case BufferRole::staging: return "staging";
    case BufferRole::inbox: return "inbox";
    case BufferRole::gathered: return "gathered";
  }
  return "?";
}

std::string_view name(CounterRole role) {
  switch (role) {
    case CounterRole::tiles: return "tiles";
    case CounterRole::arrival: return "arrival";
    case CounterRole::credit: return "credit";
  }
  return "?";
}

std::string_view name(MessageKind kind) {
  switch (kind) {
    case MessageKind::all_reduce: return "all_reduce";
    case MessageKind::reduce_scatter: return "reduce_scatter";
    case MessageKind::all_gather: return "all_gather";
    case MessageKind::exchange: return "exchange";
    case MessageKind::copy: return "copy";
    case MessageKind::store: return "store";
    case MessageKind::signal: return "signal";
  }
  return "?";
}

std::string describe_counter(const Plan& plan, std::int32_t counter) {
  if (counter < 0 || counter >= static_cast<std::int64_t>(plan.counters.size())) {
    return fmt::format("counter {} (not in the plan)", counter);
  }
  const Counter& entry = at(plan.counters, counter);
  std::string text = fmt::format("counter {} ({}", counter, name(entry.role));
  if (entry.peer != none) text += fmt::format(" from rank {}", entry.peer);
  if (entry.group != none) text += fmt::format(", group {}", entry.group);
  return text + ")";
}

}  // namespace flashoverlap
