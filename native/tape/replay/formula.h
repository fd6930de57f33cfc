// A number that Python computed from others, computed again.
#pragma once

#include <cmath>
#include <vector>

namespace torchreel::tape {

// In postfix order.
struct Formula {
  enum Kind { kNumber, kItem, kSub, kMul, kDiv, kPow, kNeg, kSqrt };
  struct Step {
    Kind kind;
    double number;  // or the op whose result it is
  };
  std::vector<Step> steps;
};

// `numbers` are results by op of the program. A formula that was read by steps.h is at most 15 deep.
inline double evaluate(const Formula& formula, const std::vector<double>& numbers) {
  double stack[16];
  int depth = 0;
  for (const auto& step : formula.steps) {
    switch (step.kind) {
      case Formula::kNumber: stack[depth++] = step.number; break;
      case Formula::kItem: stack[depth++] = numbers[static_cast<size_t>(step.number)]; break;
      case Formula::kNeg: stack[depth - 1] = -stack[depth - 1]; break;
      case Formula::kSqrt: stack[depth - 1] = std::sqrt(stack[depth - 1]); break;
      case Formula::kSub:
        depth--;
        stack[depth - 1] -= stack[depth];
        break;
      case Formula::kMul:
        depth--;
        stack[depth - 1] *= stack[depth];
        break;
      case Formula::kDiv:
        depth--;
        stack[depth - 1] /= stack[depth];
        break;
      case Formula::kPow:
        depth--;
        stack[depth - 1] = std::pow(stack[depth - 1], stack[depth]);
        break;
    }
  }
  return stack[0];
}

}  // namespace torchreel::tape
