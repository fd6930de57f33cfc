#include "tape/capture/capture.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/Generator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/node.h>

#include <cstring>

#include "base/clock.h"
#include "tape/capture/where.h"

namespace torchreel::tape {

namespace {

std::atomic<uint64_t> captures{0};
// A call that arrives while a capture stops writes to it. It is kept until the next one starts.
std::atomic<Capture*> latest{nullptr};

struct ThreadIndex {
  uint64_t capture;
  uint32_t index;
};
__thread ThreadIndex thread_index __attribute__((tls_model("initial-exec")));

// All of a generator that decides what it draws next.
at::Tensor state_of(const at::Generator& generator) {
  at::AutoDispatchBelowADInplaceOrView guard;
  c10::impl::ExcludeDispatchKeyGuard quiet(kKey);
  std::lock_guard lock(const_cast<at::Generator&>(generator).mutex());
  return generator.get_state();
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

at::Tensor copy_of(const at::Tensor& tensor) {
  at::AutoDispatchBelowADInplaceOrView guard;
  c10::impl::ExcludeDispatchKeyGuard quiet(kKey);
  return tensor.clone();
}

// A shared storage is compared as a whole, whichever view an op has of it.
uint64_t storage_digest(const at::Tensor& tensor) {
  const auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  return hash_bytes(storage.data(), storage.nbytes(), 0);
}

}  // namespace

std::atomic<Capture*> Capture::active_{nullptr};

Capture::Capture(CaptureOptions given)
    : begin_sequence(at::sequence_number::peek()), slots(arena), ops(arena), options(given), number_(++captures) {}

Capture::~Capture() {
  if (module_references.empty() || !Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  for (void* module : module_references) Py_DECREF(static_cast<PyObject*>(module));
  PyGILState_Release(gil);
}

uint32_t Capture::take_input(const at::Tensor& tensor) {
  uint32_t slot = slots.read(tensor);
  if (options.hashes) keep_start(tensor, slot);
  return slot;
}

void Capture::start() {
  latest = this;
  begin_random_ = state_of(at::detail::getDefaultCPUGenerator());
  active_.store(this, std::memory_order_release);
}

void Capture::stop() {
  active_.store(nullptr, std::memory_order_release);
  std::lock_guard lock(mutex);
  finish_generators();
  for (auto& storage : slots.storages()) storage.shared = false;
}

void Capture::follow_thread(bool on) { c10::impl::tls_set_dispatch_key_included(kKey, on); }

uint32_t Capture::thread() {
  if (thread_index.capture != number_) thread_index = {number_, threads_++};
  return thread_index.index;
}

void Capture::insert(const OpInfo& op, const std::vector<c10::IValue>& arguments,
                     const std::vector<c10::IValue>& results) {
  OpRecord record;
  record.op = &op;
  record.inserted = true;
  record.stack = stack_of_caller();
  record.time = ticks();
  record.thread = thread();
  Writer given(*this, false);
  bool shares = std::exchange(shares_, false);  // inserted records are not checked themselves
  for (const auto& value : arguments) given.put(value);
  Writer gave(*this, true);
  for (const auto& value : results) gave.put(value);
  shares_ = shares;
  record.arguments = given.keep();
  record.results = gave.keep();
  ops.push_back(record);
}

void Capture::seen(const at::Tensor& tensor) {
  c10::impl::ExcludeDispatchKeyGuard quiet(kKey);  // hashing may call ops, which would wait for the lock
  std::lock_guard lock(mutex);
  auto digest = digest_of(tensor);
  if (!digest.has_value()) return;
  insert(op_named("torchreel::seen", ""), {tensor}, {static_cast<int64_t>(digest->hash)});
}

void Capture::share(const at::Tensor& tensor) {
  seen(tensor);
  std::lock_guard lock(mutex);
  uint32_t storage = slots.storage_of(tensor);
  if (storage == kNone) return;
  auto& record = slots.storages()[storage];
  record.shared = shares_ = true;
  record.digest = storage_digest(tensor);
}

void Capture::asked(const at::Tensor& tensor, Asked what) {
  std::lock_guard lock(mutex);
  uint32_t storage = slots.storage_of(tensor);
  if (storage != kNone) slots.storages()[storage].asked |= what;
}

void Capture::check_shared(const at::Tensor& tensor) {
  uint32_t storage = slots.storage_of(tensor);
  if (storage == kNone || !slots.storages()[storage].shared) return;
  uint64_t now = storage_digest(tensor);
  if (now == slots.storages()[storage].digest) return;
  slots.storages()[storage].digest = now;
  insert(op_named("aten::copy_", ""), {tensor, copy_of(tensor), false}, {tensor});
}

void Capture::note_blank(uint32_t slot) {
  uint32_t storage = slots.all()[slot].storage;
  if (storage == kNone || slots.storages()[storage].bytes == 0) return;
  slots.storages()[storage].blank = true;
  blanks_++;
}

void Capture::check_blank(const at::Tensor& tensor, uint32_t slot, const Writer& call) {
  uint32_t storage = slots.all()[slot].storage;
  if (storage == kNone || !slots.storages()[storage].blank || (call.op->shallow && !call.written)) return;
  slots.storages()[storage].blank = false;
  blanks_--;
  if (call.written) return;
  insert(op_named("aten::copy_", ""), {tensor, copy_of(tensor), false}, {tensor});
}

void Capture::opaque(int64_t region, const std::vector<at::Tensor>& given, const std::vector<at::Tensor>& gave) {
  std::lock_guard lock(mutex);
  insert(op_named("torchreel::opaque", ""), {region, given}, {gave});
}

void Capture::note_generator(const at::Generator& generator) {
  std::lock_guard lock(mutex);
  if (generator.defined() && generator.device().is_cpu()) index_of(generator);
}

uint32_t Capture::index_of(const at::Generator& generator) {
  for (uint32_t index = 0; index < generators.size(); index++) {
    if (generators[index].generator == generator) return index;
  }
  bool is_default = generator.device().is_cpu() && generator == at::detail::getDefaultCPUGenerator();
  // The program may have set the default one before it first drew from it.
  auto state = is_default && begin_random_.defined() ? begin_random_ : state_of(generator);
  generators.push_back({generator, state, state, is_default});
  return static_cast<uint32_t>(generators.size() - 1);
}

void Capture::check_generator(uint32_t index) {
  auto& known = generators[index];
  auto now = state_of(known.generator);
  if (same_bytes(now, known.last)) return;
  known.last = now;
  // A copy, which nobody else holds: a constant of the program.
  insert(op_named("torchreel::set_rng", ""), {known.generator, copy_of(now)}, {});
}

void Capture::generator_read(const at::Generator& generator, const at::Tensor& state) {
  c10::impl::ExcludeDispatchKeyGuard quiet(kKey);
  std::lock_guard lock(mutex);
  if (!generator.device().is_cpu()) return;
  check_generator(index_of(generator));
  insert(op_named("torchreel::get_rng", ""), {generator}, {state});
}

void Capture::generator_set(const at::Generator& generator, const at::Tensor& state) {
  c10::impl::ExcludeDispatchKeyGuard quiet(kKey);
  std::lock_guard lock(mutex);
  if (!generator.device().is_cpu()) return;
  auto& known = generators[index_of(generator)];
  known.last = state_of(generator);
  insert(op_named("torchreel::set_rng", ""), {generator, state.defined() ? state : copy_of(known.last)}, {});
}

void Capture::generator_cloned(const at::Generator& from, const at::Generator& to) {
  auto state = state_of(from);
  generator_read(from, state);
  generator_set(to, state);
}

void Capture::generator_number(const at::Generator& generator, bool is_new) {
  c10::impl::ExcludeDispatchKeyGuard quiet(kKey);
  std::lock_guard lock(mutex);
  if (!generator.device().is_cpu()) return;
  uint32_t index = index_of(generator);
  if (is_new) {
    generators[index].last = state_of(generator);
  } else {
    check_generator(index);
  }
  auto seed = static_cast<int64_t>(generator.current_seed());
  insert(op_named(is_new ? "torchreel::new_seed" : "torchreel::seed", ""), {generator}, {seed});
}

void Capture::finish_generators() {
  const auto& generator = at::detail::getDefaultCPUGenerator();
  if (begin_random_.defined() && !same_bytes(state_of(generator), begin_random_)) index_of(generator);
  for (uint32_t index = 0; index < generators.size(); index++) check_generator(index);
}

void Capture::keep_start(const at::Tensor& tensor, uint32_t slot) {
  uint32_t storage = slots.all()[slot].storage;
  if (storage == kNone || !tensor.device().is_cpu()) return;
  for (const auto& [known, bytes] : start_storages) {
    if (known == storage) return;
  }
  const auto& whole = tensor.unsafeGetTensorImpl()->unsafe_storage();
  auto bytes = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(whole), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                        c10::scalarTypeToTypeMeta(c10::kByte));
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(whole.nbytes())});
  start_storages.emplace_back(storage, copy_of(bytes));
}

