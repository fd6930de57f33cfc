// Ticks: the cheapest steady clock there is, and what is needed to turn them into nanoseconds.
#pragma once

#include <cstdint>
#include <ctime>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace torchreel {

inline uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
#endif
}

inline uint64_t clock_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return uint64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// One moment on two clocks. Of several tries the one with the least delay between the readings is kept.
struct Moment {
  uint64_t tick;
  uint64_t ns;
};

inline Moment moment(clockid_t clock) {
  Moment best{};
  uint64_t least = ~uint64_t{0};
  for (int i = 0; i < 5; i++) {
    uint64_t before = ticks();
    uint64_t ns = clock_ns(clock);
    uint64_t after = ticks();
    if (after - before < least) {
      least = after - before;
      best = {before + (after - before) / 2, ns};
    }
  }
  return best;
}

}  // namespace torchreel
