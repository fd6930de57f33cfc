#include "bound.h"

namespace torchreel::graphs {

const Preparers& bound_kernels() {
  static const Preparers table = [] {
    Preparers all;
    add_blas(all);
    add_copies(all);
    add_fills(all);
    add_pointwise(all);
    return all;
  }();
  return table;
}

}  // namespace torchreel::graphs
