#include "graphs/plan/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace torchreel::graphs {

namespace {

size_t rounded(size_t bytes) { return std::max<size_t>((bytes + Pool::kAlignment - 1) & ~(Pool::kAlignment - 1), 64); }

struct Placed {
  Range range;
  Life life;
};

}  // namespace

size_t plan_memory(std::vector<Need>& needs, const std::vector<Obstacle>& obstacles, int64_t steps) {
  std::vector<size_t> order(needs.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    bool left = needs[a].life.end() >= steps, right = needs[b].life.end() >= steps;
    if (left != right) return left;
    if (needs[a].bytes != needs[b].bytes) return needs[a].bytes > needs[b].bytes;
    int64_t one = needs[a].life.first[0], other = needs[b].life.first[0];
    return one != other ? one < other : a < b;
  });
  std::vector<Placed> placed;  // sorted by address
  for (const auto& obstacle : obstacles) placed.push_back({obstacle.range, Life::of(INT64_MIN, obstacle.last)});
  auto before = [](const Placed& a, const Placed& b) { return a.range.begin < b.range.begin; };
  std::sort(placed.begin(), placed.end(), before);
  size_t end = 0;
  for (size_t index : order) {
    auto& need = needs[index];
    size_t bytes = rounded(need.bytes), offset = 0;
    for (const auto& other : placed) {
      if (other.life.is_before(need.life) || need.life.is_before(other.life)) continue;
      if (offset + bytes <= other.range.begin) break;
      offset = std::max(offset, rounded(other.range.end));
    }
    need.offset = offset;
    end = std::max(end, offset + bytes);
    Placed one{{offset, offset + bytes}, need.life};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), one, before), one);
  }
  return end;
}

Range largest_idle(const std::vector<Range>& ranges, const Stays& stays, int64_t step) {
  Range largest;
  size_t begin = 0;
  auto next = stays.begin();
  for (const auto& range : ranges) {
    begin = std::max(begin, range.begin);
    auto add = [&](size_t end) {
      if (end > begin && end - begin > largest.end - largest.begin) largest = {begin, end};
    };
    for (; next != stays.end() && next->range.begin < range.end; next++) {
      if (next->first > step || next->last < step) continue;
      add(next->range.begin);
      begin = std::max(begin, rounded(next->range.end));
    }
    add(range.end);
  }
  return largest;
}

}  // namespace torchreel::graphs
