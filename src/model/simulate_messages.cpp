#include <algorithm>
#include <utility>

#include "flashoverlap/error.hpp"
#include "model/costs.hpp"
#include "model/simulator.hpp"
#include "model/stream_costs.hpp"
#include "plan/matching.hpp"
#include "plan/message_needs.hpp"
#include "plan/message_rules.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {
namespace {

/// Between two copies or stores that follow each other: a copy raises, stores are one kernel.
double pause_before(const Plan& plan, std::size_t index) {
  constexpr double raises_us = 2;  // 12 copies to three peers took 329 us instead of 306 on 4 H100
  const bool is_copied = plan.messages[index].kind == MessageKind::copy;
  return is_copied && !shares_raises(plan, plan.messages, index) ? raises_us : 0;
}

/// When a copy that waits for tiles may begin at the earliest.
double after_earlier_copy(const RankProgress& rank, const Message& message) {
  const bool is_held = copies_to_peer(*rank.plan, message) && waits_for_tiles(*rank.plan, message);
  return is_held && rank.copies_end_us > 0 ? rank.copies_end_us + copy_pause_us : 0;
}

/// As far as it is known what is computed meanwhile.
double slowed_transfer_end(const RankProgress& rank) {
  const auto& [left, from_us, time] = *rank.slowed;
  const double slowed_us = std::clamp(rank.computing_until_us - from_us, 0.0, left * time.during_gemm_us);
  return from_us + slowed_us + (left - slowed_us / time.during_gemm_us) * time.alone_us;
}

void note_sending(const Machine& machine, RankProgress& rank, const Message& message, double end_us) {
  if (message.kind <= MessageKind::exchange) {
    rank.collectives_end_us = end_us;
    rank.collective_slowdown = collective_slowdown(machine, rank.plan->schedule, message.kind);
  } else if (message.peer != rank.plan->rank) {
    (message.kind == MessageKind::copy ? rank.copies_end_us : rank.stores_end_us) = end_us;
  }
}

}  // namespace

void Simulator::find_partners(std::span<const Plan> plans) {
  const Matching matching = match_messages(plans);
  if (!matching.differences.empty()) throw InvalidPlan(matching.differences.front());
  const auto join = [this](const MessagePlace& one, const MessagePlace& other) {
    MessageProgress& joined = progress_of(one);
    joined.partners.push_back(other);
    ++joined.missing;
  };
  for (const auto& members : matching.collectives) {
    std::vector<MessagePlace> places;
    for (const std::int32_t message : members)
      places.push_back({static_cast<std::int32_t>(places.size()), message});
    for (const MessagePlace& one : places) {
      for (const MessagePlace& other : places) {
        if (other.rank != one.rank) join(one, other);
      }
    }
  }
  for (const Transfer& transfer : matching.transfers) {
    if (transfer.source == transfer.target) continue;
    const MessagePlace send{transfer.source, transfer.send_message};
    const MessagePlace receive{transfer.target, transfer.receive_message};
    join(send, receive);
    join(receive, send);
  }
}

void Simulator::take_message(RankProgress& rank, const SimulationEvent& event) {
  if (rank.next_message == rank.plan->messages.size()) return;
  const Message& message = rank.message();
  double ready_us = event.time_us;
  for (const Wait& wait : message.waits) {
    if (!is_reached(rank, wait.counter)) return push_when_reached(rank, wait.counter, event);
    ready_us = std::max(ready_us, released_us(rank, wait.counter, event.step));
  }
  if (ready_us > event.time_us) return push({ready_us, event.rank, Step::message});
  rank.message_waits_for_tiles = !rank.all_tiles_done() && runs_after_gemm(rank, message);
  if (!rank.message_waits_for_tiles) meet_partners(rank, event.time_us);
}

int Simulator::needed_multiprocessors(const Plan& plan, const Message& message) const {
  if (!transfers_by_multiprocessors(plan, message) || transferred_bytes(plan, message) == 0) return 0;
  if (messages_by_kernel_) return 0;
  return is_made_by_nccl(message.kind) ? collective_multiprocessors(schedule_, machine_) : 1;
}

bool Simulator::runs_after_gemm(const RankProgress& rank, const Message& message) const {
  const Plan& plan = *rank.plan;
  if (message.after_tiles) return true;
  if (schedule_.strategy == Strategy::sequential) return waits_for_tiles(plan, message);
  return needed_multiprocessors(plan, message) > rank.free_multiprocessors;
}

