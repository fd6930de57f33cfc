#include "graphs/run/one_thread_trial.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Formatting.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>
#include <unordered_set>

#include "graphs/kernels/layers/prepare.h"
#include "graphs/kernels/layers/tiles.h"
#include "graphs/run/helper_thread.h"
#include "torch/one_thread.h"

namespace torchreel::graphs {

namespace {

// Ops whose kernels split elements or rows among threads if there are more than the grain size.
const std::unordered_set<std::string_view> kByElements = {"aten::sum",
                                                          "aten::sum.dim_IntList",
                                                          "aten::mean",
                                                          "aten::mean.dim",
                                                          "aten::amax",
                                                          "aten::amin",
                                                          "aten::cat",
                                                          "aten::stack",
                                                          "aten::copy_",
                                                          "aten::clone",
                                                          "aten::_to_copy",
                                                          "aten::zero_",
                                                          "aten::zeros",
                                                          "aten::zeros_like",
                                                          "aten::new_zeros",
                                                          "aten::ones",
                                                          "aten::ones_like",
                                                          "aten::new_ones",
                                                          "aten::fill_.Scalar",
                                                          "aten::fill.Scalar",
                                                          "aten::full",
                                                          "aten::full_like",
                                                          "aten::new_full",
                                                          "aten::mse_loss",
                                                          "aten::mse_loss_backward",
                                                          "aten::slice_backward",
                                                          "aten::select_backward"};

// Ops that decide by themselves, or by a library, how many threads they use.
const std::unordered_set<std::string_view> kByTrial = {"aten::mm",
                                                       "aten::addmm",
                                                       "aten::addmm_",
                                                       "aten::mv",
                                                       "aten::addmv",
                                                       "aten::bmm",
                                                       "aten::baddbmm",
                                                       "aten::baddbmm_",
                                                       "aten::convolution",
                                                       "aten::_scaled_dot_product_flash_attention_for_cpu",
                                                       "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
                                                       "aten::native_layer_norm",
                                                       "aten::native_layer_norm_backward",
                                                       "aten::native_batch_norm",
                                                       "aten::_native_batch_norm_legit_no_training",
                                                       "aten::_softmax",
                                                       "aten::_softmax_backward_data",
                                                       "aten::_log_softmax",
                                                       "aten::_log_softmax_backward_data",
                                                       "aten::avg_pool2d",
                                                       "aten::max_pool2d_with_indices"};

constexpr std::string_view kForeach = "aten::_foreach_";

// Ops that throw for some integers: division by zero, a negative power.
bool may_throw(std::string name) {
  if (name.starts_with(kForeach)) name = "aten::" + name.substr(kForeach.size());
  static constexpr std::string_view kThrowing[] = {"aten::div",  "aten::floor_divide", "aten::remainder",
                                                   "aten::fmod", "aten::pow",          "aten::gcd",
                                                   "aten::lcm",  "aten::__",           "aten::true_divide"};
  return std::any_of(std::begin(kThrowing), std::end(kThrowing), [&](auto one) { return name.starts_with(one); });
}

template <class Visit>
void each_tensor(const KernelCall& call, Visit visit) {
  auto meet = [&](const at::Tensor& tensor) {
    if (tensor.defined()) visit(tensor);
  };
  for (const auto& value : call.arguments) {
    if (value.isTensor()) {
      meet(value.toTensor());
    } else if (value.isList()) {
      for (const auto& element : value.toListRef()) {
        if (element.isTensor()) meet(element.toTensor());
      }
    }
  }
  for (const auto& result : call.results) meet(result);
}

// Ops over lists, which run tensor by tensor.
bool is_by_elements(const tape::OpInfo& op) {
  return is_pointwise(op) || kByElements.count(op.name) != 0 || op.name.starts_with(kForeach);
}

bool is_small(const KernelCall& call) {
  bool small = true;
  each_tensor(call, [&](const at::Tensor& tensor) { small = small && tensor.numel() < at::internal::GRAIN_SIZE; });
  return small;
}

bool is_whole(const at::Tensor& tensor) { return at::isIntegralType(tensor.scalar_type(), false); }

double now() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Memory like that of a call, with the same alignment to cache lines, and with random numbers.
class Stage {
 public:
  static constexpr size_t kMost = size_t{1} << 27;
  static constexpr size_t kLine = 64;

