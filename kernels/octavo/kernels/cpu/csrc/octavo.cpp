// The C interface.  One call at a time uses the pool and its scratch memory; others wait.
#include "layer.h"

using namespace octavo;

namespace {

std::mutex calls;
std::unique_ptr<Pool> pool;
Buffers buffers;

Pool& threads() {
  if (!pool) pool = std::make_unique<Pool>(1);
  return *pool;
}

}  // namespace

extern "C" {

int octavo_width() { return W; }

void octavo_set_threads(int num_threads) {
  std::lock_guard<std::mutex> lock(calls);
  if (!pool || pool->size() != num_threads) pool = std::make_unique<Pool>(num_threads);
}

long octavo_packed_size(int n, int k) { return long((n + PANEL - 1) / PANEL) * PANEL * k; }

void octavo_pack(const void* weight, void* out, int n, int k, int is_bf16) {
  std::lock_guard<std::mutex> lock(calls);
  if (is_bf16) pack_weight(threads(), static_cast<const bf16*>(weight), static_cast<bf16*>(out), n, k);
  else pack_weight(threads(), static_cast<const float*>(weight), static_cast<float*>(out), n, k);
}

void octavo_linear(const Linear* a) {
  std::lock_guard<std::mutex> lock(calls);
  linear(threads(), *a, buffers.packed);
}

void octavo_rms_norm(
    const float* x, float* residual, const float* weight, float* out, int num_rows, int n, long ldx, float eps) {
  std::lock_guard<std::mutex> lock(calls);
  rms_norm(threads(), x, residual, weight, out, num_rows, n, ldx, eps);
}

void octavo_rope(
    float* x, const float* cosines, const float* sines, int num_rows, int num_heads, int head_dim, long ldx) {
  std::lock_guard<std::mutex> lock(calls);
  rope(threads(), x, cosines, sines, num_rows, num_heads, head_dim, ldx);
}

// x [num_rows][hidden] is what the layer before adds to residual [num_rows][hidden], then what this one adds to it.
void octavo_layer(const Layer* layer, const Attention* a, float* x, float* residual, int is_first) {
  std::lock_guard<std::mutex> lock(calls);
  run_layer(threads(), *layer, *a, x, residual, is_first, buffers);
}

void octavo_attention(const Attention* a) {
  std::lock_guard<std::mutex> lock(calls);
  attention(threads(), *a, buffers.scratch);
}

}
