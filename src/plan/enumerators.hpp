/// Enumerators by name: the inverse of `name(Enum)`.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "flashoverlap/plan.hpp"
#include "flashoverlap/reader.hpp"

namespace flashoverlap {

/// All enumerators of an enumeration, in the order of their declaration.
template <typename Enum>
inline constexpr auto enumerators = nullptr;

template <>
inline constexpr std::array enumerators<Operation>{Operation::gemm_all_reduce, Operation::gemm_reduce_scatter,
                                                   Operation::gemm_all_to_all, Operation::all_gather_gemm,
                                                   Operation::all_to_all_gemm};
template <>
inline constexpr std::array enumerators<DataType>{DataType::bf16, DataType::fp16, DataType::fp32};
template <>
inline constexpr std::array enumerators<Operand>{Operand::a, Operand::b};
template <>
inline constexpr std::array enumerators<OperandLayout>{OperandLayout::k_contiguous,
                                                       OperandLayout::row_contiguous};
template <>
inline constexpr std::array enumerators<Exchange>{Exchange::rows, Exchange::heads};
template <>
inline constexpr std::array enumerators<Strategy>{Strategy::sequential, Strategy::signal, Strategy::copy,
                                                  Strategy::store, Strategy::p2p};
template <>
inline constexpr std::array enumerators<Layout>{Layout::natural, Layout::tiled, Layout::partial};
template <>
inline constexpr std::array enumerators<Reader>{Reader::caller, Reader::norm};
template <>
inline constexpr std::array enumerators<BufferRole>{BufferRole::a,     BufferRole::b,
                                                    BufferRole::out,   BufferRole::staging,
                                                    BufferRole::inbox, BufferRole::gathered};
template <>
inline constexpr std::array enumerators<CounterRole>{CounterRole::tiles, CounterRole::arrival,
                                                     CounterRole::credit};
template <>
inline constexpr std::array enumerators<MessageKind>{
    MessageKind::all_reduce, MessageKind::reduce_scatter, MessageKind::all_gather, MessageKind::exchange,
    MessageKind::copy,       MessageKind::store,          MessageKind::signal};

template <typename Enum>
std::optional<Enum> from_name(std::string_view text) {
  for (const Enum value : enumerators<Enum>) {
    if (name(value) == text) return value;
  }
  return std::nullopt;
}

/// "bf16, fp16, fp32": for the error message of an unknown name.
template <typename Enum>
std::string names_of() {
  std::string names;
  for (const Enum value : enumerators<Enum>) {
    if (!names.empty()) names += ", ";
    names += name(value);
  }
  return names;
}

}  // namespace flashoverlap