void Simulator::meet_partners(RankProgress& rank, double time_us) {
  MessageProgress& own = rank.messages[rank.next_message];
  own.arrived = true;
  for (const MessagePlace& place : own.partners) {
    MessageProgress& theirs = progress_of(place);
    --theirs.missing;
    if (theirs.arrived && theirs.missing == 0)
      transfer(ranks_[static_cast<std::size_t>(place.rank)], time_us);
  }
  if (own.missing == 0) transfer(rank, time_us);
}

void Simulator::transfer(RankProgress& rank, double time_us) {
  const Message& message = rank.message();
  if (writes_to_peer(*rank.plan, message)) require_peer_access();
  double end_us = time_us;
  const bool follows = follows_at_once(*rank.plan, rank.plan->messages, rank.next_message);
  const TransferTime time =
      transfer_time(*rank.plan, message, machine_, /*is_capped=*/!is_uncapped(rank), follows);
  if (time.alone_us > 0) {
    const double pause_us =
        follows ? pause_before(*rank.plan, rank.next_message)
                : machine_.launch_microseconds + group_pause_microseconds(machine_, schedule_);
    // Until kernels have exchanged credits, and the first to begin knows it: fitted to 5 AllGathers on 4
    // H100.
    constexpr double credits_us = 8;
    const double opened_us = machine_.gemm_launch_microseconds + (schedule_.shots > 0 ? 0 : credits_us);
    const double launched_us = messages_by_kernel_
                                   ? std::max(time_us, opened_us)
                                   : std::max(time_us + pause_us, after_earlier_copy(rank, message));
    end_us = launched_us +
             (is_between_gemms(message)
                  ? between_gemms_microseconds(machine_, message.kind, time.alone_us, rank.products_us)
                  : time.alone_us);
    if (time.during_gemm_us > time.alone_us) {
      rank.slowed = {1, launched_us, time};
      end_us = slowed_transfer_end(rank);
    }
    note_sending(machine_, rank, message, end_us);
    rank.transfers.push_back({rank.next_message, {launched_us, end_us}});
  }
  push({end_us, rank.plan->rank, Step::transferred, static_cast<std::int32_t>(rank.next_message)});
}

bool Simulator::is_between_gemms(const Message& message) const {
  return schedule_.strategy == Strategy::sequential && is_made_by_nccl(message.kind);
}

bool Simulator::is_uncapped(const RankProgress& rank) const {
  if (schedule_.strategy == Strategy::sequential) return true;
  if (schedule_.strategy != Strategy::signal || !last_has_no_cap(rank.plan->problem, rank.message().kind))
    return false;
  const auto rest = std::span(rank.plan->messages).subspan(rank.next_message + 1);
  return std::ranges::none_of(rest, [](const Message& each) { return is_made_by_nccl(each.kind); });
}

void Simulator::note_computing(RankProgress& rank, double begin_us, double end_us) {
  if (rank.slowed && begin_us > rank.slowed->from_us) {
    SlowedTransfer& transfer = *rank.slowed;
    const double passed_us = begin_us - transfer.from_us;
    const double slowed_us = std::clamp(rank.computing_until_us - transfer.from_us, 0.0, passed_us);
    const double sent =
        slowed_us / transfer.time.during_gemm_us + (passed_us - slowed_us) / transfer.time.alone_us;
    transfer.left = std::max(0.0, transfer.left - sent);
    transfer.from_us = begin_us;
  }
  rank.computing_until_us = std::max(rank.computing_until_us, end_us);
}

void Simulator::finish_message(RankProgress& rank, const SimulationEvent& event) {
  if (rank.slowed) {
    const double end_us = slowed_transfer_end(rank);  // later, if tiles have begun meanwhile
    if (end_us > event.time_us) return push_next(event, Step::transferred, end_us);
    rank.slowed.reset();
    rank.transfers.back().span.end_us = event.time_us;
  }
  const Message& message = rank.plan->messages[static_cast<std::size_t>(event.index)];
  for (const Raise& each : message.raises) raise(each, 1, event.time_us);
  rank.end_us = event.time_us;
  pass_message(rank, event.time_us);
}

void Simulator::pass_message(RankProgress& rank, double time_us) {
  ++rank.next_message;
  push({time_us, rank.plan->rank, Step::message});
}

}  // namespace flashoverlap
