// A rank as a process that another one can replace: replaceable_rank RANK RANKS GENERATION FOLDER. Generation
// 0 runs until a rank is lost, the next one, on a new communicator, to its end. Ranks meet through files.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "exec/cuda/recovery_rounds.hpp"

namespace flashoverlap::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int last_generation = 1;

class Folder {
 public:
  explicit Folder(fs::path path) : path_(std::move(path)) {}

  /// A file that others see with all of its contents.
  void write(const std::string& name, const std::string& contents = "") const {
    std::ofstream(path_ / (name + ".new"), std::ios::binary) << contents;
    fs::rename(path_ / (name + ".new"), path_ / name);
  }

  std::string await(const std::string& name) const {
    const auto deadline = Clock::now() + 90s;
    while (!fs::exists(path_ / name)) {
      if (Clock::now() > deadline) throw std::runtime_error("nobody has written " + name);
      std::this_thread::sleep_for(10ms);
    }
    std::ifstream file(path_ / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  fs::path path_;
};

/// The key is made when all ranks are there, as joining has a limit.
Communicator join(const Folder& folder, int rank, int ranks, int generation) {
  folder.write(fmt::format("ready.{}.{}", generation, rank));
  const std::string key = fmt::format("key.{}", generation);
  if (rank == 0) {
    for (int other = 0; other < ranks; ++other) folder.await(fmt::format("ready.{}.{}", generation, other));
    folder.write(key, Communicator::make_key());
  }
  return Communicator(folder.await(key), rank, ranks, {.wait_limit = 5s});
}

void run_generation(const Folder& folder, int rank, int ranks, int generation) {
  const Communicator communicator = join(folder, rank, ranks, generation);
  RecoveryRounds rounds(communicator);
  try {
    for (int round = 0; generation < last_generation || round < 10; ++round) {
      rounds.run();
      if (round == 3) folder.write(fmt::format("running.{}.{}", generation, rank));
    }
  } catch (const Error&) {
    folder.write(fmt::format("failed.{}.{}", generation, rank));
    throw;
  }
}

int run(int rank, int ranks, int generation, const Folder& folder) {
  FLASHOVERLAP_CUDA(cudaSetDevice(rank));
  for (; generation < last_generation; ++generation) {
    try {
      run_generation(folder, rank, ranks, generation);
    } catch (const CommunicationError& error) {
      std::cerr << error.what() << '\n';
    } catch (const WaitExpired& error) {
      std::cerr << error.what() << '\n';
    }
  }
  run_generation(folder, rank, ranks, generation);
  return 0;
}

}  // namespace
}  // namespace flashoverlap::testing

int main(int count, char** arguments) {
  if (count != 5) return 2;
  try {
    return flashoverlap::testing::run(std::stoi(arguments[1]), std::stoi(arguments[2]),
                                      std::stoi(arguments[3]), flashoverlap::testing::Folder(arguments[4]));
  } catch (const std::exception& error) {
    std::cerr << "rank " << arguments[1] << " in the end: " << error.what() << '\n';
    return 1;
  }
}
