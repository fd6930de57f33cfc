#include "graphs/run/placement.h"

#include <algorithm>

#include "tape/capture/slots.h"

namespace torchreel::graphs {

using tape::kNone;

c10::Storage storage_at(char* data, size_t bytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(data, c10::Device(c10::DeviceType::CPU)),
                      nullptr, false);
}

StoragePlacement::StoragePlacement(const StaticProgram& program, Part part, const Pool& pool,
                                   const Replacing& replacing, const std::vector<uint32_t>& given,
                                   const std::vector<char*>& bound_inputs, const std::vector<bool>& lent)
    : program_(program),
      part_(part),
      pool_(pool),
      replacing_(replacing),
      given_(given),
      bound_inputs_(bound_inputs),
      lent_(lent),
      begin_(static_cast<int64_t>(program.begin(part))),
      end_(static_cast<int64_t>(program.end(part))) {
  size_t count = program_.storages().size();
  found_.storages.resize(count);
  found_.ranges.resize(count);
  found_.lasts.resize(count, kForever);
  handed_out_.resize(count, false);
  saved_.resize(count, false);
  is_given_.resize(count, false);
}

void StoragePlacement::set_forward(const GraphMemory& forward, bool keeps) {
  forward_ = &forward;
  keeps_ = keeps;
}

GraphMemory StoragePlacement::place(const std::vector<Obstacle>& obstacles, Stays& stays) {
  mark_handed_out();
  bind_inputs();
  std::vector<Obstacle> in_the_way = obstacles;
  borrow_memory(in_the_way);
  collect_needs();
  add_scratch_needs();
  found_.bytes = plan_memory(needs_, in_the_way, end_);
  note_obstacles(in_the_way, stays);
  assign_scratch(stays);
  assign_storages(stays);
  note_saved();
  found_.writes = merged(std::move(found_.writes));
  std::sort(stays.begin(), stays.end(), [](const Stay& a, const Stay& b) { return a.range.begin < b.range.begin; });
  return std::move(found_);
}

// Marks the storages that the caller gets, is given, or leaves for the backward.
void StoragePlacement::mark_handed_out() {
  auto mark = [&](uint32_t slot, std::vector<bool>& marks) {
    if (slot != kNone) marks[program_.slot(slot).storage] = true;
  };
  const auto& all = program_.recorded();
  if (part_.is_forward()) {
    for (uint32_t slot : all.outputs) mark(slot, handed_out_);
    for (const auto& binding : all.bindings) mark(binding.value, handed_out_);
  } else {
    for (uint32_t slot : all.segments[part_.segment()].derivatives) mark(slot, handed_out_);
  }
  for (uint32_t storage : program_.saved()) saved_[storage] = true;
  for (uint32_t slot : given_) mark(slot, is_given_);
}

// Inputs that are read and written in place.
void StoragePlacement::bind_inputs() {
  for (size_t i = 0; i < bound_inputs_.size(); i++) {
    if (bound_inputs_[i] == nullptr) continue;
    const auto& slot = program_.slot(given_[i]);
    char* base = bound_inputs_[i] - static_cast<size_t>(slot.offset) * c10::elementSize(slot.dtype);
    found_.storages[slot.storage] = storage_at(base, program_.storages()[slot.storage].extent);
  }
}

// Memory that is there already: tensors of the function's own, constants, and what the forward left.
void StoragePlacement::borrow_memory(std::vector<Obstacle>& obstacles) {
  const auto& storages = program_.storages();
  for (uint32_t storage = 0; storage < storages.size(); storage++) {
    const auto& info = storages[storage];
    if (info.unplanned) continue;
    if (info.kind == StorageInfo::kExternal || info.kind == StorageInfo::kConstant) {
      found_.storages[storage] = info.memory;
    } else if (is_saved_by_forward(storage)) {
      found_.ranges[storage] = forward_->ranges[storage];
      found_.storages[storage] = forward_->storages[storage];
      int64_t last = keeps_ || lent_[storage] ? kForever : replacing_.last(info.last);
      obstacles.push_back({found_.ranges[storage], last});
    }
  }
}

bool StoragePlacement::is_input(uint32_t storage) const {
  auto kind = part_.is_forward() ? StorageInfo::kInput : StorageInfo::kGradient;
  return is_given_[storage] && program_.storages()[storage].kind == kind;
}