  // Nothing if random numbers will not do for an argument.
  static std::optional<Stage> like(const KernelCall& call) {
    Stage stage;
    size_t bytes = 0;
    bool fits = true;
    each_tensor(call, [&](const at::Tensor& tensor) {
      if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
      auto dtype = tensor.scalar_type();
      fits = fits && (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBool);
      auto& room = stage.rooms_[tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()];
      fits = fits && (room.bytes == 0 || room.dtype == dtype);
      if (room.bytes == 0) bytes += tensor.storage().nbytes();
      room.bytes = tensor.storage().nbytes();
      room.dtype = dtype;
      room.distance = reinterpret_cast<uintptr_t>(tensor.storage().data()) % kLine;
    });
    if (!fits || bytes > kMost) return std::nullopt;
    for (auto& [original, room] : stage.rooms_) {
      room.memory = std::make_unique<char[]>(room.bytes + 2 * kLine);
      auto begin = reinterpret_cast<uintptr_t>(room.memory.get());
      begin = (begin + kLine - 1) / kLine * kLine + room.distance;
      room.storage =
          c10::Storage(c10::Storage::use_byte_size_t(), room.bytes,
                       at::DataPtr(reinterpret_cast<char*>(begin), c10::Device(c10::DeviceType::CPU)), nullptr, false);
    }
    return stage;
  }

  KernelCall call(const KernelCall& call) {
    KernelCall other = call;
    for (auto& value : other.arguments) {
      if (value.isTensor() && value.toTensor().defined()) {
        value = here(value.toTensor());
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(here(tensor));
        value = list;
      }
    }
    for (auto& result : other.results) {
      if (result.defined()) result = here(result);
    }
    return other;
  }

  // A seed gives the same numbers each time.
  void fill(uint64_t seed) {
    for (auto& [original, room] : rooms_) {
      char* memory = static_cast<char*>(room.storage.mutable_data());
      if (room.dtype == at::kFloat) {
        fill(reinterpret_cast<float*>(memory), room.bytes / sizeof(float), seed);
      } else if (room.dtype == at::kDouble) {
        fill(reinterpret_cast<double*>(memory), room.bytes / sizeof(double), seed);
      } else {
        for (size_t i = 0; i < room.bytes; i++) memory[i] = static_cast<char>(next(seed) >> 63);
      }
    }
  }

  std::vector<char> bytes() const {
    std::vector<char> all;
    for (const auto& [original, room] : rooms_) {
      const char* memory = static_cast<const char*>(room.storage.data());
      all.insert(all.end(), memory, memory + room.bytes);
    }
    return all;
  }

 private:
  struct Room {
    size_t bytes = 0, distance = 0;
    at::ScalarType dtype = at::kFloat;
    std::unique_ptr<char[]> memory;
    c10::Storage storage;
  };

  // Not torch's generator, whose state is the user's.
  static uint64_t next(uint64_t& state) { return state = state * 6364136223846793005u + 1442695040888963407u; }

  template <class T>
  static void fill(T* numbers, size_t count, uint64_t& seed) {
    for (size_t i = 0; i < count; i++) {
      numbers[i] = static_cast<T>(static_cast<int32_t>(next(seed) >> 32)) / static_cast<T>(1 << 30);
    }
  }

