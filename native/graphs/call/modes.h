// What is switched on around a call and changes what its ops do: part of the key of a recording.
#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace torchreel::graphs {

struct Modes {
  c10::DispatchKeySet included, excluded;  // inference mode, autocast, modes of Python and functorch show here
  uint64_t flags = 0;
  int32_t threads = 0;
  c10::ScalarType autocast =
      c10::ScalarType::Undefined;  // whether it is on or not: Python may read it, or switch it on
  c10::ScalarType standard = c10::ScalarType::Undefined;  // the default dtype

  static Modes now();
  bool operator==(const Modes& other) const = default;
  // Whether something listens to or changes ops that a graph does not know of: then a call runs as it is.
  bool are_foreign() const;
  // Whether ops do now what they did in the modes of the recorded call, whoever listens, with gradients or not.
  bool compute_as(const Modes& recorded) const;
  // The same for a backward that is recorded: nobody listens.
  bool differentiate_as(const Modes& recorded) const { return compute_as(recorded) && !are_foreign(); }
  bool grad() const { return flags & 1; }
  bool inference() const { return flags & 2; }
};

}  // namespace torchreel::graphs
