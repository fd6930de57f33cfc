#include "graphs/inductor/lowering.h"

#include <dlfcn.h>

#include <algorithm>
#include <stdexcept>

namespace torchreel::graphs {

namespace {

constexpr double kWorth = 0.97;  // a generated kernel needs at most this part of the time that it replaces

}  // namespace

Generated::Generated(const std::string& library, const std::string& entry, std::vector<Pointer> pointers_,
                     std::vector<size_t> scratch_)
    : pointers(std::move(pointers_)), scratch(std::move(scratch_)) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* found = handle == nullptr ? nullptr : dlsym(handle, entry.c_str());
  if (found == nullptr) {
    const char* error = dlerror();
    throw std::runtime_error("A generated kernel cannot be loaded: " + std::string(error == nullptr ? "" : error));
  }
  run = reinterpret_cast<void (*)(void**)>(found);
}

const Replaced* Replacing::around(int64_t step) const {
  for (const auto& one : all_) {
    if (one.cluster->begin <= step && step < one.cluster->end) return &one;
  }
  return nullptr;
}

int64_t Replacing::first(int64_t step) const {
  const auto* found = around(step);
  return found == nullptr ? step : found->cluster->begin;
}

int64_t Replacing::last(int64_t step) const {
  const auto* found = around(step);
  return found == nullptr ? step : found->cluster->end - 1;
}

const Replaced* Replacing::at(size_t step) const {
  const auto* found = around(static_cast<int64_t>(step));
  return found != nullptr && found->cluster->begin == static_cast<int64_t>(step) ? found : nullptr;
}

std::vector<bool> Replacing::elided(const StaticProgram& program) const {
  const auto& storages = program.storages();
  std::vector<bool> gone(storages.size(), false), kept(storages.size(), false);
  for (const auto& one : all_) {
    if (!one.used) continue;
    const auto& cluster = *one.cluster;
    for (const auto& pointer : cluster.replacement->generated->pointers) {
      if (pointer.slot >= 0) kept[program.slot(cluster.slots[pointer.slot]).storage] = true;
    }
    for (uint32_t storage = 0; storage < storages.size(); storage++) {
      const auto& info = storages[storage];
      bool within = info.first >= cluster.begin && info.last < cluster.end;
      if (info.kind == StorageInfo::kMade && !info.handed_out && within) gone[storage] = true;
    }
  }
  for (uint32_t storage = 0; storage < storages.size(); storage++) gone[storage] = gone[storage] && !kept[storage];
  return gone;
}

void Lowering::add(const std::shared_ptr<const Generated>& generated, std::vector<std::shared_ptr<Cluster>> clusters) {
  auto replacement = std::make_shared<Replacement>();
  replacement->generated = generated;
  replacement->clusters = clusters.size();
  std::lock_guard lock(mutex_);
  for (auto& cluster : clusters) {
    cluster->replacement = replacement;
    clusters_.push_back(std::move(cluster));
  }
  std::sort(clusters_.begin(), clusters_.end(), [](const auto& a, const auto& b) { return a->begin < b->begin; });
}

Replacing Lowering::of(size_t begin, size_t end) const {
  std::vector<Replaced> all;
  if (version() == 0) return Replacing();
  std::lock_guard lock(mutex_);
  for (const auto& cluster : clusters_) {
    auto state = cluster->replacement->state.load();
    bool here = cluster->begin >= static_cast<int64_t>(begin) && cluster->end <= static_cast<int64_t>(end);
    if (!here || state == Replacement::kDropped) continue;
    all.push_back({cluster, state == Replacement::kUsed});
  }
  return Replacing(std::move(all));
}

void Lowering::arrived(bool always) {
  std::lock_guard lock(mutex_);
  always_ = always;
  version_++;
}

void Lowering::checked(Cluster& cluster, double exact_time, double generated_time) {
  std::lock_guard lock(mutex_);
  auto& replacement = *cluster.replacement;
  if (replacement.state != Replacement::kToCheck || cluster.checks >= kChecks) return;
  bool first = cluster.checks == 0;
  cluster.exact_time = first ? exact_time : std::min(cluster.exact_time, exact_time);
  cluster.generated_time = first ? generated_time : std::min(cluster.generated_time, generated_time);
  if (++cluster.checks < kChecks) return;
  replacement.exact_time += cluster.exact_time;
  replacement.generated_time += cluster.generated_time;
  if (++replacement.checked == replacement.clusters) decide(replacement);
}

void Lowering::decide(Replacement& replacement) {
  bool faster = always_ || replacement.generated_time < kWorth * replacement.exact_time;
  if (!faster) replacement.why = "it is not faster";
  replacement.state = faster ? Replacement::kUsed : Replacement::kDropped;
  version_++;
}

void Lowering::drop(Cluster& cluster, std::string why) {
  std::lock_guard lock(mutex_);
  auto& replacement = *cluster.replacement;
  if (replacement.state == Replacement::kDropped) return;
  replacement.why = std::move(why);
  replacement.state = Replacement::kDropped;
  version_++;
}

std::vector<Lowering::Row> Lowering::rows() const {
  std::lock_guard lock(mutex_);
  std::vector<Row> all;
  for (const auto& cluster : clusters_) {
    const auto& replacement = *cluster->replacement;
    all.push_back({cluster->begin, cluster->end, replacement.state, replacement.why, cluster->exact_time,
                   cluster->generated_time});
  }
  return all;
}

}  // namespace torchreel::graphs
