#include "exec/cuda/route_exchange.hpp"

#include "comm/give_up.hpp"

namespace flashoverlap {

RouteExchange::RouteExchange(const Communicator& communicator, std::size_t entries)
    : communicator_(communicator),
      entries_(entries),
      words_((static_cast<std::size_t>(communicator.ranks()) + 1) * entries) {}

std::vector<std::vector<std::int32_t>> RouteExchange::gather(std::span<const std::int32_t> own) {
  const auto ranks = static_cast<std::size_t>(communicator_.ranks());
  const std::size_t first = ranks * entries_;
  for (std::size_t entry = 0; entry < entries_; ++entry)
    words_.write(first + entry, static_cast<std::uint32_t>(own.size() == entries_ ? own[entry] : -1));
  communicator_.all_gather(words_.device(first), words_.device(0), static_cast<std::int64_t>(entries_),
                           DataType::fp32, stream_);
  await_stream(stream_, communicator_, communicator_.options().wait_limit,
               "not every rank has said which rows it sends");
  std::vector<std::vector<std::int32_t>> all(ranks, std::vector<std::int32_t>(entries_));
  for (std::size_t word = 0; word < first; ++word)
    all[word / entries_][word % entries_] = static_cast<std::int32_t>(words_.read(word));
  return all;
}

}  // namespace flashoverlap
