// Operations on single rows: norms and rotations.  Every row is computed alone.
#pragma once
#include "pool.h"
#include "simd.h"

namespace octavo {

constexpr int TASK_FLOATS = 16384;

inline int rows_of_task(int num_rows, int width) {
  return std::max(1, std::min(num_rows, TASK_FLOATS / std::max(1, width)));
}

// y / sqrt(mean(y²) + eps) · weight of y [n], a multiple of W; may be in place.
inline void norm_row(const float* y, const float* weight, float* out, int n, float eps) {
  vf squares = zero();
  for (int i = 0; i < n; i += W) squares = fma(load(y + i), load(y + i), squares);
  vf scale = set1(1.f / std::sqrt(sum(squares) / float(n) + eps));
  for (int i = 0; i < n; i += W) store(out + i, mul(mul(load(y + i), scale), load(weight + i)));
}

// Turns x [head_dim] in place by cosines and sines [head_dim], whose halves are equal: dimension i turns with
// i + head_dim / 2.
inline void rotate(float* x, const float* cosines, const float* sines, int head_dim) {
  int half = head_dim / 2, i = 0;
  float *left = x, *right = x + half;
  for (; i + W <= half; i += W) {
    vf a = load(left + i), b = load(right + i), cos = load(cosines + i), sin = load(sines + i);
    store(left + i, sub(mul(a, cos), mul(b, sin)));
    store(right + i, add(mul(b, cos), mul(a, sin)));
  }
  for (; i < half; i++) {
    float a = left[i], b = right[i];
    left[i] = a * cosines[i] - b * sines[i];
    right[i] = b * cosines[i] + a * sines[i];
  }
}

// out [num_rows][n] is the norm of x, or, with a residual [num_rows][n], of residual + x, which becomes the residual.
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
      norm_row(from, weight, out + size_t(r) * n, n, eps);
    }
  });
}

// Turns x [num_rows][num_heads][head_dim] (row stride ldx) in place by cosines and sines [num_rows][head_dim].
inline void rope(
    Pool& pool, float* x, const float* cosines, const float* sines, int num_rows, int num_heads, int head_dim,
    long ldx) {
  int step = rows_of_task(num_rows, num_heads * head_dim);
  pool.run((num_rows + step - 1) / step, [&](int task, int) {
    for (int r = task * step; r < std::min(num_rows, (task + 1) * step); r++)
      for (int h = 0; h < num_heads; h++)
        rotate(x + r * ldx + h * head_dim, cosines + size_t(r) * head_dim, sines + size_t(r) * head_dim, head_dim);
  });
}

}  // namespace octavo
