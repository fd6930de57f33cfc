#include "graphs/kernels/layers/tiles.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "graphs/kernels/handwritten.h"
#include "graphs/kernels/layers/prepare.h"
#include "graphs/kernels/layers/structured.h"
#include "torch/below_autograd.h"

namespace torchreel::graphs {

namespace {

constexpr int64_t kTileBytes = 1 << 15;  // of the widest elements: a few such tiles fit into the cache of a core
constexpr size_t kLine = 64;             // bytes

c10::Storage storage_at(char* data, size_t bytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(data, c10::Device(c10::DeviceType::CPU)),
                      nullptr, false);
}

at::Tensor flat(const c10::Storage& storage, at::ScalarType dtype, int64_t elements) {
  c10::DispatchKeySet keys(c10::DispatchKey::CPU);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(storage), keys,
                                                         c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(elements);
  return tensor;
}

// Whether both have their elements in the same order in memory.
bool in_same_order(const at::Tensor& one, const at::Tensor& other) {
  return one.sizes() == other.sizes() &&
         (one.strides() == other.strides() || (one.is_contiguous() && other.is_contiguous()));
}

bool is_iterator(Kernel* kernel) { return dynamic_cast<at::TensorIteratorBase*>(kernel) != nullptr; }

bool is_of(const Kernel* kernel, std::string_view layer) { return kernel != nullptr && kernel->layer() == layer; }

// Which kernels can run on tiles: loops over pointers, torch's elementwise loops, and calls on tensors.
std::unique_ptr<Kernel> tile_kernel(const KernelCall& call) {
  auto kernel = prepare_in("handwritten", call);
  if (is_of(kernel.get(), "loop") || is_of(kernel.get(), "copy")) return kernel;
  kernel = prepare_in("structured", call);
  if (is_iterator(kernel.get())) return kernel;
  return prepare_in("out", call);
}

// The call with other tensors instead of those of all elements. Each tensor has one replacement.
template <class Replace>
KernelCall replaced(const KernelCall& call, Replace replace) {
  KernelCall other = call;
  for (auto& value : other.arguments) {
    if (value.isTensor() && value.toTensor().defined() && !is_single(value.toTensor())) {
      value = replace(value.toTensor());
    }
  }
  for (auto& result : other.results) result = replace(result);
  return other;
}

// Whether its iterator has all operands. For dtypes of few bits, torch removes a scalar operand.
bool is_movable(const KernelCall& call) {
  bool single = false, few_bits = false;
  for (const auto& value : call.arguments) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    auto dtype = value.toTensor().scalar_type();
    single = single || is_single(value.toTensor());
    few_bits = few_bits || dtype == at::kBFloat16 || dtype == at::kHalf;
  }
  return !(single && few_bits);
}

// An op for tiles of one size.
struct TileOp {
  std::unique_ptr<Kernel> kernel;              // whose tensors are moved from tile to tile,
  at::TensorIteratorBase* iterator = nullptr;  // and what it has of them by itself,
  std::vector<std::pair<int, size_t>> moved;   // operands and their regions
  std::vector<std::unique_ptr<Kernel>> each;   // else a kernel for each tile
};

// The tensors of one tile, or tensors whose address moves from tile to tile.
class Tile {
 public:
  // `begins` are the addresses of the regions.
  Tile(const Chain& chain, std::vector<char*> begins, int64_t elements) : chain_(chain), elements_(elements) {
    for (size_t i = 0; i < begins.size(); i++) {
      storages_.push_back(storage_at(begins[i], elements * chain.regions[i].item));
    }
  }

  KernelCall call(const KernelCall& call) {
    return replaced(call, [&](const at::Tensor& tensor) { return here(tensor); });
  }
  std::vector<c10::Storage>& storages() { return storages_; }

 private:
  at::Tensor here(const at::Tensor& tensor) {
    for (const auto& [address, dtype, made] : made_) {
      if (address == tensor.const_data_ptr() && dtype == tensor.scalar_type()) return made;
    }
    auto wanted = region_of(tensor);
    size_t i = 0;
    while (chain_.regions[i].begin != wanted.begin || chain_.regions[i].item != wanted.item) i++;
    made_.emplace_back(tensor.const_data_ptr(), tensor.scalar_type(),
                       flat(storages_[i], tensor.scalar_type(), elements_));
    return std::get<2>(made_.back());
  }

  const Chain& chain_;
  int64_t elements_;
  std::vector<c10::Storage> storages_;  // by region
  std::vector<std::tuple<const void*, at::ScalarType, at::Tensor>> made_;
};

