// Threads that write events while a recording begins, is flushed, dumped and stopped: for a sanitizer to watch.
//
//     recorder_threads SEED THREADS ROUNDS DIRECTORY
//
// The recorder is that of native/record/, without torch and without Python. Prints a line for each spool that it leaves
// in the directory: its name, how many marks were written to it, and "all" if all of them must be there.
#include <ATen/record_function.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "record/recording.h"

// What the recorder links against.
uint64_t at::RecordFunction::currentThreadId() { return std::hash<std::thread::id>()(std::this_thread::get_id()); }
extern "C" PyThreadState* PyGILState_GetThisThreadState() { return nullptr; }
extern "C" PyGILState_STATE PyGILState_Ensure() { abort(); }
extern "C" void PyGILState_Release(PyGILState_STATE) { abort(); }

namespace torchreel {

bool walk_stack(StackCache&, FrameTable&, uint32_t&) { return false; }
bool add_script_frames(StackCache&, FrameTable&, uint32_t&) { return false; }
void FrameTable::clear() {}
void InputsTable::clear() {}

}  // namespace torchreel

using namespace torchreel;

namespace {

constexpr size_t kSmallRing = 256 << 10;
constexpr size_t kSmallMemory = 1 << 20;

std::atomic<bool> ending{false};
std::atomic<uint64_t> written{0};

// As Recorder's mark() does it: a name that is looked up once, then an event of one word or of three.
bool write_mark(std::mt19937& chance) {
  Stream* stream = writable_stream();
  if (stream == nullptr) return false;
  uint64_t hash = chance() % 40;
  const void* key = reinterpret_cast<const void*>(hash * 2 + 1);
  if (stream->names.find(hash).key != key) {
    uint32_t id = stream->recording->names.id("mark " + std::to_string(hash), "", layout::kOther);
    stream->names.missed(hash) = {key, id};
  }
  uint32_t name = stream->names.find(hash).id;
  commit_event(stream, put_head(stream, begin_event(stream), layout::kMark, name));
  written.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// Until it has written so many, or all are to end. Some threads live for a few marks only.
void work(uint32_t seed, int rounds) {
  std::mt19937 chance(seed);
  for (int i = 0; i < rounds && !ending.load(std::memory_order_relaxed); i++) {
    write_mark(chance);
    if (chance() % 500 == 0) {
      std::thread([seed = chance()] {
        std::mt19937 own(seed);
        for (int k = 0; k < 5; k++) write_mark(own);
      }).join();
    }
    if (chance() % 1000 == 0) std::this_thread::yield();
  }
}

std::vector<std::thread> begin(uint32_t seed, int threads, int rounds) {
  ending = false;
  std::vector<std::thread> all;
  for (int i = 0; i < threads; i++) all.emplace_back(work, seed * 100 + i, rounds);
  return all;
}

void join(std::vector<std::thread>& all) {
  for (auto& thread : all) thread.join();
  all.clear();
}

RecordingOptions streamed(const std::string& spool) {
  RecordingOptions options;
  options.spool = spool;
  options.process = "{}";
  return options;
}

void say(const std::string& spool, const char* complete) {
  printf("%s %llu %s\n", spool.c_str(), static_cast<unsigned long long>(written.exchange(0)), complete);
}

// All threads end before the recording does: all that they wrote is on disk, but for what the memory had no room for.
void stream_all(uint32_t seed, int threads, int rounds, const std::string& directory) {
  auto options = streamed(directory + "/whole");
  Recording recording(options);
  recording.start();
  auto all = begin(seed, threads, rounds);
  for (int i = 0; i < 20; i++) {
    recording.flush();
    std::this_thread::yield();
  }
  join(all);
  recording.stop();
  say("whole", "all");
}

// Recordings begin and end under threads that go on writing; memory is scarce, so that events are lost.
void interrupt(uint32_t seed, int threads, const std::string& directory) {
  auto all = begin(seed, threads, 1 << 30);
  for (int i = 0; i < 6; i++) {
    std::string name = "interrupted" + std::to_string(i);
    auto options = streamed(directory + "/" + name);
    if (i % 2 == 1) options.memory_bytes = kSmallMemory;
    Recording recording(options);
    written = 0;
    recording.start();
    while (written.load() < 2000) std::this_thread::yield();
    recording.flush();
    bool quiet = recording.stop();
    if (quiet) recording.forget_tables();
    while (!quiet) std::this_thread::yield();  // threads hold on to what is destroyed here: the time limit tells
    say(name, "most");
  }
  ending = true;
  join(all);
}

// A flight recorder that is full forgets its oldest chunks, also those of threads that rest, while copies are made.
void wrap_around(uint32_t seed, int threads, int rounds, const std::string& directory) {
  RecordingOptions options;
  options.process = "{}";
  options.ring_bytes = kSmallRing;
  Recording recording(options);
  recording.start();
  auto all = begin(seed, 3 * threads, 20 * rounds);  // more threads than chunks
  for (int i = 0; i < 4; i++) {
    uint64_t before = written.load();
    while (written.load() < before + 1000 && written.load() < static_cast<uint64_t>(rounds)) std::this_thread::yield();
    if (recording.dump(directory + "/dump" + std::to_string(i)) != 0) abort();
  }
  join(all);
  if (recording.dump(directory + "/last") != 0) abort();
  recording.stop();
  if (recording.overwritten() == 0) abort();
  say("last", "most");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  auto seed = static_cast<uint32_t>(atoi(arguments[1]));
  int threads = atoi(arguments[2]), rounds = atoi(arguments[3]);
  std::string directory = arguments[4];
  stream_all(seed, threads, rounds, directory);
  interrupt(seed + 1, threads, directory);
  wrap_around(seed + 2, threads, rounds, directory);
  return 0;
}
