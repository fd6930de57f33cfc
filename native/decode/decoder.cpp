#include "decode/decoder.h"

#include <algorithm>
#include <utility>

#include "decode/memory/final_state.h"
#include "decode/tables/tables.h"

namespace torchreel {

Decoder::Decoder(SpoolFiles files)
    : definitions_file_(std::move(files.definitions)),
      definitions_(read_definitions(definitions_file_.get(), files.definitions_size)),
      blocks_(std::move(files.events), files.events_size, files.head),
      clock_(blocks_.header()),
      steps_(definitions_.steps),
      rows_(kBatchRows * 5 / 4),
      forward_calls_(definitions_, rows_),
      open_calls_(definitions_, windows_, steps_, rows_, forward_calls_, counters_),
      late_ends_(open_calls_, rows_),
      memory_(definitions_, blocks_.header().start_tick, windows_, rows_),
      reader_(definitions_, windows_, open_calls_, late_ends_, memory_, moments_),
      ops_(definitions_, clock_, blocks_.header().node) {}

void Decoder::restrict_to(std::vector<Window> windows, std::vector<Steps::Step> steps) {
  windows_.set(std::move(windows));
  steps_.replace(std::move(steps));
  memory_.restrict_to_windows();
}

uint64_t Decoder::end_tick() const { return std::max(header().last_tick, reader_.last_tick()); }

bool Decoder::next(Batches& batches) {
  if (finished_) return false;
  SpoolBlock block;
  while (blocks_.next(block)) {
    if (!block.is_promise()) {
      reader_.read(block);
      continue;
    }
    if (block.header.base_tick <= promised_) continue;
    promised_ = block.header.base_tick;
    settle();
    if (rows_.size() >= kBatchRows) {
      emit(batches);
      return true;
    }
  }
  finished_ = true;
  promised_ = ~uint64_t{0};
  settle();
  memory_.finish();
  reader_.finish(end_tick());
  emit(batches);
  return true;
}

void Decoder::next_settled(Batches& batches) {
  SpoolBlock block;
  while (blocks_.next_whole(block)) {
    if (!block.is_promise()) {
      reader_.read(block);
    } else if (block.header.base_tick > promised_) {
      promised_ = block.header.base_tick;
      settle();
      if (rows_.size() >= kBatchRows) emit(batches);
    }
  }
  emit(batches);
}

bool Decoder::grow(uint64_t definitions_size, uint64_t events_size) {
  // Without a head there are no times; ids that were given to inline definitions may be given again.
  if (header().magic == 0 || reader_.has_inline_definitions()) return false;
  read_more_definitions(definitions_, definitions_file_.get(), definitions_size);
  blocks_.grow(events_size);
  Steps steps(definitions_.steps);
  // Steps that are counted by hand from now on make those of the optimizer that were there no steps.
  const auto &before = steps_.all(), &now = steps.all();
  if (now.size() < before.size() || !std::equal(before.begin(), before.end(), now.begin())) return false;
  steps_.replace(now);
  return true;
}

// What concerns two threads, as far as both have been read.
void Decoder::settle() {
  late_ends_.settle(promised_);
  memory_.settle(promised_);
  forward_calls_.settle();
}

// Calls that ended before the promise are complete; the others stay for the next batch.
void Decoder::emit(Batches& batches) {
  Finished finished = rows_.finished(promised_);
  rows_.charge_parents(finished);
  batches.emplace_back("ops", ops_.batch(rows_, finished));
  if (!memory_.events().empty()) batches.emplace_back("allocs", allocs_batch(memory_, clock_));
  if (!moments_.marks.empty()) batches.emplace_back("marks", marks_batch(moments_.marks, definitions_, clock_));
  if (!moments_.flows.empty()) batches.emplace_back("flows", flows_batch(moments_.flows, definitions_, clock_));
  const auto& counted = counters_.differences();
  if (!counted.empty()) batches.emplace_back("counters", counters_batch(counted, definitions_));
  memory_.clear_events();
  moments_.clear();
  counters_.clear_differences();
  std::vector<int32_t> moved = rows_.drop(finished);
  counters_.keep_only(rows_);
  open_calls_.renumber(moved);
  memory_.renumber(moved);
}

std::unique_ptr<Batch> Decoder::inputs() const { return inputs_batch(definitions_); }

void Decoder::finish(Batches& batches) {
  batches.emplace_back("inputs", inputs());
  batches.emplace_back("stacks", stacks_batch(definitions_));
  batches.emplace_back("frames", frames_batch(definitions_));
  batches.emplace_back("modules", modules_batch(definitions_));
  batches.emplace_back("threads", threads_batch(definitions_));
  batches.emplace_back("steps", steps_batch(steps_, clock_, end_ns()));
  add_final_state(memory_, batches);
}

}  // namespace torchreel
