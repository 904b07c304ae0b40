#include "measure/process_meeting.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <span>

#include "comm/bounded_wait.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

constexpr std::size_t process_numbers = 3;
constexpr std::size_t ticket_numbers = 5;

double random_number() {
  thread_local std::random_device device;
  constexpr std::uint32_t exact_in_fp32 = 1U << 24;
  return static_cast<double>(device() % exact_in_fp32);
}

}  // namespace

struct ProcessMeeting::Room {
  explicit Room(std::size_t ranks) : expected(ranks) {}

  const std::size_t expected;
  BoundedWait changed{std::chrono::milliseconds(20)};  // between two looks at the communicator
  std::size_t arrived = 0;
  std::uint64_t meetings = 0;
};

std::vector<double> ProcessMeeting::ticket() {
  static const std::vector<double> process = [] {
    std::vector<double> numbers;
    std::ranges::generate_n(std::back_inserter(numbers), process_numbers, random_number);
    return numbers;
  }();
  std::vector<double> numbers = process;
  std::ranges::generate_n(std::back_inserter(numbers), ticket_numbers - process_numbers, random_number);
  return numbers;
}

ProcessMeeting::ProcessMeeting(const Communicator& communicator,
                               const std::vector<std::vector<double>>& tickets)
    : communicator_(communicator) {
  const auto process_of = [](const std::vector<double>& ticket) {
    return std::span(ticket).first(process_numbers);
  };
  const auto& own = tickets[static_cast<std::size_t>(communicator.rank())];
  std::vector<const std::vector<double>*> here;
  for (const auto& ticket : tickets) {
    if (std::ranges::equal(process_of(ticket), process_of(own))) here.push_back(&ticket);
  }
  has_all_ranks_ = here.size() == tickets.size();
  static std::mutex mutex;
  static std::map<std::vector<double>, std::weak_ptr<Room>> rooms;  // by the ticket of the first rank here
  const std::lock_guard lock(mutex);
  std::erase_if(rooms, [](const auto& room) { return room.second.expired(); });
  std::weak_ptr<Room>& known = rooms[*here.front()];
  room_ = known.lock();
  if (!room_) known = room_ = std::make_shared<Room>(here.size());
}

void ProcessMeeting::meet() {
  const auto deadline = std::chrono::steady_clock::now() + 4 * communicator_.options().wait_limit;
  auto lock = room_->changed.lock();
  const std::uint64_t now = room_->meetings;
  if (++room_->arrived == room_->expected) {
    room_->arrived = 0;
    ++room_->meetings;
    room_->changed.notify();
    return;
  }
  while (!room_->changed.wait(lock, [&] { return room_->meetings != now; })) {
    communicator_.throw_if_failed();
    if (std::chrono::steady_clock::now() > deadline) {
      throw CommunicationError(
          fmt::format("only {} of {} ranks came to a barrier", room_->arrived, room_->expected));
    }
  }
}

}  // namespace flashoverlap
