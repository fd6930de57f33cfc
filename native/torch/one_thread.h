// Torch and BLAS on the calling thread alone, as long as this lives.
#pragma once

extern "C" {
// Of the libraries that torch itself is built with. Where it is built with others, there are none.
__attribute__((weak)) int omp_get_max_threads(void);
__attribute__((weak)) void omp_set_num_threads(int);
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int);
}

namespace torchreel::graphs {

class OneThread {
 public:
  static bool is_possible() { return omp_set_num_threads != nullptr && MKL_Set_Num_Threads_Local != nullptr; }

  OneThread() : threads_(omp_get_max_threads()), of_blas_(MKL_Set_Num_Threads_Local(1)) { omp_set_num_threads(1); }
  ~OneThread() {
    omp_set_num_threads(threads_);
    MKL_Set_Num_Threads_Local(of_blas_);
  }
  OneThread(const OneThread&) = delete;

 private:
  int threads_, of_blas_;
};

}  // namespace torchreel::graphs
