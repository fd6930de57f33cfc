#include "record/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace torchreel {

using namespace layout;

Spool::Spool(std::string directory) : directory_(std::move(directory)) {
  uint64_t head[2] = {kDefinitionsMagic, kVersion};
  memory_.assign(reinterpret_cast<const char*>(head), sizeof head);
}

Spool::~Spool() {
  if (events_ >= 0) close(events_);
  if (definitions_ >= 0) close(definitions_);
}

bool Spool::write_all(int file, const void* data, size_t bytes, uint64_t* offset) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t written = pwrite(file, at, bytes, static_cast<off_t>(*offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      error_ = errno;
      return false;
    }
    at += written;
    *offset += written;
    bytes -= written;
  }
  return true;
}

// The files are made when there is something to write, so that a process that records nothing leaves nothing.
bool Spool::open() {
  if (opened_) return error_ == 0;
  opened_ = true;
  if (directory_.empty()) return true;
  for (size_t at = 1; at != std::string::npos;) {
    at = directory_.find('/', at + 1);
    mkdir(directory_.substr(0, at).c_str(), 0777);
  }
  auto make = [&](const char* name) {
    int file = ::open((directory_ + "/" + name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) error_ = errno;
    return file;
  };
  definitions_ = make("definitions");
  events_ = make("events");
  if (error_ != 0) return false;
  if (!write_all(definitions_, memory_.data(), memory_.size(), &definitions_end_)) remove();
  memory_.clear();
  memory_.shrink_to_fit();
  return error_ == 0;
}

// Files without their head are of no use to a reader; nor is the process's directory, if nothing else is in it.
void Spool::remove() {
  for (int* file : {&events_, &definitions_}) close(std::exchange(*file, -1));
  for (const char* name : {"/events", "/definitions", "", "/.."}) {
    std::string path = directory_ + name;
    if (unlink(path.c_str()) != 0) rmdir(path.c_str());
  }
}

void Spool::define(Definition type, std::string_view payload) {
  std::string record;
  size_t padded = (payload.size() + 7) / 8 * 8;
  uint32_t head[2] = {type, static_cast<uint32_t>(payload.size())};
  record.reserve(sizeof head + padded);
  record.append(reinterpret_cast<const char*>(head), sizeof head).append(payload);
  record.resize(sizeof head + padded, '\0');
  std::lock_guard lock(mutex_);
  if (error_ != 0) return;
  if (definitions_ < 0) {
    memory_.append(record);
  } else {
    write_all(definitions_, record.data(), record.size(), &definitions_end_);
  }
}

bool Spool::append(const BlockHeader& header, const uint64_t* words) {
  std::lock_guard lock(mutex_);
  if (!open() || error_ != 0) return false;
  uint64_t end = events_end_;
  if (!write_all(events_, &header, sizeof header, &end)) return false;
  if (!write_all(events_, words, size_t{header.words} * 8, &end)) return false;
  events_end_ = end;
  return true;
}

void Spool::write_header(const EventsHeader& header) {
  std::lock_guard lock(mutex_);
  if (events_ < 0) return;
  uint64_t offset = 0;
  write_all(events_, &header, sizeof header, &offset);
}

void Spool::copy_definitions(Spool& target) {
  std::lock_guard lock(mutex_);
  target.memory_ = memory_;
}

}  // namespace torchreel
