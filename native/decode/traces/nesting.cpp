#include "decode/traces/nesting.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace torchreel {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct OpenCall {
  int64_t end;
  int64_t row;
};

// The open calls of one thread, in the order in which they began.
class OpenCalls {
 public:
  // Takes out what has ended by then.
  void close(int64_t time) {
    if (time < first_end_) return;
    while (!calls_.empty() && calls_.back().end <= time) calls_.pop_back();
    if (crossing_) close_crossing(time);
    first_end_ = crossing_ ? earliest() : calls_.empty() ? kNever : calls_.back().end;
  }

  void open(OpenCall call) {
    crossing_ = crossing_ || (!calls_.empty() && call.end > calls_.back().end);
    first_end_ = std::min(first_end_, call.end);
    calls_.push_back(call);
  }

  int64_t innermost() const { return calls_.empty() ? -1 : calls_.back().row; }
  int64_t count() const { return static_cast<int64_t>(calls_.size()); }

 private:
  void close_crossing(int64_t time) {
    std::erase_if(calls_, [time](const OpenCall& call) { return call.end <= time; });
    crossing_ = !std::is_sorted(calls_.begin(), calls_.end(),
                                [](const OpenCall& a, const OpenCall& b) { return a.end > b.end; });
  }

  int64_t earliest() const {
    int64_t found = kNever;
    for (const auto& call : calls_) found = std::min(found, call.end);
    return found;
  }

  std::vector<OpenCall> calls_;
  int64_t first_end_ = kNever;
  bool crossing_ = false;  // whether a call ends after one that began before it
};

}  // namespace

Nesting::Nesting(const Ints& thread, Ints start, Ints end, std::vector<uint8_t> moment)
    : start_(std::move(start)), end_(std::move(end)), moment_(std::move(moment)) {
  if (thread.size() != start_.size() || end_.size() != start_.size() || moment_.size() != start_.size()) {
    throw std::invalid_argument("the columns have different lengths");
  }
  if (std::any_of(thread.begin(), thread.end(), [](int64_t number) { return number < 0; })) {
    throw std::invalid_argument("a thread has a number below 0");
  }
  find_parents(thread);
}

void Nesting::find_parents(const Ints& thread) {
  parent_.resize(start_.size());
  depth_.resize(start_.size());
  auto most = std::max_element(thread.begin(), thread.end());
  std::vector<OpenCalls> threads(most == thread.end() ? 0 : static_cast<size_t>(*most) + 1);
  for (int64_t row = 0; row < rows(); row++) {
    auto& calls = threads[thread[row]];
    calls.close(start_[row]);
    parent_[row] = calls.innermost();
    depth_[row] = calls.count();
    if (!moment_[row]) calls.open({end_[row], row});
  }
}

// The innermost of the chosen calls among a row and its ancestors, whether open or ended.
Nesting::Ints Nesting::inherited(const uint8_t* chosen) const {
  Ints found(start_.size());
  for (int64_t row = 0; row < rows(); row++) {
    found[row] = chosen[row] ? row : parent_[row] < 0 ? -1 : found[parent_[row]];
  }
  return found;
}

// Calls that had ended when the row began give way to those around them.
int64_t Nesting::open_at(int64_t row, int64_t found, const Ints& inherited) const {
  while (found >= 0 && found != row && end_[found] <= start_[row]) {
    found = parent_[found] < 0 ? -1 : inherited[parent_[found]];
  }
  return found;
}

Nesting::Ints Nesting::nearest(const uint8_t* chosen) const {
  Ints among = inherited(chosen), found(start_.size());
  for (int64_t row = 0; row < rows(); row++) found[row] = open_at(row, among[row], among);
  return found;
}

Nesting::Ints Nesting::around(const uint8_t* chosen) const {
  Ints among = inherited(chosen), found(start_.size());
  for (int64_t row = 0; row < rows(); row++) {
    found[row] = parent_[row] < 0 ? -1 : open_at(row, among[parent_[row]], among);
  }
  return found;
}

Nesting::Ints Nesting::self_times() const {
  Ints times(start_.size());
  for (int64_t row = 0; row < rows(); row++) times[row] = std::max<int64_t>(end_[row] - start_[row], 0);
  for (int64_t row = 0; row < rows(); row++) {
    int64_t holder = parent_[row];
    if (holder < 0 || moment_[row]) continue;
    times[holder] -= std::max<int64_t>(std::min(end_[row], end_[holder]) - start_[row], 0);
    if (end_[row] > end_[holder]) take_overhang(row, times);
  }
  return times;
}

// What a call lasts beyond its parent is time of the calls around that.
void Nesting::take_overhang(int64_t row, Ints& times) const {
  int64_t holder = parent_[row], done = end_[holder];
  for (int64_t still = depth_[row] - 1; still > 0 && done < end_[row];) {
    holder = parent_[holder];
    if (end_[holder] <= start_[row]) continue;  // one that had ended already
    still--;
    int64_t until = std::min(end_[row], end_[holder]);
    if (until <= done) continue;
    times[holder] -= until - done;
    done = until;
  }
}

Nesting::Ints Nesting::sums(const int64_t* chosen, const int64_t* values, int64_t count) const {
  Ints result(start_.size(), 0);
  for (int64_t i = 0; i < count; i++) {
    int64_t row = chosen[i];
    if (row < 0 || row >= rows()) throw std::out_of_range("there is no such row");
    int64_t holder = parent_[row];
    for (int64_t still = depth_[row]; still > 0; holder = parent_[holder]) {
      if (end_[holder] <= start_[row]) continue;  // one that had ended already
      result[holder] += values[i];
      still--;
    }
  }
  return result;
}

}  // namespace torchreel
