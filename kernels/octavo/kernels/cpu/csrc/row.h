// Operations on single rows: norms and rotations.  Every row is computed alone.
#pragma once
#include "pool.h"
#include "simd.h"

namespace octavo {

constexpr int TASK_FLOATS = 16384;

inline int rows_of_task(int num_rows, int width) {
  return std::max(1, std::min(num_rows, TASK_FLOATS / std::max(1, width)));
}

// out = y / sqrt(mean(y²) + eps) · weight of y = x, or, with a residual [num_rows][n], of y = residual + x, which
// becomes the residual.  n is a multiple of W.
inline void rms_norm(
    Pool& pool, const float* x, float* residual, const float* weight, float* out, int num_rows, int n, long ldx,
    float eps) {
  int step = rows_of_task(num_rows, n);
  pool.run((num_rows + step - 1) / step, [&](int task, int) {
    for (int r = task * step; r < std::min(num_rows, (task + 1) * step); r++) {
      const float* from = x + r * ldx;
      if (residual) {
        float* stream = residual + size_t(r) * n;
        for (int i = 0; i < n; i += W) store(stream + i, add(load(stream + i), load(from + i)));
        from = stream;
      }
      float* to = out + size_t(r) * n;
      vf squares = zero();
      for (int i = 0; i < n; i += W) squares = fma(load(from + i), load(from + i), squares);
      vf scale = set1(1.f / std::sqrt(sum(squares) / float(n) + eps));
      for (int i = 0; i < n; i += W) store(to + i, mul(mul(load(from + i), scale), load(weight + i)));
    }
  });
}

// Rotates x [num_rows][num_heads][head_dim] (row stride ldx) in place by cos, sin [num_rows][head_dim], whose halves
// are equal: dimension i turns with i + head_dim / 2, a multiple of W.
inline void rope(
    Pool& pool, float* x, const float* cosines, const float* sines, int num_rows, int num_heads, int head_dim,
    long ldx) {
  int half = head_dim / 2, step = rows_of_task(num_rows, num_heads * head_dim);
  pool.run((num_rows + step - 1) / step, [&](int task, int) {
    for (int r = task * step; r < std::min(num_rows, (task + 1) * step); r++) {
      const float *c = cosines + size_t(r) * head_dim, *s = sines + size_t(r) * head_dim;
      for (int h = 0; h < num_heads; h++) {
        float *left = x + r * ldx + h * head_dim, *right = left + half;
        for (int i = 0; i < half; i += W) {
          vf a = load(left + i), b = load(right + i), cos = load(c + i), sin = load(s + i);
          store(left + i, sub(mul(a, cos), mul(b, sin)));
          store(right + i, add(mul(b, cos), mul(a, sin)));
        }
      }
    }
  });
}

}  // namespace octavo