void Writer::put_tensor(const at::Tensor& tensor) {
  if (tensor.key_set().has_backend(c10::BackendComponent::MetaBit)) {
    meta = true;
    return word(kNothing);
  }
  auto& slots = tape_.slots;
  size_t known = slots.externals().size();
  uint32_t slot = gives_ ? slots.made(tensor) : slots.read(tensor);
  word(kTensor | static_cast<uint64_t>(slot) << 8);
  if (tensors != nullptr) tensors->push_back(tensor);
  if (tape_.blanks_ != 0 && !gives_ && op != nullptr) tape_.check_blank(tensor, slot, *this);
  if (gives_ && op != nullptr && op->blank) tape_.note_blank(slot);
  // torch.tensor() makes a new tensor at each call, which may be written later.
  bool fresh = op != nullptr && op->name == "aten::lift_fresh";
  if ((tape_.options.hashes || fresh) && slots.externals().size() != known) tape_.keep_start(tensor, slot);
  if (!tape_.shares_) return;
  uint32_t storage = slots.storage_of(tensor);
  if (storage == kNone || !slots.storages()[storage].shared) return;
  if (!gives_) tape_.check_shared(tensor);
  shared.push_back(tensor);
}

void Writer::put(double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  word(kDouble);
  word(bits);
}