  at::Tensor here(const at::Tensor& tensor) {
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
    auto& made = made_[tensor.unsafeGetTensorImpl()];
    if (made.defined()) return made;
    const auto& room = rooms_.at(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(room.storage),
                                                    c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    return made;
  }

  std::map<const c10::StorageImpl*, Room> rooms_;  // by the storage that they imitate
  std::map<const c10::TensorImpl*, at::Tensor> made_;
};

// What decides how a call runs: its op, its numbers, and the layout of its tensors.
std::string key_of(const KernelCall& call) {
  std::ostringstream text;
  text << call.op->name << ' ' << at::get_num_threads() << ' ' << call.exact << ' ' << call.grad;
  std::map<const void*, size_t> storages;
  auto tell = [&](const at::Tensor& tensor) {
    const void* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    text << " t" << storages.emplace(storage, storages.size()).first->second << tensor.scalar_type() << tensor.sizes()
         << tensor.strides() << tensor.storage_offset() << '.'
         << reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % Stage::kLine;
  };
  for (const auto& value : call.arguments) {
    if (value.isTensor() && value.toTensor().defined()) {
      if (value.toTensor().unsafeGetTensorImpl()->is_wrapped_number()) text << ' ' << value.toTensor().item();
      tell(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) tell(tensor);
    } else if (!value.isList() || value.isIntList() || value.isDoubleList() || value.isBoolList()) {
      text << ' ' << value;
    } else {
      text << " list of " << value.toListRef().size();
    }
  }
  for (const auto& result : call.results) {
    if (result.defined()) tell(result);
  }
  return text.str();
}

// Compares a run with all threads and one with one thread.
struct Trial {
  bool same = false;
  double all = 0, one = 0;  // nanoseconds
};

constexpr int kDraws = 3;

// The least of some runs: other programs on the machine only add.
double timed(Kernel& kernel) {
  constexpr double kLong = 2e6;
  double least = 0, begin = now();
  for (int run = 0; run < 8 && (run < 2 || now() - begin < kLong); run++) {
    double start = now();
    kernel.run();
    double took = now() - start;
    least = run == 0 ? took : std::min(least, took);
  }
  return least;
}

Trial tried(const KernelCall& call, std::string_view layer, Stage& stage) {
  Trial trial;
  stage.fill(1);
  auto kernel = prepare(stage.call(call));
  if (kernel->layer() != layer) return trial;
  for (int draw = 0; draw < kDraws; draw++) {
    stage.fill(draw + 1);
    kernel->run();
    auto expected = stage.bytes();
    stage.fill(draw + 1);
    run_in_another_thread([&] { kernel->run(); });
    if (stage.bytes() != expected) return trial;
    stage.fill(draw + 1);
    OneThread guard;
    kernel->run();
    if (stage.bytes() != expected) return trial;
  }
  trial.same = true;
  trial.all = timed(*kernel);
  OneThread guard;
  trial.one = timed(*kernel);
  return trial;
}

// Nothing if the call cannot be tried.
std::optional<Trial> trial_of(const KernelCall& call, std::string_view layer) {
  static std::mutex lock;
  static std::map<std::string, std::optional<Trial>> known;
  std::lock_guard guard(lock);
  auto key = key_of(call);
  auto found = known.find(key);
  if (found != known.end()) return found->second;
  std::optional<Trial> trial;
  if (auto stage = Stage::like(call)) {
    try {
      trial = tried(call, layer, *stage);
    } catch (const std::exception&) {
      trial = Trial();  // a call that fails on these numbers is not moved
    }
  }
  known.emplace(std::move(key), trial);
  return trial;
}

constexpr double kGain = 1.25;  // a kernel that is so much faster with all threads is left to them

}  // namespace

bool is_plain_work(const tape::OpInfo& op, const Kernel& kernel, const KernelCall& call) {
  std::string_view layer = kernel.layer();
  if (layer == "boxed" || layer == "eager" || layer == "guard" || layer == "formula" || op.varying) return false;
  // Attention draws random numbers for dropout, but has a handwritten kernel only without dropout.
  if (kByTrial.count(op.name) == 0 && (op.random || !is_by_elements(op))) return false;
  bool throws = false;
  each_tensor(call, [&](const at::Tensor& tensor) { throws = throws || (is_whole(tensor) && may_throw(op.name)); });
  return !throws;
}

OneThreadTrial one_thread_trial(const KernelCall& call, const Kernel& kernel, double nanoseconds) {
  if (call.op == nullptr || !is_plain_work(*call.op, kernel, call)) return {Work::kFixed, nanoseconds};
  bool by_elements = is_by_elements(*call.op);
  if (by_elements && !is_small(call)) return {Work::kAlone, nanoseconds};
  auto trial = trial_of(call, kernel.layer());
  if (!trial.has_value()) {
    std::string_view layer = kernel.layer();
    bool has_own_loop = layer == "loop" || layer == "loops";  // in the thread that it is called in
    return {by_elements || has_own_loop ? Work::kBeside : Work::kAlone, nanoseconds};
  }
  double all = std::min(trial->all, nanoseconds);
  bool loses = !by_elements && trial->one > kGain * all;
  if (!trial->same || loses) return {Work::kAlone, nanoseconds};
  return {Work::kBeside, by_elements ? nanoseconds : std::min(trial->one, kGain * nanoseconds)};
}

}  // namespace torchreel::graphs
