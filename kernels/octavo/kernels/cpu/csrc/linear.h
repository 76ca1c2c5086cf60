// Matrix products of few or many rows with a packed weight.
//
// A weight [n][k] is packed in panels of PANEL outputs, the last one filled up with zeros: bfloat16 as
// [k / 2][PANEL][2], so that one load and one shift or mask give the floats of an even or odd k; float32 as [k][PANEL].
// Every output is one accumulator to which products are added in ascending order of k, whatever the number of rows:
// tiles of rows change what is computed together, never a sum.
#pragma once
#include "pool.h"
#include "simd.h"

namespace octavo {

constexpr int PANEL = 32;
constexpr int LANES = PANEL / W;
constexpr int BLOCK_TILES = 8;  // row tiles of one task: their inputs stay in the second-level cache

constexpr int FETCH_AHEAD = 4096;  // bytes of the weight between what is read and what is fetched from memory

enum Activation { NONE = 0, SILU_MUL = 1 };

inline void pair(const bf16* both, int lane, vf& even, vf& odd) { load_pair(both + 2 * W * lane, even, odd); }
inline void pair(const float* both, int lane, vf& even, vf& odd) {
  even = load(both + W * lane), odd = load(both + PANEL + W * lane);
}
inline void put_pair(const bf16* from, int column, bf16* both) {
  std::memcpy(both + 2 * column, from, 2 * sizeof(bf16));
}
inline void put_pair(const float* from, int column, float* both) {
  both[column] = from[0], both[PANEL + column] = from[1];
}

template <class T>
void pack_weight(Pool& pool, const T* weight, T* out, int n, int k) {
  pool.run((n + PANEL - 1) / PANEL, [&](int panel, int) {
    T* to = out + size_t(panel) * PANEL * k;
    int first = panel * PANEL, columns = std::min(PANEL, n - first);
    if (columns < PANEL) std::memset(to, 0, sizeof(T) * PANEL * k);
    for (int i = 0; i < k; i += 2)
      for (int c = 0; c < columns; c++) put_pair(weight + size_t(first + c) * k + i, c, to + size_t(i) * PANEL);
  });
}

// x is [k][ROWS]; out is [ROWS][PANEL].
template <int ROWS, class T>
void tile(const float* x, const T* weight, int k, float* out) {
  vf total[ROWS][LANES];
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < LANES; v++) total[r][v] = zero();
  for (int i = 0; i < k; i += 2, x += 2 * ROWS, weight += 2 * PANEL) {
    vf even[LANES], odd[LANES];
    for (int line = 0; line < int(2 * PANEL * sizeof(T)); line += 64)
      prefetch(reinterpret_cast<const char*>(weight) + FETCH_AHEAD + line);
    for (int v = 0; v < LANES; v++) pair(weight, v, even[v], odd[v]);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
      for (int v = 0; v < LANES; v++) total[r][v] = fma(set1(x[r]), even[v], total[r][v]);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
      for (int v = 0; v < LANES; v++) total[r][v] = fma(set1(x[ROWS + r]), odd[v], total[r][v]);
  }
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < LANES; v++) store(out + r * PANEL + v * W, total[r][v]);
}

template <class T, int ROWS = TILE_ROWS>
void tile_of(int rows, const float* x, const T* weight, int k, float* out) {
  if constexpr (ROWS > 1) {
    if (rows < ROWS) return tile_of<T, ROWS - 1>(rows, x, weight, k, out);
  }
  tile<ROWS, T>(x, weight, k, out);
}

inline vf silu(vf x) { return div(x, add(set1(1.f), exp(sub(zero(), x)))); }

struct Linear {
  const float* x;     // [m], row stride ldx
  const void* weight;
  const float* bias;  // [n] or null
  float* out;         // [m], row stride ldo
  long ldx, ldo;
  int m, n, k;
  int is_bf16;
  int activation;  // SILU_MUL: n is twice the outputs, gate columns first
};

template <class T>
void linear(Pool& pool, const Linear& a, std::vector<float>& packed) {
  int num_tiles = (a.m + TILE_ROWS - 1) / TILE_ROWS;
  int height = (a.m + num_tiles - 1) / num_tiles;
  num_tiles = (a.m + height - 1) / height;
  packed.resize(size_t(a.m) * a.k);
  float* rows_of = packed.data();
  pool.run(num_tiles, [&](int t, int) {
    int first = t * height, rows = std::min(height, a.m - first);
    float* to = rows_of + size_t(first) * a.k;
    for (int r = 0; r < rows; r++) {
      const float* from = a.x + (first + r) * a.ldx;
      for (int i = 0; i < a.k; i++) to[size_t(i) * rows + r] = from[i];
    }
  });
  bool is_gated = a.activation == SILU_MUL;
  int num_out = is_gated ? a.n / 2 : a.n;
  int num_panels = (num_out + PANEL - 1) / PANEL;
  int num_blocks = (num_tiles + BLOCK_TILES - 1) / BLOCK_TILES;
  const T* weight = static_cast<const T*>(a.weight);
  size_t panel_size = size_t(PANEL) * a.k;
  pool.run(num_blocks * num_panels, [&](int task, int) {
    int block = task / num_panels, panel = task % num_panels;
    int column = panel * PANEL, columns = std::min(PANEL, num_out - column);
    alignas(64) float got[TILE_ROWS * PANEL], up[TILE_ROWS * PANEL];
    for (int t = block * BLOCK_TILES; t < std::min(num_tiles, (block + 1) * BLOCK_TILES); t++) {
      int first = t * height, rows = std::min(height, a.m - first);
      const float* x = rows_of + size_t(first) * a.k;
      tile_of<T>(rows, x, weight + panel * panel_size, a.k, got);
      if (is_gated) tile_of<T>(rows, x, weight + (num_panels + panel) * panel_size, a.k, up);
      for (int r = 0; r < rows; r++) {
        float* line = got + r * PANEL;
        if (a.bias) for (int c = 0; c < columns; c++) line[c] += a.bias[column + c];
        if (is_gated) {
          float* other = up + r * PANEL;
          if (a.bias) for (int c = 0; c < columns; c++) other[c] += a.bias[num_out + column + c];
          for (int c = 0; c < PANEL; c += W) store(line + c, mul(silu(load(line + c)), load(other + c)));
        }
        std::memcpy(a.out + (first + r) * a.ldo + column, line, sizeof(float) * columns);
      }
    }
  });
}

}  // namespace octavo
