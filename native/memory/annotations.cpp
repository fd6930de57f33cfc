#include "memory/annotations.h"

#include <ATen/record_function.h>

#include "memory/history.h"

namespace torchreel {

namespace {

at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
  History::get().annotate(call.name(), true);
  return nullptr;
}

void end(const at::RecordFunction& call, at::ObserverContext*) { History::get().annotate(call.name(), false); }

}  // namespace

void keep_annotations(bool on) {
  if (on == (handle != at::INVALID_CALLBACK_HANDLE)) return;
  if (on) {
    handle = at::addGlobalCallback(at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::USER_SCOPE}));
  } else {
    at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
  }
}

}  // namespace torchreel