// Whether the storage begins its life in this part, so that this part places it.
bool StoragePlacement::lies_here(uint32_t storage) const {
  const auto& info = program_.storages()[storage];
  if (info.kind != StorageInfo::kMade) return is_input(storage);
  bool used = info.last >= begin_ && info.first >= 0 && info.first < end_;
  return used ? info.first >= begin_ : handed_out_[storage] && info.first < 0;
}

Need StoragePlacement::need_of(uint32_t storage) {
  const auto& info = program_.storages()[storage];
  bool input = is_input(storage), made = info.kind == StorageInfo::kMade;
  int64_t first = input ? begin_ - 1 : replacing_.first(std::max(info.first, begin_));
  // An input that is written is copied back after the last step.
  bool stays_on = (made && handed_out_[storage]) || saved_[storage] || (input && info.written) || lent_[storage];
  int64_t last = stays_on ? kForever : std::max(first, std::min(info.last, end_));
  size_t bytes = input ? info.extent - std::min(info.extent, info.lowest) + Pool::kAlignment : info.extent;
  if (made) found_.lasts[storage] = last;
  return {bytes, Life::of(first, replacing_.last(last))};
}

void StoragePlacement::collect_needs() {
  auto elided = replacing_.elided(program_);
  const auto& storages = program_.storages();
  for (uint32_t storage = 0; storage < storages.size(); storage++) {
    const auto& info = storages[storage];
    bool borrowed = info.kind == StorageInfo::kExternal || info.kind == StorageInfo::kConstant ||
                    is_saved_by_forward(storage) || found_.storages[storage];
    if (info.unplanned || borrowed || elided[storage] || !lies_here(storage)) continue;
    needs_.push_back(need_of(storage));
    placed_.push_back(storage);
  }
}

void StoragePlacement::add_scratch_needs() {
  for (const auto& [cluster, used] : replacing_.all()) {
    for (size_t bytes : cluster->replacement->generated->scratch) {
      needs_.push_back({bytes, Life::of(cluster->begin, cluster->end - 1)});
    }
  }
}

void StoragePlacement::note_obstacles(const std::vector<Obstacle>& obstacles, Stays& stays) const {
  for (const auto& obstacle : obstacles) stays.push_back({obstacle.range, INT64_MIN, obstacle.last});
}

void StoragePlacement::assign_scratch(Stays& stays) {
  size_t next = placed_.size();
  for (const auto& [cluster, used] : replacing_.all()) {
    auto& addresses = found_.scratch.emplace_back();
    for (size_t i = 0; i < cluster->replacement->generated->scratch.size(); i++, next++) {
      Range range{needs_[next].offset, needs_[next].offset + needs_[next].bytes};
      addresses.push_back(pool_.at(range.begin));
      found_.writes.push_back(range);
      stays.push_back({range, cluster->begin, cluster->end - 1});
    }
  }
}

void StoragePlacement::assign_storages(Stays& stays) {
  for (size_t i = 0; i < placed_.size(); i++) {
    uint32_t storage = placed_[i];
    const auto& info = program_.storages()[storage];
    const auto& need = needs_[i];
    Range range{need.offset, need.offset + need.bytes};
    found_.ranges[storage] = range;
    found_.writes.push_back(range);
    stays.push_back({range, need.life.first[0], need.life.end()});
    char* base = pool_.at(need.offset);
    bool input = info.kind == StorageInfo::kInput || info.kind == StorageInfo::kGradient;
    // Views count from the beginning of the input's storage, but only the part that they see is copied into the pool.
    if (input) base -= info.lowest - info.lowest % Pool::kAlignment;
    found_.storages[storage] = storage_at(base, info.extent);
    if (handed_out_[storage] && !input) found_.outputs.push_back({storage, range});
  }
}

// A forward leaves its saved memory. A backward that does not keep that memory may overwrite it.
void StoragePlacement::note_saved() {
  for (uint32_t storage : program_.saved()) {
    if (part_.is_forward()) {
      found_.saved.push_back(found_.ranges[storage]);
    } else if (!keeps_) {
      found_.writes.push_back(found_.ranges[storage]);
    }
  }
}

}  // namespace torchreel::graphs
