#include "record/recording.h"

#include <ATen/record_function.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "record/counters.h"
#include "record/termination.h"

namespace torchreel {

using namespace layout;

std::atomic<Recording*> Recording::active_{nullptr};
std::atomic<uint64_t> Recording::epoch_{1};
std::atomic<bool> Recording::ending_{false};
std::string (*python_thread_name)() = nullptr;

namespace {

constexpr auto kFlushEvery = std::chrono::milliseconds(100);
constexpr int kRestAfter = 20;  // passes of the flusher without an event: then a thread gives back what it holds
constexpr size_t kChunk = 64 << 10;
constexpr size_t kSmallChunk = 32 << 10;  // of a small ring, so that it forgets a little at a time
static_assert(kSmallChunk / 8 > 2 * kLongestEvent);

// Every thread's stream, for as long as the thread lives or its events wait for the disk. None of these is ever
// destroyed: threads may end after the process has begun to.
std::mutex& registry_mutex = *new std::mutex;
std::vector<Stream*>& registry = *new std::vector<Stream*>;
ChunkPool& pool = *new ChunkPool;

__thread bool thread_is_ending __attribute__((tls_model("initial-exec"))) = false;
__thread bool making_room __attribute__((tls_model("initial-exec"))) = false;

}  // namespace

// Its destructor runs when the thread ends.
struct ThreadExit {
  Stream* stream = nullptr;
  ~ThreadExit() {
    if (stream == nullptr) return;
    thread_is_ending = true;
    leave_stream();
    std::lock_guard registry_lock(registry_mutex);
    bool needed;
    {
      std::lock_guard lock(stream->mutex);
      stream->limit.store(nullptr, std::memory_order_relaxed);
      stream->dead = true;
      // A recording that is being stopped still wants it: its epoch ends when all is on disk.
      needed = stream->epoch == Recording::epoch();
      if (needed && stream->chunk.words != nullptr) stream->recording->seal_exactly(stream);
      delete std::exchange(stream->stacks, nullptr);
      delete std::exchange(stream->inputs, nullptr);
      delete std::exchange(stream->counters, nullptr);
      stream->names.clear();
    }
    if (!needed) {
      pool.give(stream->chunk);
      std::erase(registry, stream);
      delete stream;
    }
  }
};

namespace {

Stream* stream_of_thread() {
  static thread_local ThreadExit exit;
  if (exit.stream == nullptr) {
    exit.stream = new Stream;
    std::lock_guard lock(registry_mutex);
    registry.push_back(exit.stream);
  }
  current_stream = exit.stream;
  return exit.stream;
}

std::string thread_name() {
  char text[32] = "";
  pthread_getname_np(pthread_self(), text, sizeof text);
  std::string name = text;
  if (python_thread_name != nullptr && PyGILState_GetThisThreadState() != nullptr) {
    PyGILState_STATE gil = PyGILState_Ensure();
    std::string given = python_thread_name();
    if (!given.empty()) name = given;
    PyGILState_Release(gil);
  }
  return name;
}

}  // namespace

Stream* make_room() {
  Recording* recording = Recording::active();
  if (making_room) return nullptr;
  if (recording == nullptr || thread_is_ending) {
    leave_event(current_stream);
    return nullptr;
  }
  // Finding a thread's name runs Python, which may free tensors and come back here.
  making_room = true;
  Stream* stream = stream_of_thread();
  // The stream is listed and marked before this looks again: whoever stops the recording waits for it, or is seen.
  stream->writing.store(true);
  bool ok = Recording::active() == recording;
  if (ok) ok = stream->epoch == Recording::epoch() ? recording->next_chunk(stream) : recording->adopt(stream);
  making_room = false;
  if (!ok) leave_event(stream);
  return ok ? stream : nullptr;
}

// The thread's first event in this recording.
bool Recording::adopt(Stream* stream) {
  std::string name = thread_name();
  uint32_t id = next_thread_.fetch_add(1);
  spool.define(kThreadDef, Payload()
                               .u32(id)
                               .u32(0)
                               .u64(static_cast<uint64_t>(syscall(SYS_gettid)))
                               .u64(at::RecordFunction::currentThreadId())
                               .text(name));
  std::unique_lock lock(stream->mutex);
  delete std::exchange(stream->stacks, nullptr);
  delete std::exchange(stream->inputs, nullptr);
  delete std::exchange(stream->counters, options.counters.empty() ? nullptr : new CounterGroup(options.counters));
  stream->names.clear();
  for (Chunk& chunk : stream->sealed) pool.give(chunk);
  stream->sealed.clear();
  pool.give(std::exchange(stream->chunk, Chunk{}));
  stream->id = id;
  stream->recording = this;
  stream->last_tick = start_steady_.tick;
  stream->last_seq = -1;
  stream->stack = 0;
  stream->open_ops = 0;
  stream->scripted = false;
  stream->python_stack = 0;
  stream->model = 0;
  stream->epoch = epoch();
  lock.unlock();
  return next_chunk(stream);
}

// The caches of a thread that is about to write. Needs the stream's lock.
void Recording::equip(Stream* stream) {
  stream->names.prepare();
  if (options.stacks && stream->stacks == nullptr) stream->stacks = new StackCache;
  if (options.shapes && stream->inputs == nullptr) stream->inputs = new InputsCache;
}

bool Recording::next_chunk(Stream* stream) {
  Chunk fresh = pool.take();
  if (fresh.words == nullptr && options.ring_bytes != 0) fresh = recycle_oldest();
  std::lock_guard lock(stream->mutex);
  if (Recording::active() != this) {
    pool.give(fresh);
    return false;
  }
  if (fresh.words == nullptr) {
    // The disk does not follow: this event is lost, and the stream goes on when there is room again.
    count_lost();
    stream->gap = true;
    return false;
  }
  if (stream->chunk.words != nullptr) seal(stream);
  equip(stream);
  fresh.used = fresh.flushed = 0;
  uint32_t follows = std::exchange(stream->gap, false) ? kAfterGap : kFresh;
  fresh.state = {kBlockMagic, stream->id, 0, follows, stream->last_tick, stream->last_seq, stream->stack};
  stream->chunk = fresh;
  stream->cursor.store(fresh.words, std::memory_order_relaxed);
  stream->limit.store(fresh.words + fresh.capacity - kLongestEvent, std::memory_order_relaxed);
  if (options.ring_bytes == 0 && pool.bytes_in_use() > options.memory_bytes / 4) wake_.notify_one();
  return true;
}

// Needs the stream's lock.
void Recording::seal(Stream* stream) {
  stream->chunk.used = stream->cursor.load() - stream->chunk.words;
  stream->chunk.order = seal_order_.fetch_add(1);
  stream->sealed.push_back(std::exchange(stream->chunk, Chunk{}));
}

// What is not yet written moves to a place of its size, and the chunk is given back. Needs the stream's lock; its
// thread is not within an event.
void Recording::seal_exactly(Stream* stream) {
  Chunk chunk = std::exchange(stream->chunk, Chunk{});
  auto used = static_cast<size_t>(stream->cursor.exchange(nullptr) - chunk.words);
  if (used > chunk.flushed) {
    Chunk left = pool.take_exact(used - chunk.flushed);
    if (left.words == nullptr) {
      left = chunk;
      left.used = used;
    } else {
      std::copy(chunk.words + chunk.flushed, chunk.words + used, left.words);
      left.used = left.capacity;
      left.state = chunk.state;
      if (chunk.flushed > 0) left.state.follows = kContinues;
    }
    left.order = seal_order_.fetch_add(1);
    stream->sealed.push_back(left);
    if (!left.exact) return;
  }
  pool.give(chunk);
}

// Takes what a thread holds, unless it is writing right now. Needs the stream's lock.
bool Recording::take_back(Stream* stream) {
  uint64_t* limit = stream->limit.exchange(nullptr);
  if (!barrier_all_threads() || stream->writing.load(std::memory_order_acquire)) {
    stream->limit.store(limit);
    return false;
  }
  if (stream->chunk.words != nullptr) seal_exactly(stream);
  delete std::exchange(stream->stacks, nullptr);
  delete std::exchange(stream->inputs, nullptr);
  stream->names.clear();
  return true;
}

// A thread that writes nothing for a while gives back what it holds, until it writes again.
void Recording::rest(Stream* stream) {
  std::lock_guard lock(stream->mutex);
  uint64_t* at = stream->cursor.load(std::memory_order_relaxed);
  stream->rested = at == stream->rested_at ? stream->rested + 1 : 0;
  stream->rested_at = at;
  if (at == nullptr || stream->rested < kRestAfter || stream->epoch != epoch()) return;
  take_back(stream);
  stream->rested = 0;
}

// A full flight recorder forgets its oldest chunk, whichever thread's it is, until there is room for another.
Chunk Recording::recycle_oldest() {
  std::lock_guard registry_lock(registry_mutex);
  while (forget_oldest() || seal_idle_streams()) {
    Chunk chunk = pool.take();
    if (chunk.words != nullptr) return chunk;
  }
  return {};
}

// All chunks are those that threads write to: those who do not write now give theirs. Needs the registry's lock.
bool Recording::seal_idle_streams() {
  bool any = false;
  for (Stream* stream : registry) {
    if (stream == current_stream) continue;
    std::lock_guard lock(stream->mutex);
    if (stream->epoch != epoch()) continue;
    any = (stream->chunk.words != nullptr && take_back(stream)) || any;
  }
  return any;
}

// Needs the registry's lock. False if there is none.
bool Recording::forget_oldest() {
  Stream* oldest = nullptr;
  uint64_t order = ~uint64_t{0};
  for (Stream* stream : registry) {
    std::lock_guard lock(stream->mutex);
    if (stream->epoch == epoch() && !stream->sealed.empty() && stream->sealed.front().order < order) {
      order = stream->sealed.front().order;
      oldest = stream;
    }
  }
  if (oldest == nullptr) return false;
  std::unique_lock lock(oldest->mutex);
  pool.give(oldest->sealed.front());
  oldest->sealed.pop_front();
  overwritten_++;
  if (oldest->dead && oldest->sealed.empty()) {
    lock.unlock();
    std::erase(registry, oldest);
    delete oldest;
  }
  return true;
}

// Writes what a stream holds and was not written; `whole` writes all, for a copy, and marks nothing as written.
bool Recording::flush_stream(Stream* stream, Spool& target, bool whole) {
  std::lock_guard lock(stream->mutex);
  if (stream->epoch != epoch()) return false;
  bool wrote = false;
  auto write = [&](Chunk& chunk, size_t used) {
    size_t from = whole ? 0 : chunk.flushed;
    if (used <= from) return;
    BlockHeader header = chunk.state;
    if (from > 0) header.follows = kContinues;
    header.words = static_cast<uint32_t>(used - from);
    if (!target.append(header, chunk.words + from)) count_lost();
    if (!whole) chunk.flushed = used;
    wrote = true;
  };
  for (Chunk& chunk : stream->sealed) write(chunk, chunk.used);
  if (!whole) {
    for (Chunk& chunk : stream->sealed) pool.give(chunk);
    stream->sealed.clear();
  }
  if (stream->chunk.words != nullptr) {
    write(stream->chunk, stream->cursor.load(std::memory_order_acquire) - stream->chunk.words);
  }
  return wrote;
}

EventsHeader Recording::header(bool closed) const {
  Moment now = moment(CLOCK_MONOTONIC);
  EventsHeader header{};
  header.magic = kEventsMagic;
  header.version = kVersion;
  header.closed = closed;
  header.start_tick = start_realtime_.tick;
  header.start_realtime_ns = start_realtime_.ns;
  header.first_tick = start_steady_.tick;
  header.first_steady_ns = start_steady_.ns;
  header.last_tick = now.tick;
  header.last_steady_ns = now.ns;
  header.lost_events = lost();
  header.node = at::RecordFunction::getDefaultNodeId();
  return header;
}

void Recording::flush_pass(Pass kind) {
  std::lock_guard pass(flush_mutex_);
  uint64_t before = ticks();
  bool wrote = false;
  {
    std::lock_guard registry_lock(registry_mutex);
    for (size_t i = 0; i < registry.size();) {
      Stream* stream = registry[i];
      wrote = flush_stream(stream, spool, false) || wrote;
      if (stream->dead) {
        registry.erase(registry.begin() + static_cast<ptrdiff_t>(i));
        delete stream;
      } else {
        rest(stream);
        i++;
      }
    }
  }
  if (wrote || kind == Pass::kDying) {  // a process that dies without an event leaves at least that it is closed
    BlockHeader promise{kBlockMagic, kNoThread, 0, 0, before, -1, 0};
    spool.append(promise, nullptr);
  }
  spool.write_header(header(kind != Pass::kGoesOn && spool.error() == 0));
}

void Recording::run_flusher() {
  pthread_setname_np(pthread_self(), "torchreel");
  sigset_t all;  // a handler that waits for the flusher must not run on it
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(wake_mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, kFlushEvery);
    if (stopping_) break;
    lock.unlock();
    bool dying = dying_.load();
    flush_pass(dying ? Pass::kDying : Pass::kGoesOn);
    if (dying) flushed_dying_.store(true);
    lock.lock();
  }
}

