// Numbers that left for Python, compared with those of the recording; and numbers as tensors.
#pragma once

#include <ATen/ScalarOps.h>
#include <ATen/core/ivalue.h>

#include <cmath>
#include <cstring>
#include <sstream>
#include <string>

namespace torchreel::tape {

inline std::string text_of(const c10::IValue& value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}

// By bits, but one NaN is as good as another.
inline bool same_number(const c10::IValue& a, const c10::IValue& b) {
  auto bits = [](double value) {
    uint64_t word;
    memcpy(&word, &value, 8);
    return word;
  };
  if (a.isDouble() && b.isDouble()) {
    if (std::isnan(a.toDouble()) && std::isnan(b.toDouble())) return true;
    return bits(a.toDouble()) == bits(b.toDouble());
  }
  if (a.isComplexDouble() && b.isComplexDouble()) {
    auto left = a.toComplexDouble();
    auto right = b.toComplexDouble();
    return same_number(left.real(), right.real()) && same_number(left.imag(), right.imag());
  }
  if (a.isInt() && b.isInt()) return a.toInt() == b.toInt();
  if (a.isBool() && b.isBool()) return a.toBool() == b.toBool();
  return text_of(a) == text_of(b);
}

// A tensor that torch makes of a Python number.
inline at::Tensor number_tensor(double value) {
  auto tensor = at::scalar_tensor(value, at::TensorOptions(at::kDouble));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

// The same of a number of any type.
inline at::Tensor wrapped_number(const c10::Scalar& value) {
  auto tensor = c10::scalar_to_tensor(value);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

}  // namespace torchreel::tape
