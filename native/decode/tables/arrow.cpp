#include "decode/tables/arrow.h"

#include <cstring>

namespace torchreel {

namespace {

constexpr int64_t kNullable = 2;

struct SchemaContent {
  std::string name;
  std::vector<std::unique_ptr<ArrowSchema>> children;
  std::vector<ArrowSchema*> pointers;
  std::unique_ptr<ArrowSchema> dictionary;
};

struct ArrayContent {
  std::vector<int64_t> wide;
  std::vector<int32_t> narrow;
  std::vector<uint8_t> bits;
  std::vector<int32_t> offsets;
  std::string text;
  std::vector<uint8_t> validity;
  std::vector<const void*> buffers;
  std::vector<std::unique_ptr<ArrowArray>> children;
  std::vector<ArrowArray*> pointers;
  std::unique_ptr<ArrowArray> dictionary;
};

template <typename Item>
void release_parts(Item* item) {
  for (int64_t i = 0; i < item->n_children; i++) {
    if (item->children[i]->release != nullptr) item->children[i]->release(item->children[i]);
  }
  if (item->dictionary != nullptr && item->dictionary->release != nullptr) item->dictionary->release(item->dictionary);
}

void release_schema(ArrowSchema* schema) {
  release_parts(schema);
  delete static_cast<SchemaContent*>(schema->private_data);
  schema->release = nullptr;
}

void release_array(ArrowArray* array) {
  release_parts(array);
  delete static_cast<ArrayContent*>(array->private_data);
  array->release = nullptr;
}

void fill_schema(ArrowSchema* schema, const char* format, std::unique_ptr<SchemaContent> content, int64_t flags) {
  memset(schema, 0, sizeof *schema);
  for (auto& child : content->children) content->pointers.push_back(child.get());
  schema->format = format;
  schema->name = content->name.c_str();
  schema->flags = flags;
  schema->n_children = static_cast<int64_t>(content->children.size());
  schema->children = content->pointers.data();
  schema->dictionary = content->dictionary.get();
  schema->release = &release_schema;
  schema->private_data = content.release();
}

void fill_array(ArrowArray* array, int64_t length, int64_t nulls, std::unique_ptr<ArrayContent> content) {
  memset(array, 0, sizeof *array);
  for (auto& child : content->children) content->pointers.push_back(child.get());
  array->length = length;
  array->null_count = nulls;
  array->n_buffers = static_cast<int64_t>(content->buffers.size());
  array->buffers = content->buffers.data();
  array->n_children = static_cast<int64_t>(content->children.size());
  array->children = content->pointers.data();
  array->dictionary = content->dictionary.get();
  array->release = &release_array;
  array->private_data = content.release();
}

}  // namespace

void Column::reserve(size_t rows) {
  if (type_ == Type::kInt64) {
    wide_.reserve(rows);
  } else if (type_ == Type::kBool) {
    bits_.reserve(rows / 8 + 1);
  } else if (type_ != Type::kText) {
    narrow_.reserve(rows);
  }
}

void Column::store_nulls() {
  validity_.assign((rows_ + 7) / 8, 0);
  if (type_ == Type::kInt64) {
    wide_.assign(rows_, 0);
  } else {
    narrow_.assign(rows_, 0);
  }
}

void Column::add_null() {
  if (nulls_ == rows_) {
    nulls_++;
    rows_++;
    return;
  }
  if (nulls_++ == 0) {
    // All before it were valid.
    validity_.assign((rows_ + 7) / 8, 0xff);
    if (rows_ % 8 != 0) validity_.back() = static_cast<uint8_t>((1 << (rows_ % 8)) - 1);
  }
  if (rows_ % 8 == 0) validity_.push_back(0);
  if (type_ == Type::kInt64) {
    wide_.push_back(0);
  } else {
    narrow_.push_back(0);
  }
  rows_++;
}

void Column::add_bool(bool value) {
  if (rows_ % 8 == 0) bits_.push_back(0);
  if (value) bits_.back() |= static_cast<uint8_t>(1 << (rows_ % 8));
  rows_++;
}

void Column::add_text(std::string_view value) {
  text_.append(value);
  offsets_.push_back(static_cast<int32_t>(text_.size()));
  rows_++;
}

void Column::add_list(const std::vector<int32_t>& values) {
  narrow_.insert(narrow_.end(), values.begin(), values.end());
  offsets_.push_back(static_cast<int32_t>(narrow_.size()));
  rows_++;
}

void Column::set_dictionary(std::vector<std::string> values) {
  dictionary_ = std::make_unique<Column>("", Type::kText);
  for (const auto& value : values) dictionary_->add_text(value);
}

void Column::to_schema(ArrowSchema* schema) const {
  auto content = std::make_unique<SchemaContent>();
  content->name = name_;
  const char* format = "i";
  switch (type_) {
    case Type::kInt32: format = "i"; break;
    case Type::kInt64: format = "l"; break;
    case Type::kBool: format = "b"; break;
    case Type::kText: format = "u"; break;
    case Type::kInt32List: {
      format = "+l";
      Column item("element", Type::kInt32);
      content->children.push_back(std::make_unique<ArrowSchema>());
      item.to_schema(content->children.back().get());
      break;
    }
    case Type::kDictionary:
      content->dictionary = std::make_unique<ArrowSchema>();
      dictionary_->to_schema(content->dictionary.get());
      break;
  }
  fill_schema(schema, format, std::move(content), kNullable);
}

void Column::to_array(ArrowArray* array) {
  auto content = std::make_unique<ArrayContent>();
  const void* validity = nullptr;
  if (nulls_ > 0) {
    content->validity = std::move(validity_);
    validity = content->validity.data();
  }
  content->wide = std::move(wide_);
  content->narrow = std::move(narrow_);
  content->bits = std::move(bits_);
  content->offsets = std::move(offsets_);
  content->text = std::move(text_);
  content->buffers.push_back(validity);
  switch (type_) {
    case Type::kInt64: content->buffers.push_back(content->wide.data()); break;
    case Type::kBool: content->buffers.push_back(content->bits.data()); break;
    case Type::kText:
      content->buffers.push_back(content->offsets.data());
      content->buffers.push_back(content->text.data());
      break;
    case Type::kInt32List: {
      content->buffers.push_back(content->offsets.data());
      Column item("element", Type::kInt32);
      item.rows_ = content->narrow.size();
      item.narrow_ = std::move(content->narrow);
      content->children.push_back(std::make_unique<ArrowArray>());
      item.to_array(content->children.back().get());
      break;
    }
    default: content->buffers.push_back(content->narrow.data());
  }
  if (type_ == Type::kDictionary) {
    content->dictionary = std::make_unique<ArrowArray>();
    dictionary_->to_array(content->dictionary.get());
  }
  fill_array(array, static_cast<int64_t>(rows_), static_cast<int64_t>(nulls_), std::move(content));
}

void Batch::to_schema(ArrowSchema* schema) const {
  auto content = std::make_unique<SchemaContent>();
  for (const auto& column : columns_) {
    content->children.push_back(std::make_unique<ArrowSchema>());
    column->to_schema(content->children.back().get());
  }
  fill_schema(schema, "+s", std::move(content), 0);
}

void Batch::to_array(ArrowArray* array) {
  auto content = std::make_unique<ArrayContent>();
  content->buffers.push_back(nullptr);
  auto rows = static_cast<int64_t>(this->rows());
  for (auto& column : columns_) {
    content->children.push_back(std::make_unique<ArrowArray>());
    column->to_array(content->children.back().get());
  }
  fill_array(array, rows, 0, std::move(content));
}

}  // namespace torchreel