void Writer::put(const c10::Scalar& value) {
  if (value.isFloatingPoint()) {
    put(value.toDouble());
  } else if (value.isBoolean()) {
    put(value.toBool());
  } else if (value.isComplex()) {
    auto number = value.toComplexDouble();
    double parts[2] = {number.real(), number.imag()};
    uint64_t bits[2];
    memcpy(bits, parts, 16);
    word(kComplexNumber);
    word(bits[0]);
    word(bits[1]);
  } else {
    put(value.toLong());
  }
}

void Writer::put(std::string_view text) {
  word(kText | static_cast<uint64_t>(text.size()) << 8);
  for (size_t at = 0; at < text.size(); at += 8) {
    uint64_t part = 0;
    memcpy(&part, text.data() + at, std::min<size_t>(8, text.size() - at));
    word(part);
  }
}

void Writer::put(const c10::Device& value) {
  meta = meta || value.is_meta();
  word(kDeviceName | static_cast<uint64_t>(value.type()) << 8 | static_cast<uint64_t>(value.index() + 1) << 16);
}

void Writer::put(const at::Generator& value) {
  if (!value.defined()) return word(kNothing);
  generator = tape_.index_of(value);
  word(kGenerator | static_cast<uint64_t>(generator) << 8);
}

void Writer::put(const c10::Storage& value) {
  word(kStorage | static_cast<uint64_t>(tape_.slots.read_storage(value)) << 8);
}

void Writer::put(const c10::List<std::optional<at::Tensor>>& values) {
  word(kList | static_cast<uint64_t>(values.size()) << 8);
  for (const std::optional<at::Tensor> value : values) put(value);
}

void Writer::put(const at::ITensorListRef& values) {
  word(kList | static_cast<uint64_t>(values.size()) << 8);
  for (const auto& value : values) put(value);
}