Recording::Recording(RecordingOptions given)
    : options(std::move(given)),
      spool(options.spool),
      names(spool),
      inputs(spool),
      stack_definitions(spool),
      frames(stack_definitions) {
  frames.hide(options.hidden_files);
}

void Recording::start() {
  if (options.ring_bytes != 0) {
    size_t chunk = options.ring_bytes < 32 * kChunk ? kSmallChunk : kChunk;
    pool.configure(chunk, std::max<size_t>(options.ring_bytes, 2 * chunk));
  } else {
    pool.configure(kChunk, options.memory_bytes);
  }
  spool.define(kProcess, options.process);
  if (!options.counters.empty()) {
    Payload names;
    for (const auto& name : options.counters) names.text(name);
    spool.define(kCounterDef, names);
  }
  start_realtime_ = moment(CLOCK_REALTIME);
  start_steady_ = moment(CLOCK_MONOTONIC);
  epoch_.fetch_add(1);
  active_.store(this, std::memory_order_release);
  if (options.ring_bytes == 0) flusher_ = std::thread([this] { run_flusher(); });
}

bool Recording::stop() {
  TerminationBlocked blocked;
  ending_.store(true);
  active_.store(nullptr, std::memory_order_release);
  {
    std::lock_guard registry_lock(registry_mutex);
    for (Stream* stream : registry) {
      std::lock_guard lock(stream->mutex);
      stream->limit.store(nullptr, std::memory_order_relaxed);
    }
  }
  if (flusher_.joinable()) {
    {
      std::lock_guard lock(wake_mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    flusher_.join();
    flush_pass(Pass::kLast);
  }
  epoch_.fetch_add(1);
  {
    std::lock_guard registry_lock(registry_mutex);
    for (Stream* stream : registry) {
      std::lock_guard lock(stream->mutex);
      for (Chunk& chunk : stream->sealed) pool.give(chunk);
      stream->sealed.clear();
    }
    std::erase_if(registry, [](Stream* stream) {
      bool dead = stream->dead;
      if (dead) delete stream;
      return dead;
    });
  }
  bool quiet = release_streams();
  pool.release();
  ending_.store(false);
  return quiet;
}

// Takes what living threads hold, except of those that are within an event for longer than one should take: these have
// it until they begin another recording, or end. Returns whether there are none.
bool Recording::release_streams() {
  for (int tries = 0; tries < 50; tries++) {
    if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::lock_guard registry_lock(registry_mutex);
    if (!barrier_all_threads()) return false;
    bool quiet = true;
    for (Stream* stream : registry) {
      std::lock_guard lock(stream->mutex);
      if (!take_back(stream)) quiet = false;
      for (Chunk& chunk : stream->sealed) pool.give(chunk);
      stream->sealed.clear();
    }
    if (quiet) return true;
  }
  return false;
}

void Recording::forget_tables() {
  names.clear();
  inputs.clear();
  frames.clear();
}

ThreadMemory thread_memory() {
  std::lock_guard registry_lock(registry_mutex);
  size_t caches = cache_bytes.load();
  for (Stream* stream : registry) {
    std::lock_guard lock(stream->mutex);
    caches += sizeof *stream + (stream->stacks != nullptr ? sizeof(StackCache) : 0) +
              (stream->inputs != nullptr ? sizeof(InputsCache) : 0);
  }
  return {registry.size(), pool.bytes_in_use(), pool.bytes_mapped(), caches};
}

void Recording::flush() { flush_pass(Pass::kGoesOn); }

int Recording::dump(const std::string& directory) {
  std::lock_guard pass(flush_mutex_);
  Spool copy(directory);
  {
    std::lock_guard registry_lock(registry_mutex);
    spool.copy_definitions(copy);
    if (!copy.open()) return copy.error();
    for (Stream* stream : registry) flush_stream(stream, copy, true);
  }
  copy.write_header(header(copy.error() == 0));
  return copy.error();
}

void Recording::define_step(uint64_t number, StepKind kind, uint64_t tick) {
  spool.define(kStepDef, Payload().u64(number).u64(tick).u64(kind));
}

void flush_before_death() {
  Recording* recording = Recording::active();
  if (recording != nullptr && recording->options.ring_bytes != 0) return;
  if (recording != nullptr) recording->dying_.store(true);
  // The flusher looks every tenth of a second. It may wait for a lock that the interrupted thread holds: then it is
  // left at that, and the recording says that it is not complete.
  for (int i = 0; i < 3000; i++) {
    if (recording != nullptr ? recording->flushed_dying_.load() : !Recording::ending_.load()) return;
    timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
}

uint32_t Recording::define_module(uint32_t id, uint32_t parent, std::string_view path, std::string_view type) {
  spool.define(kModuleDef, Payload().u32(id).u32(parent).text(path).text(type));
  std::string name = "nn.Module: ";
  return names.id(name.append(type), "", kModule, id);
}

void prepare_fork() {
  registry_mutex.lock();
  pool.prepare_fork();
}

void parent_after_fork() {
  pool.parent_after_fork();
  registry_mutex.unlock();
}

// Nothing of the parent's may be written by the child: its recording is left alone, its threads do not exist here.
void child_after_fork() {
  Recording::ending_.store(false);
  Recording::active_.store(nullptr);
  Recording::epoch_.fetch_add(1);
  Stream* mine = current_stream;
  bool listed = std::find(registry.begin(), registry.end(), mine) != registry.end();
  registry.clear();
  if (listed) {
    registry.push_back(mine);
    mine->limit.store(nullptr);
    // What the parent had not yet written is the parent's to write.
    mine->sealed.clear();
    mine->chunk = {};
    mine->cursor.store(nullptr);
    mine->writing.store(false);
  }
  pool.child_after_fork();
  registry_mutex.unlock();
}

void watch_forks() {
  static const int registered = pthread_atfork(prepare_fork, parent_after_fork, child_after_fork);
  (void)registered;
}

}  // namespace torchreel
