#include "graphs/plan/schedule.h"

#include <algorithm>
#include <limits>

namespace torchreel::graphs {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A work on a lane.
struct Put {
  uint32_t work;
  int lane;
  double begin, end;
};

class Planner {
 public:
  // Which of several ready works begins: the first of the program, or the one on the critical path.
  Planner(const std::vector<Work>& works, const Toll& toll, bool by_tail)
      : works_(works),
        toll_(toll),
        by_tail_(by_tail),
        missing_(works.size(), 0),
        later_(works.size()),
        done_(works.size(), false) {
    for (uint32_t i = 0; i < works.size(); i++) {
      missing_[i] = works[i].after.size();
      for (uint32_t before : works[i].after) later_[before].push_back(i);
    }
    find_tails();
  }

  Schedule plan() {
    uint32_t begin = 0;
    for (uint32_t i = 0; i <= works_.size(); i++) {
      if (i < works_.size() && works_[i].kind != Work::kFixed) continue;
      plan_window(begin, i);
      begin = i + 1;
      if (i == works_.size()) break;
      finish(i);
      one_by_one({i}, false);
    }
    for (const auto& work : works_) found_.one_by_one += work.all;
    return std::move(found_);
  }

 private:
  // For each work, the time from its beginning to the end of the last work that depends on it.
  void find_tails() {
    tails_.resize(works_.size(), 0);
    for (size_t i = works_.size(); i-- > 0;) {
      for (uint32_t next : later_[i]) tails_[i] = std::max(tails_[i], tails_[next]);
      tails_[i] += cost(i);
    }
  }

  // Works from `begin` to `end`, none of which is fixed.
  void plan_window(uint32_t begin, uint32_t end) {
    size_t left = end - begin;
    while (left > 0) {
      auto puts = fill(begin, end);
      left -= puts.size();
      add(puts);
      std::vector<uint32_t> alone;
      for (uint32_t i = begin; i < end; i++) {
        if (done_[i] || works_[i].kind != Work::kAlone || missing_[i] > 0) continue;
        finish(i);
        alone.push_back(i);
      }
      left -= alone.size();
      if (!alone.empty()) one_by_one(alone, false);
    }
  }

  double cost(uint32_t work) const { return works_[work].kind == Work::kBeside ? works_[work].one : works_[work].all; }

  void finish(uint32_t work) {
    done_[work] = true;
    for (uint32_t next : later_[work]) missing_[next]--;
  }

  bool is_preferred(uint32_t one, uint32_t other) const {
    return by_tail_ && tails_[one] != tails_[other] ? tails_[one] > tails_[other] : one < other;
  }

  // Puts ready works that may run beside others on the lane on which they can begin first, until one must run alone.
  std::vector<Put> fill(uint32_t begin, uint32_t end) {
    std::vector<Put> puts;
    std::vector<const Put*> at(works_.size(), nullptr);
    puts.reserve(end - begin);
    double free[2] = {0, 0};
    std::vector<uint32_t> ready;
    auto is_ready = [&](uint32_t i) { return !done_[i] && works_[i].kind == Work::kBeside && missing_[i] == 0; };
    for (uint32_t i = begin; i < end; i++) {
      if (is_ready(i)) ready.push_back(i);
    }
    while (!ready.empty()) {
      Put best{0, 0, kNever, 0};
      size_t index = 0;
      for (size_t i = 0; i < ready.size(); i++) {
        for (int lane : {0, 1}) {
          double when = free[lane];
          for (uint32_t before : works_[ready[i]].after) {
            if (at[before] == nullptr) continue;
            when = std::max(when, at[before]->end + (at[before]->lane == lane ? 0 : toll_.hand_over));
          }
          if (when > best.begin || (when == best.begin && !is_preferred(ready[i], best.work))) continue;
          best = {ready[i], lane, when, when + cost(ready[i])};
          index = i;
        }
      }
      ready.erase(ready.begin() + static_cast<int64_t>(index));
      puts.push_back(best);
      at[best.work] = &puts.back();
      free[best.lane] = best.end;
      finish(best.work);
      for (uint32_t next : later_[best.work]) {
        if (next < end && is_ready(next)) ready.push_back(next);
      }
    }
    return puts;
  }

  void add(std::vector<Put>& puts) {
    if (puts.empty()) return;
    // Works at the beginning and at the end, beside which the other lane has nothing to do, need no lane.
    double first[2] = {kNever, kNever}, last[2] = {-1, -1};
    for (const auto& put : puts) {
      first[put.lane] = std::min(first[put.lane], put.begin);
      last[put.lane] = std::max(last[put.lane], put.end);
    }
    double from = std::max(first[0], first[1]), until = std::min(last[0], last[1]);
    std::vector<uint32_t> before, behind;
    std::vector<Put> both;
    for (const auto& put : puts) {
      if (put.end <= from) {
        before.push_back(put.work);
      } else if (put.begin >= until) {
        behind.push_back(put.work);
      } else {
        both.push_back(put);
      }
    }
    double work = 0, begin = kNever, end = 0;
    for (const auto& put : both) {
      work += put.end - put.begin;
      begin = std::min(begin, put.begin);
      end = std::max(end, put.end);
    }
    if (both.empty() || work - (end - begin) < 2 * toll_.begin) {
      std::vector<uint32_t> all;
      for (const auto& put : puts) all.push_back(put.work);
      std::sort(all.begin(), all.end());
      one_by_one(all, true);
      return;
    }
    one_by_one(before, true);
    in_lanes(both, end - begin);
    one_by_one(behind, true);
  }

  void one_by_one(const std::vector<uint32_t>& works, bool one_thread) {
    if (works.empty()) return;
    for (uint32_t work : works) found_.planned += cost(work);
    auto& all = found_.stretches;
    if (all.empty() || all.back().is_parallel() || all.back().one_thread != one_thread) {
      all.emplace_back().one_thread = one_thread;
      if (one_thread) found_.planned += toll_.one_thread;
    }
    all.back().order.insert(all.back().order.end(), works.begin(), works.end());
  }

  void in_lanes(const std::vector<Put>& puts, double nanoseconds) {
    found_.planned += nanoseconds + toll_.begin;
    Stretch stretch;
    stretch.one_thread = true;
    std::vector<std::pair<int, uint32_t>> where(works_.size(), {-1, 0});  // lane, and how many of it are done with it
    for (const auto& put : puts) {
      uint32_t wait = 0;
      for (uint32_t before : works_[put.work].after) {
        if (where[before].first == 1 - put.lane) wait = std::max(wait, where[before].second);
      }
      stretch.lanes[put.lane].push_back({put.work, wait});
      where[put.work] = {put.lane, static_cast<uint32_t>(stretch.lanes[put.lane].size())};
      stretch.order.push_back(put.work);
    }
    found_.stretches.push_back(std::move(stretch));
  }

  const std::vector<Work>& works_;
  const Toll& toll_;
  bool by_tail_;
  std::vector<size_t> missing_;               // by work: how many of its dependences are not done
  std::vector<std::vector<uint32_t>> later_;  // by work: works that depend on it
  std::vector<double> tails_;
  std::vector<bool> done_;
  Schedule found_;
};

}  // namespace

// The order of the program needs the least memory, so another order has to be worth it.
Schedule schedule(const std::vector<Work>& works, const Toll& toll) {
  auto in_order = Planner(works, toll, false).plan(), by_tail = Planner(works, toll, true).plan();
  return by_tail.planned < 0.93 * in_order.planned ? by_tail : in_order;
}

}  // namespace torchreel::graphs
