/* For backends in C or C++ that run a part of a deployed model: they report what they did to torchreel's edge profiler.
 *
 *   #include <torchreel/edge.h>
 *   RECORD_BACKEND_EVENT_TO_EDGE_PROFILER(start_us, end_us, debug_handle, "conv2d", "npu");
 *
 * Neither Python nor its lock is needed, and nothing has to be linked: the library may be loaded without torchreel, and
 * does nothing then. Compile with -I of torchreel.edge.include_path(); link with -ldl where dlsym is not in libc.
 *
 * An event goes to the profiler whose model runs on the calling thread, else to the one that was begun on it, else, as
 * from a thread that the backend made itself, to the only one of the process. Times are microseconds since the epoch
 * (CLOCK_REALTIME), or of any clock if the profiler was made with adjust_timestamps=True.
 */
#ifndef TORCHREEL_EDGE_H
#define TORCHREEL_EDGE_H

#include <dlfcn.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What became of a report. An event that cannot be right, as one that ends before it starts, is taken, and the profiler
 * says at its end that it was left out. */
enum {
  TORCHREEL_TAKEN = 0,
  TORCHREEL_NO_PROFILER = 1,   /* none is running, or torchreel is not loaded */
  TORCHREEL_WHICH_PROFILER = 2 /* several are running, and none has to do with this thread: the report was left out */
};

typedef int (*torchreel_backend_event)(int64_t start_us, int64_t end_us, int64_t debug_handle, const char* event_name,
                                       const char* backend_name);
typedef int (*torchreel_backend_memory_event)(const void* ptr, int64_t alloc_size, uint64_t total_allocated,
                                              uint64_t total_reserved, const char* device);

/* torchreel may be loaded at any time, but stays once it is: a function is looked for until it is found. */
static inline void* torchreel_find(void** found, const char* name) {
  void* function = __atomic_load_n(found, __ATOMIC_ACQUIRE);
  if (function == 0) {
    void* program = dlopen(0, RTLD_LAZY);
    if (program == 0) return 0;
    function = dlsym(program, name);
    dlclose(program);
    if (function != 0) __atomic_store_n(found, function, __ATOMIC_RELEASE);
  }
  return function;
}

/* An op that the backend ran, from start_us to end_us. A debug_handle of -1 is none. */
static inline int torchreel_report_event(int64_t start_us, int64_t end_us, int64_t debug_handle, const char* event_name,
                                         const char* backend_name) {
  static void* found = 0;
  void* function = torchreel_find(&found, "torchreel_record_backend_event");
  if (function == 0) return TORCHREEL_NO_PROFILER;
  return ((torchreel_backend_event)function)(start_us, end_us, debug_handle, event_name, backend_name);
}

/* Memory that the backend took, or gave back where alloc_size is negative, of a device such as "cpu". */
static inline int torchreel_report_memory_event(const void* ptr, int64_t alloc_size, uint64_t total_allocated,
                                                uint64_t total_reserved, const char* device) {
  static void* found = 0;
  void* function = torchreel_find(&found, "torchreel_record_backend_memory_event");
  if (function == 0) return TORCHREEL_NO_PROFILER;
  return ((torchreel_backend_memory_event)function)(ptr, alloc_size, total_allocated, total_reserved, device);
}

#ifdef __cplusplus
}
#endif

#define RECORD_BACKEND_EVENT_TO_EDGE_PROFILER(start_us, end_us, debug_handle, event_name, backend_name) \
  ((void)torchreel_report_event((start_us), (end_us), (debug_handle), (event_name), (backend_name)))

#define RECORD_BACKEND_MEMORY_EVENT_TO_EDGE_PROFILER(ptr, alloc_size, total_allocated, total_reserved, device) \
  ((void)torchreel_report_memory_event((ptr), (alloc_size), (total_allocated), (total_reserved), (device)))

#endif
