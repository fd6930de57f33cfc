// Numbers of Python as torch's.
#pragma once

#include <c10/core/Scalar.h>
#include <pybind11/pybind11.h>

namespace torchreel::tape {

// Throws if it is no number.
inline c10::Scalar scalar_of(const pybind11::handle& number) {
  if (pybind11::isinstance<pybind11::bool_>(number)) return number.cast<bool>();
  if (pybind11::isinstance<pybind11::int_>(number)) return number.cast<int64_t>();
  if (!PyComplex_Check(number.ptr())) return number.cast<double>();
  return c10::complex<double>(PyComplex_RealAsDouble(number.ptr()), PyComplex_ImagAsDouble(number.ptr()));
}

}  // namespace torchreel::tape
