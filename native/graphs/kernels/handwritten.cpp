#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

const Preparers& handwritten_kernels() {
  static const Preparers table = [] {
    Preparers all;
    add_activations(all);
    add_attention(all);
    add_batched_products(all);
    add_convolution(all);
    add_copies(all);
    add_fills(all);
    add_foreach(all);
    add_losses(all);
    add_lookups(all);
    add_matrix_products(all);
    add_norms(all);
    add_pieces(all);
    add_pointwise(all);
    add_pools(all);
    add_reductions(all);
    add_vector_products(all);
    return all;
  }();
  return table;
}

}  // namespace torchreel::graphs
