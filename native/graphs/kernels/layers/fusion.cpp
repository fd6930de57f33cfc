#include "graphs/kernels/layers/fusion.h"

#include <algorithm>

#include "graphs/kernels/layers/tiles.h"

namespace torchreel::graphs {

namespace {

constexpr int64_t kSmallBytes = 1 << 16;  // a smaller result is in the cache anyway
constexpr size_t kLongest = 64;           // ops of a chain

// How a chain uses a region.
struct Use {
  Region region;
  bool written = false;
  bool needed_before = false;                     // its old content is read
  int64_t last = 0;                               // the last step that reads what the chain writes
  std::vector<const c10::StorageImpl*> storages;  // that lie there, one after the other
};

bool meet(const Region& one, size_t count, const Region& other, size_t other_count) {
  return one.begin < other.begin + other_count * other.item && other.begin < one.begin + count * one.item;
}

bool share_storage(const Use& one, const Use& other) {
  return std::any_of(one.storages.begin(), one.storages.end(), [&](const auto* storage) {
    return std::find(other.storages.begin(), other.storages.end(), storage) != other.storages.end();
  });
}

bool is_fusible(const BoundKernel& bound) {
  if (bound.call.op == nullptr || bound.call.results.empty()) return false;
  const auto& result = bound.call.results[0];
  if (!result.defined() || result.numel() * 4 < kSmallBytes || !has_one_partition(result.numel())) return false;
  return is_tileable(bound.call);
}

// The memory of a chain that grows op by op.
class Uses {
 public:
  void add(const BoundKernel& bound) {
    const auto& call = bound.call;
    for (const auto& value : call.arguments) {
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      auto& argument = use(value.toTensor(), is_single(value.toTensor()) ? singles_ : uses_);
      argument.needed_before = argument.needed_before || !argument.written;
    }
    for (size_t i = 0; i < call.results.size(); i++) {
      auto& result = use(call.results[i], uses_);
      result.written = true;
      result.last = bound.lasts[i];
    }
  }

  // The regions of the chain if it ends with this step. Nothing if an op would write in one tile what another op reads
  // in another tile.
  std::vector<Region> regions(int64_t step, size_t elements) const {
    std::vector<Region> all;
    for (const auto& use : uses_) {
      all.push_back(use.region);
      all.back().scratch = use.written && !use.needed_before && use.last <= step;
    }
    for (size_t i = 0; i < all.size(); i++) {
      if (!uses_[i].written) continue;
      // A scratch region gets memory elsewhere, for one tile: the storages that lie here do not matter.
      for (size_t j = 0; j < all.size(); j++) {
        bool apart = j == i || !meet(all[i], elements, all[j], elements);
        if (!apart && (share_storage(uses_[i], uses_[j]) || !(all[i].scratch || all[j].scratch))) return {};
      }
      for (const auto& single : singles_) {
        bool apart = !meet(all[i], elements, single.region, 1);
        if (!apart && (share_storage(uses_[i], single) || !all[i].scratch)) return {};
      }
    }
    return all;
  }

 private:
  static Use& use(const at::Tensor& tensor, std::vector<Use>& all) {
    auto region = region_of(tensor);
    auto found = std::find_if(all.begin(), all.end(), [&](const Use& use) {
      return use.region.begin == region.begin && use.region.item == region.item;
    });
    if (found == all.end()) found = all.insert(all.end(), Use{region, false, false, 0, {}});
    found->storages.push_back(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    return *found;
  }

  std::vector<Use> uses_;
  std::vector<Use> singles_;  // of one number for all elements
};

// How many kernels from `begin` on can run in tiles, and the chain that they form.
size_t longest_chain(const std::vector<BoundKernel>& kernels, const std::vector<bool>& fusible, size_t begin,
                     Chain& chain) {
  chain.elements = kernels[begin].call.results[0].numel();
  Uses uses;
  size_t found = 0;
  for (size_t i = begin; i < kernels.size() && i - begin < kLongest; i++) {
    if (!fusible[i] || kernels[i].call.results[0].numel() != chain.elements) break;
    uses.add(kernels[i]);
    auto regions = uses.regions(kernels[i].step, chain.elements);
    if (regions.empty()) continue;
    found = i + 1 - begin;
    chain.regions = std::move(regions);
  }
  for (size_t i = 0; i < found; i++) chain.calls.push_back(&kernels[begin + i].call);
  return found;
}

}  // namespace

void fuse(std::vector<BoundKernel>& kernels) {
  std::vector<BoundKernel> fused;
  std::vector<bool> fusible;
  for (const auto& kernel : kernels) fusible.push_back(is_fusible(kernel));
  for (size_t i = 0; i < kernels.size();) {
    Chain chain;
    size_t count = fusible[i] ? longest_chain(kernels, fusible, i, chain) : 0;
    if (count >= 2) {
      std::vector<std::unique_ptr<Kernel>> alone;
      for (size_t j = i; j < i + count; j++) alone.push_back(std::move(kernels[j].kernel));
      if (auto kernel = tiled(chain, alone)) {
        fused.push_back({std::move(kernel), kernels[i].op, kernels[i].step, {}, {}});
        i += count;
        continue;
      }
      for (size_t j = i; j < i + count; j++) kernels[j].kernel = std::move(alone[j - i]);
    }
    fused.push_back(std::move(kernels[i]));
    i++;
  }
  kernels = std::move(fused);
}

}  // namespace torchreel::graphs