// The part of a chain that one thread runs.
class Lane {
 public:
  // Throws Unfit.
  Lane(const Chain& chain, int64_t begin, int64_t end, int64_t tile)
      : tile_(std::min(tile, end - begin)), tiles_((end - begin) / tile_) {
    make_places(chain, begin);
    int64_t rest = (end - begin) % tile_;
    Tile whole(chain, begins(0), tile_), last(chain, begins(tiles_), rest);
    storages_ = whole.storages();
    for (const auto* call : chain.calls) whole_.push_back(op_of(chain, *call, whole, tile_));
    if (rest == 0) return;
    for (const auto* call : chain.calls) {
      last_.push_back(tile_kernel(last.call(*call)));
      if (last_.back() == nullptr) throw Unfit();
    }
  }

  void run() {
    for (int64_t i = 0; i < tiles_; i++) run(i);
    for (auto& kernel : last_) kernel->run();
  }

 private:
  struct Address {
    char* begin;
    int64_t step;  // bytes from tile to tile
    size_t item;
  };

  void make_places(const Chain& chain, int64_t begin) {
    size_t bytes = kLine;
    for (const auto& region : chain.regions) bytes += region.scratch ? tile_ * region.item + 2 * kLine : 0;
    memory_ = std::make_unique<char[]>(bytes);
    auto next = reinterpret_cast<uintptr_t>(memory_.get());
    for (const auto& region : chain.regions) {
      char* first = region.begin + begin * region.item;
      if (!region.scratch) {
        addresses_.push_back({first, tile_ * static_cast<int64_t>(region.item), region.item});
        continue;
      }
      // With the same alignment to cache lines as the memory that it stands for: vectors see no difference.
      next = (next + kLine - 1) / kLine * kLine + reinterpret_cast<uintptr_t>(first) % kLine;
      addresses_.push_back({reinterpret_cast<char*>(next), 0, region.item});
      next += tile_ * region.item;
    }
  }

  std::vector<char*> begins(int64_t tile) const {
    std::vector<char*> all;
    for (const auto& address : addresses_) all.push_back(address.begin + tile * address.step);
    return all;
  }

  TileOp op_of(const Chain& chain, const KernelCall& call, Tile& tile, int64_t elements) {
    TileOp op;
    auto here = tile.call(call);
    op.kernel = tile_kernel(here);
    op.iterator = dynamic_cast<at::TensorIteratorBase*>(op.kernel.get());
    if (op.kernel == nullptr) throw Unfit();
    if (is_of(op.kernel.get(), "out")) return op;
    if (op.iterator != nullptr && is_movable(call) && find_operands(op)) return op;
    op.iterator = nullptr;
    op.moved.clear();
    for (int64_t i = 0; i < tiles_; i++) {
      op.each.push_back(tile_kernel(Tile(chain, begins(i), elements).call(call)));
      if (op.each.back() == nullptr) throw Unfit();
    }
    return op;
  }

  // Not if its iterator works on copies.
  bool find_operands(TileOp& op) const {
    const auto& iterator = *op.iterator;
    for (int i = 0; i < iterator.ntensors(); i++) {
      auto strides = iterator.strides(i);
      if (std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; })) continue;
      auto found = std::find_if(addresses_.begin(), addresses_.end(), [&](const Address& address) {
        return address.begin == iterator.data_ptr(i) && address.item == static_cast<size_t>(iterator.element_size(i));
      });
      if (found == addresses_.end()) return false;
      op.moved.emplace_back(i, found - addresses_.begin());
    }
    return true;
  }

  void run(int64_t tile) {
    for (size_t i = 0; i < addresses_.size(); i++) {
      const auto& address = addresses_[i];
      at::DataPtr here(address.begin + tile * address.step, c10::Device(c10::DeviceType::CPU));
      if (address.step != 0) storages_[i].unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(here));
    }
    for (auto& op : whole_) {
      for (auto [operand, region] : op.moved) {
        op.iterator->unsafe_replace_operand(operand, addresses_[region].begin + tile * addresses_[region].step);
      }
      (op.each.empty() ? op.kernel : op.each[tile])->run();
    }
  }

  int64_t tile_, tiles_;  // elements of a tile, and whole tiles
  std::vector<Address> addresses_;
  std::unique_ptr<char[]> memory_;  // of scratch regions
  std::vector<c10::Storage> storages_;
  std::vector<TileOp> whole_;
  std::vector<std::unique_ptr<Kernel>> last_;  // for the elements after the last whole tile
};

