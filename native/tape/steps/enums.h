// torch's enumerations by the names that they have in Python: torch.float32, torch.strided, torch.channels_last.
#pragma once

#include <ATen/core/jit_type.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace torchreel::tape {

inline constexpr std::array<std::pair<c10::Layout, std::string_view>, 8> kLayouts = {{
    {c10::Layout::Strided, "strided"},
    {c10::Layout::Sparse, "sparse_coo"},
    {c10::Layout::SparseCsr, "sparse_csr"},
    {c10::Layout::SparseCsc, "sparse_csc"},
    {c10::Layout::SparseBsr, "sparse_bsr"},
    {c10::Layout::SparseBsc, "sparse_bsc"},
    {c10::Layout::Mkldnn, "_mkldnn"},
    {c10::Layout::Jagged, "jagged"},
}};

inline constexpr std::array<std::pair<c10::MemoryFormat, std::string_view>, 4> kMemoryFormats = {{
    {c10::MemoryFormat::Contiguous, "contiguous_format"},
    {c10::MemoryFormat::Preserve, "preserve_format"},
    {c10::MemoryFormat::ChannelsLast, "channels_last"},
    {c10::MemoryFormat::ChannelsLast3d, "channels_last_3d"},
}};

template <class Table, class T>
std::string name_in(const Table& table, T value) {
  for (const auto& [known, name] : table) {
    if (known == value) return std::string(name);
  }
  throw std::runtime_error("a value of torch's that the tape has no name for");
}

template <class Table>
int64_t code_in(const Table& table, std::string_view wanted) {
  for (const auto& [known, name] : table) {
    if (name == wanted) return static_cast<int64_t>(known);
  }
  throw std::runtime_error("torch has no " + std::string(wanted));
}

inline std::string dtype_name(c10::ScalarType type) { return std::string(c10::getDtypeNames(type).first); }

inline int64_t dtype_code(std::string_view wanted) {
  for (int code = 0; code < static_cast<int>(c10::ScalarType::NumOptions); code++) {
    auto type = static_cast<c10::ScalarType>(code);
    if (type != c10::ScalarType::Undefined && c10::getDtypeNames(type).first == wanted) return code;
  }
  throw std::runtime_error("torch has no dtype " + std::string(wanted));
}

// What a number means where the schema says that it is one of an enumeration.
enum class Meaning { kNumber, kDtype, kLayout, kMemoryFormat };

inline Meaning meaning_of(const c10::Argument& argument) {
  auto type = argument.real_type();
  if (type->kind() == c10::TypeKind::OptionalType) type = type->expectRef<c10::OptionalType>().getElementType();
  switch (type->kind()) {
    case c10::TypeKind::ScalarTypeType: return Meaning::kDtype;
    case c10::TypeKind::LayoutType: return Meaning::kLayout;
    case c10::TypeKind::MemoryFormatType: return Meaning::kMemoryFormat;
    default: return Meaning::kNumber;
  }
}

}  // namespace torchreel::tape
