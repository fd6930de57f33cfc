// Columns in memory, handed to Arrow without a copy by its C data interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// The structures of the Arrow C data interface, whose layout is its specification.
extern "C" {
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};
}

namespace torchreel {

// One column: a fixed-width type, booleans, text, lists of int32, or indices into a dictionary of text.
class Column {
 public:
  enum class Type { kInt32, kInt64, kBool, kText, kInt32List, kDictionary };

  Column(std::string name, Type type) : name_(std::move(name)), type_(type) {
    if (type == Type::kText || type == Type::kInt32List) offsets_.push_back(0);
  }

  void reserve(size_t rows);
  void add(int64_t value) {
    if (nulls_ > 0) mark_valid();
    if (type_ == Type::kInt64) {
      wide_.push_back(value);
    } else {
      narrow_.push_back(static_cast<int32_t>(value));
    }
    rows_++;
  }
  // `value` unless it is `none`, which becomes null.
  void add(int64_t value, int64_t none) {
    if (value == none) {
      add_null();
    } else {
      add(value);
    }
  }
  void add_null();  // of a number or a dictionary's index
  void add_bool(bool value);
  void add_text(std::string_view value);
  void add_list(const std::vector<int32_t>& values);
  void set_dictionary(std::vector<std::string> values);

  void to_schema(ArrowSchema* schema) const;
  // Moves the content out.
  void to_array(ArrowArray* array);
  size_t rows() const { return rows_; }
  bool only_nulls() const { return nulls_ > 0 && nulls_ == rows_; }

 private:
  void mark_valid() {
    if (nulls_ == rows_) store_nulls();
    if (rows_ % 8 == 0) validity_.push_back(0);
    validity_.back() |= static_cast<uint8_t>(1 << (rows_ % 8));
  }
  void store_nulls();

  std::string name_;
  Type type_;
  size_t rows_ = 0;
  std::vector<int64_t> wide_;
  std::vector<int32_t> narrow_;
  std::vector<uint8_t> bits_;
  std::vector<int32_t> offsets_;
  std::string text_;
  size_t nulls_ = 0;
  // A bit per row, from the first null on. As long as there are only nulls, nothing is stored: many columns stay so.
  std::vector<uint8_t> validity_;
  std::unique_ptr<Column> dictionary_;
};

// A record batch.
class Batch {
 public:
  // Columns that are null in every row are left out: whoever reads the batch knows which there are.
  void drop_nulls() {
    std::erase_if(columns_, [](const auto& column) { return column->only_nulls(); });
  }
  Column& add(std::string name, Column::Type type) {
    return *columns_.emplace_back(std::make_unique<Column>(name, type));
  }
  void to_schema(ArrowSchema* schema) const;
  void to_array(ArrowArray* array);
  size_t rows() const { return columns_.empty() ? 0 : columns_[0]->rows(); }

 private:
  std::vector<std::unique_ptr<Column>> columns_;
};

}  // namespace torchreel
