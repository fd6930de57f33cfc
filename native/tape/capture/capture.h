// The recording of a tape: what is kept of each op that a function calls, from whatever thread.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "tape/capture/arena.h"
#include "tape/capture/digest.h"
#include "tape/capture/slots.h"
#include "tape/capture/words.h"
#include "tape/steps/ops.h"

namespace torchreel::tape {

// Ops are captured by a fallback on a dispatch key that torch 2.13 leaves free, below autograd and above the backends.
inline constexpr auto kKey = c10::DispatchKey::Fake;

inline c10::DispatchKeySet below(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
}

struct OpRecord {
  const OpInfo* op = nullptr;
  const uint64_t* arguments = nullptr;
  const uint64_t* results = nullptr;  // null while the op runs, and if it has failed
  uint64_t time = 0;                  // ticks
  uint64_t sequence = 0;              // autograd's number for its next node
  uint64_t node = 0;                  // in a backward: the number of the node that runs, + 1
  uint32_t stack = 0;
  uint32_t module = kNone;
  uint32_t thread = 0;
  bool backward = false;
  bool inserted = false;
  bool grad = true;  // whether autograd was on
  const std::vector<std::optional<Digest>>* digests = nullptr;
};

struct CaptureOptions {
  bool hashes = false;
};

// The state of a generator as far as the tape knows it.
struct KnownGenerator {
  at::Generator generator;
  at::Tensor first;  // its state when the tape first saw it
  at::Tensor last;   // ... and after the last op that drew from it
  bool is_default;
};

class Writer;

class Capture {
 public:
  explicit Capture(CaptureOptions options);
  ~Capture();

  // The one that is running, or null.
  static Capture* active() { return active_.load(std::memory_order_acquire); }
  // Makes a tensor an input, which each replay is given, and returns its slot.
  uint32_t take_input(const at::Tensor& tensor);
  void start();
  // Ends the recording. Frees nothing that a call in another thread may still use.
  void stop();
  // Whether the calling thread's ops are recorded.
  static void follow_thread(bool on);

  // Records that Python has read the bytes of a tensor: a replay must find the same.
  void seen(const at::Tensor& tensor);
  // ... and that others may read and write them at any time from now on.
  void share(const at::Tensor& tensor);
  // A call of a compiled region, which is no op, by the caller's index of it.
  void opaque(int64_t region, const std::vector<at::Tensor>& given, const std::vector<at::Tensor>& gave);
  // Python asked for the strides of a tensor or for its address, or whether it requires a gradient.
  void asked(const at::Tensor& tensor, Asked what);
  // Records the state of a generator, before Python changes it.
  void note_generator(const at::Generator& generator);
  // Python asked for the state of a generator, and has it as this tensor.
  void generator_read(const at::Generator& generator, const at::Tensor& state);
  // Python set a generator: to the state in this tensor; an undefined one if to a state that no tensor holds.
  void generator_set(const at::Generator& generator, const at::Tensor& state);
  // Python made a generator in the state of another one.
  void generator_cloned(const at::Generator& from, const at::Generator& to);
  // A number of a generator left for Python: its seed, or the new one that the system gave it.
  void generator_number(const at::Generator& generator, bool is_new);
  // Records the last states of generators.
  void finish_generators();

  const Moment begin = moment(CLOCK_REALTIME);
  const uint64_t begin_sequence;  // of autograd, on the thread that traces
  std::mutex mutex;
  Arena arena;
  Slots slots;
  Log<OpRecord> ops;
  std::vector<c10::IValue> objects;
  std::vector<KnownGenerator> generators;
  std::vector<void*> modules;                                   // Python objects, by their index on the tape
  std::vector<void*> module_references;                         // owned
  std::vector<std::pair<uint32_t, at::Tensor>> start_storages;  // with hashes: copies of externals at the beginning
  std::deque<std::vector<std::optional<Digest>>> digests;
  std::vector<std::pair<uint32_t, std::string>> ranges;  // of the profiler, each with the op that came next
  const CaptureOptions options;

 private:
  friend class Call;
  friend class Writer;
  uint32_t thread();
  uint32_t index_of(const at::Generator& generator);
  // Records what the program did to a generator since an op last drew from it.
  void check_generator(uint32_t index);
  void insert(const OpInfo& op, const std::vector<c10::IValue>& arguments, const std::vector<c10::IValue>& results);
  // Records what others wrote to a shared storage since an op last used it.
  void check_shared(const at::Tensor& tensor);
  // Records what was written to new memory without an op: C++ makes tensors of numbers like that.
  void check_blank(const at::Tensor& tensor, uint32_t slot, const Writer& call);
  void note_blank(uint32_t slot);
  void keep_start(const at::Tensor& tensor, uint32_t slot);

  static std::atomic<Capture*> active_;
  const uint64_t number_;    // by which a thread sees that this capture is new to it
  at::Tensor begin_random_;  // the state of the default generator when the tape began
  uint32_t threads_ = 0;
  bool shares_ = false;
  size_t blanks_ = 0;  // storages that no op has written yet
  std::unordered_map<void*, uint32_t> module_indices_;

