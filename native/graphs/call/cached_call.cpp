#include "graphs/call/cached_call.h"

#include <structmember.h>
#include <torch/csrc/Exceptions.h>

#include "graphs/call/call_cache.h"

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

struct CachedCall {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weak;
  PyObject* miss;
  std::shared_ptr<CallCache>* cache;
};

PyObject* call_cached(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  auto* cached = reinterpret_cast<CachedCall*>(self);
  size_t positional = PyVectorcall_NARGS(count);
  if (cached->cache == nullptr || cached->miss == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "This graphed function was not made by torchreel.graphed().");
    return nullptr;
  }
  HANDLE_TH_ERRORS
  PyObject* made = (*cached->cache)->call(args, positional, names);
  if (made != nullptr || PyErr_Occurred()) return made;
  return PyObject_Vectorcall(cached->miss, args, positional, names);
  END_HANDLE_TH_ERRORS
}

PyObject* new_cached_call(PyTypeObject* type, PyObject*, PyObject*) {
  // Before 3.12, a class written in Python does not inherit this flag.
  if (type->tp_call == PyVectorcall_Call) type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  auto* cached = reinterpret_cast<CachedCall*>(type->tp_alloc(type, 0));
  if (cached != nullptr) cached->vectorcall = call_cached;
  return reinterpret_cast<PyObject*>(cached);
}

int init_cached_call(PyObject* self, PyObject* args, PyObject*) {
  PyObject *cache, *miss;
  if (!PyArg_ParseTuple(args, "OO", &cache, &miss)) return -1;
  auto* cached = reinterpret_cast<CachedCall*>(self);
  try {
    cached->cache = new std::shared_ptr<CallCache>(py::cast<std::shared_ptr<CallCache>>(py::handle(cache)));
  } catch (const py::cast_error& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
    return -1;
  }
  Py_INCREF(miss);
  cached->miss = miss;
  return 0;
}

int traverse_cached_call(PyObject* self, visitproc visit, void* arg) {
  auto* cached = reinterpret_cast<CachedCall*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(cached->miss);
  Py_VISIT(cached->dict);
  return 0;
}

int clear_cached_call(PyObject* self) {
  auto* cached = reinterpret_cast<CachedCall*>(self);
  Py_CLEAR(cached->miss);
  Py_CLEAR(cached->dict);
  delete cached->cache;
  cached->cache = nullptr;
  return 0;
}

void free_cached_call(PyObject* self) {
  auto* cached = reinterpret_cast<CachedCall*>(self);
  PyObject_GC_UnTrack(self);
  if (cached->weak != nullptr) PyObject_ClearWeakRefs(self);
  clear_cached_call(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef kMembers[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(CachedCall, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CachedCall, weak), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CachedCall, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef kAttributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot kSlots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_cached_call)},
    {Py_tp_init, reinterpret_cast<void*>(init_cached_call)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_cached_call)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_cached_call)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_cached_call)},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kAttributes},
    {0, nullptr},
};

PyType_Spec kSpec = {"torchreel._graphs.CachedCall", sizeof(CachedCall), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                     kSlots};

}  // namespace

void bind_cached_call(py::module_& module) {
  py::object type = py::reinterpret_steal<py::object>(PyType_FromSpec(&kSpec));
  if (!type) throw py::error_already_set();
  module.add_object("CachedCall", type);
}

}  // namespace torchreel::graphs