int64_t threads_now() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

class TiledKernel final : public Kernel {
 public:
  TiledKernel(const Chain& chain, int64_t threads) : threads_(threads) {
    size_t widest = 1;
    for (const auto& region : chain.regions) widest = std::max(widest, region.item);
    int64_t tile = kTileBytes / static_cast<int64_t>(widest);
    int64_t part = (chain.elements + threads - 1) / threads;  // as torch splits them
    for (int64_t begin = 0; begin < chain.elements; begin += part) {
      lanes_.push_back(std::make_unique<Lane>(chain, begin, std::min(begin + part, chain.elements), tile));
    }
    if (lanes_.size() == 1) return;
    numbers_ = at::empty({static_cast<int64_t>(lanes_.size())}, at::kByte);
    iterator_ =
        at::TensorIteratorConfig().check_all_same_dtype(false).add_owned_output(numbers_).resize_outputs(false).build();
  }

  void keep(std::vector<std::unique_ptr<Kernel>> kernels) { kernels_ = std::move(kernels); }

  void run() override {
    if (threads_now() != threads_) {
      for (auto& kernel : kernels_) kernel->run();
    } else if (lanes_.size() == 1) {
      lanes_[0]->run();
    } else {
      run_lanes();
    }
  }

  const char* layer() const override { return "tiles"; }

 private:
  // Only torch's iterators use its threads.
  void run_lanes() {
    const char* first = static_cast<const char*>(numbers_.const_data_ptr());
    iterator_.for_each(
        [&](char** data, const int64_t* strides, int64_t count, int64_t) {
          BelowAutograd below_autograd;
          for (int64_t i = 0; i < count; i++) lanes_[data[0] + i * strides[0] - first]->run();
        },
        1);
  }

  int64_t threads_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  at::Tensor numbers_;  // one for each lane
  at::TensorIterator iterator_;
};

}  // namespace

bool is_pointwise(const tape::OpInfo& op) {
  if (op.random || op.varying) return false;
  if (op.name == "aten::_to_copy") return true;
  if (op.handle.hasTag(at::Tag::pointwise)) return true;
  // Torch has the tag on the functional op alone.
  const auto& [name, overload] = op.operator_name;
  if (name.empty() || name.back() != '_') return false;
  auto other = c10::Dispatcher::singleton().findSchema({name.substr(0, name.size() - 1), overload});
  return other.has_value() && other->hasTag(at::Tag::pointwise);
}

bool is_single(const at::Tensor& tensor) { return tensor.numel() == 1 && tensor.dim() <= 1; }

Region region_of(const at::Tensor& tensor) {
  return {static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())), static_cast<size_t>(tensor.element_size())};
}

bool has_one_partition(int64_t elements) {
  int64_t threads = at::get_num_threads();
  return threads == 1 || elements >= threads * at::internal::GRAIN_SIZE;
}

bool is_tileable(const KernelCall& call) {
  if (call.results.empty() || !is_pointwise(*call.op)) return false;
  const auto& first = call.results[0];
  if (!first.defined() || first.numel() < 2) return false;
  auto fits = [&](const at::Tensor& tensor) { return is_dense(tensor) && in_same_order(tensor, first); };
  for (const auto& value : call.arguments) {
    if (value.isTensorList() || value.isOptionalTensorList()) return false;
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    if (!is_single(value.toTensor()) && !fits(value.toTensor())) return false;
  }
  for (const auto& result : call.results) {
    if (!result.defined() || !fits(result)) return false;
  }
  int64_t some = std::min(first.numel(), kTileBytes / static_cast<int64_t>(first.element_size()));
  Chain alone{first.numel(), {}, {&call}};
  std::vector<char*> begins;
  replaced(call, [&](const at::Tensor& tensor) {
    alone.regions.push_back(region_of(tensor));
    begins.push_back(alone.regions.back().begin);
    return tensor;
  });
  return tile_kernel(Tile(alone, begins, some).call(call)) != nullptr;
}

std::unique_ptr<Kernel> tiled(const Chain& chain, std::vector<std::unique_ptr<Kernel>>& kernels) {
  try {
    auto kernel = std::make_unique<TiledKernel>(chain, at::get_num_threads());
    kernel->keep(std::move(kernels));
    return kernel;
  } catch (const Unfit&) {
    return nullptr;
  }
}

}  // namespace torchreel::graphs