 public:
  // Tensors whose gradient Python set, by the address of the Python object, each with the number of ops until then.
  std::unordered_map<const void*, size_t> gradients_set;
  // ... and those whose gradient Python looked at.
  std::unordered_set<const void*> gradients_read;
  bool version_read = false;  // whether Python asked how often a tensor was written
};

// Encodes values as words: see words.h.
class Writer {
 public:
  explicit Writer(Capture& tape, bool gives) : tape_(tape), gives_(gives) {}

  void put(const at::Tensor& tensor) { tensor.defined() ? put_tensor(tensor) : word(kNothing); }
  void put(const c10::IValue& value);
  void put(int64_t value) {
    word(kInt);
    word(static_cast<uint64_t>(value));
  }
  void put(double value);
  void put(bool value) { word(value ? kTrue : kFalse); }
  void put(const c10::SymInt& value) { put(value.guard_int(__FILE__, __LINE__)); }
  void put(const c10::Scalar& value);
  void put(std::string_view text);
  void put(c10::ScalarType value) { put(static_cast<int64_t>(value)); }
  void put(c10::Layout value) { put(static_cast<int64_t>(value)); }
  void put(c10::MemoryFormat value) { put(static_cast<int64_t>(value)); }
  void put(const c10::Device& value);
  void put(const at::Generator& value);
  void put(const c10::Storage& value);
  void put(const c10::List<std::optional<at::Tensor>>& values);
  void put(const at::ITensorListRef& values);
  template <class T>
  void put(c10::ArrayRef<T> values) {
    word(kList | values.size() << 8);
    for (const auto& value : values) put(value);
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(c10::ArrayRef<T>(values));
  }
  template <size_t n>
  void put(const std::array<bool, n>& values) {
    word(kList | n << 8);
    for (bool value : values) put(value);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    value.has_value() ? put(*value) : word(kNothing);
  }
  template <class T>
  void put(const c10::OptionalArrayRef<T>& value) {
    value.has_value() ? put(*value) : word(kNothing);
  }
  template <class... T>
  void put(const std::tuple<T...>& values) {
    std::apply([&](const auto&... each) { (put(each), ...); }, values);
  }

  // Moves the words to the tape's arena.
  const uint64_t* keep();

  uint32_t generator = kNone;                  // the last that was put
  bool meta = false;                           // whether a tensor without data was among them
  const OpInfo* op = nullptr;                  // whose arguments or results they are
  bool written = false;                        // whether the op writes what is put next
  std::vector<at::Tensor> shared;              // tensors on shared storages
  std::vector<at::Tensor>* tensors = nullptr;  // if not null: collects all tensors that are put

 private:
  void word(uint64_t value) {
    if (count_ == kShort && long_.empty()) long_.assign(short_, short_ + kShort);
    if (count_ < kShort) {
      short_[count_] = value;
    } else {
      long_.push_back(value);
    }
    count_++;
  }
  void put_tensor(const at::Tensor& tensor);

  static constexpr size_t kShort = 96;
  Capture& tape_;
  const bool gives_;  // whether what is put are results
  size_t count_ = 0;
  uint64_t short_[kShort];
  std::vector<uint64_t> long_;
};

// One call. Constructing it takes the tape's lock; the kernel runs without it, under Below.
class Call {
 public:
  explicit Call(const OpInfo& op);
  Call(const Call&) = delete;

  // In the order of the schema, all of them.
  template <class T>
  void argument(const T& value) {
    given_.written = op_.written[arguments_++];
    if (tape_.options.hashes) given_.tensors = given_.written ? &written_ : nullptr;
    given_.put(value);
  }
  // What the op returned: once, all of it. Without this the call has failed, and is not on the tape.
  template <class T>
  void result(const T& value) {
    lock_.lock();
    Writer gave(tape_, true);
    gave.op = &op_;
    if (tape_.options.hashes) gave.tensors = &made_;
    gave.put(value);
    finish(gave);
  }
  void result() { result(std::tuple<>()); }
  // The same for a boxed call, from its stack.
  void results(c10::ArrayRef<c10::IValue> values) {
    lock_.lock();
    Writer gave(tape_, true);
    gave.op = &op_;
    if (tape_.options.hashes) gave.tensors = &made_;
    for (const auto& value : values) gave.put(value);
    finish(gave);
  }

 private:
  friend class Below;
  void before_kernel();
  void finish(Writer& gave);
  void where();
  uint32_t index_of_module();

  Capture& tape_;
  const OpInfo& op_;
  OpRecord where_;
  void* module_ = nullptr;
  OpRecord* record_ = nullptr;
  std::unique_lock<std::mutex> lock_;
  Writer given_;
  size_t arguments_ = 0;
  std::vector<at::Tensor> written_, made_;
};

// While it lives, the kernel runs: the tape is unlocked, and calls within are not recorded.
class Below {
 public:
  explicit Below(Call& call) : guard_((call.before_kernel(), kKey)) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

inline bool is_recording() { return Capture::active() != nullptr; }

}  // namespace torchreel::tape