void Writer::put(const c10::IValue& value) {
  if (value.isTensor()) return put(value.toTensor());
  if (value.isNone()) return word(kNothing);
  if (value.isInt()) return put(value.toInt());
  if (value.isDouble()) return put(value.toDouble());
  if (value.isBool()) return put(value.toBool());
  if (value.isList()) {
    auto elements = value.toListRef();
    word(kList | static_cast<uint64_t>(elements.size()) << 8);
    for (const auto& element : elements) put(element);
    return;
  }
  if (value.isComplexDouble()) return put(c10::Scalar(value.toComplexDouble()));
  if (value.isString()) return put(std::string_view(value.toStringRef()));
  if (value.isDevice()) return put(value.toDevice());
  if (value.isGenerator()) return put(value.toGenerator());
  if (value.isStorage()) return put(value.toStorage());
  if (value.isSymInt()) return put(value.toSymInt());
  auto& objects = tape_.objects;
  for (size_t index = 0; index < objects.size(); index++) {
    if (objects[index].is(value)) return word(kObject | static_cast<uint64_t>(index) << 8);
  }
  objects.push_back(value);
  word(kObject | static_cast<uint64_t>(objects.size() - 1) << 8);
}

const uint64_t* Writer::keep() {
  uint64_t* words = tape_.arena.take(count_ + 1);
  memcpy(words, long_.empty() ? short_ : long_.data(), count_ * 8);
  return words;
}

Call::Call(const OpInfo& op) : tape_(*latest), op_(op), lock_(tape_.mutex, std::defer_lock), given_(tape_, false) {
  where();
  given_.op = &op;
  lock_.lock();
  where_.module = index_of_module();
  tape_.slots.op = static_cast<uint32_t>(tape_.ops.size());
}

// The GIL may be needed here, so the lock is not held: whoever holds the GIL may wait for the lock.
void Call::where() {
  where_.op = &op_;
  where_.stack = stack_of_caller();
  where_.time = ticks();
  where_.sequence = at::sequence_number::peek();
  where_.grad = at::GradMode::is_enabled();
  auto node = torch::autograd::get_current_node();
  if (node) {
    where_.backward = true;
    where_.node = node->sequence_nr() + 1;
  }
  module_ = module_of_caller();
}

uint32_t Call::index_of_module() {
  if (module_ == nullptr) return kNone;
  auto known = tape_.module_indices_.find(module_);
  if (known != tape_.module_indices_.end()) return known->second;
  lock_.unlock();
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_INCREF(static_cast<PyObject*>(module_));
  PyGILState_Release(gil);
  lock_.lock();
  tape_.module_references.push_back(module_);
  auto [entry, added] = tape_.module_indices_.emplace(module_, static_cast<uint32_t>(tape_.modules.size()));
  if (added) tape_.modules.push_back(module_);
  return entry->second;
}

void Call::before_kernel() {
  if (given_.meta) return lock_.unlock();  // a compiler or a fake tensor only computes shapes
  where_.thread = tape_.thread();
  if (op_.random) {
    if (given_.generator == kNone) given_.generator = tape_.index_of(at::detail::getDefaultCPUGenerator());
    tape_.check_generator(given_.generator);
  }
  where_.arguments = given_.keep();
  record_ = &tape_.ops.push_back(where_);
  lock_.unlock();
}

void Call::finish(Writer& gave) {
  if (record_ == nullptr) return;
  record_->results = gave.keep();
  if (op_.random) {
    auto& known = tape_.generators[given_.generator];
    known.last = state_of(known.generator);
  }
  if (tape_.options.hashes && !op_.view && !op_.unset) {
    auto& digests = tape_.digests.emplace_back();
    record_->digests = &digests;
    c10::impl::ExcludeDispatchKeyGuard quiet(kKey);
    for (const auto& tensor : made_) digests.push_back(digest_of(tensor));
    for (const auto& tensor : written_) {
      bool made = false;
      for (const auto& other : made_) made = made || other.is_same(tensor);
      if (!made) digests.push_back(digest_of(tensor));
    }
  }
  for (const auto& tensor : given_.shared) {
    c10::impl::ExcludeDispatchKeyGuard quiet(kKey);
    uint64_t now = storage_digest(tensor);
    auto& storage = tape_.slots.storages()[tape_.slots.storage_of(tensor)];
    if (now == storage.digest) continue;
    storage.digest = now;
    auto digest = digest_of(tensor);
    if (digest.has_value()) {
      tape_.insert(op_named("torchreel::seen", ""), {tensor}, {static_cast<int64_t>(digest->hash)});
    }
  }
}

}  // namespace torchreel::tape
