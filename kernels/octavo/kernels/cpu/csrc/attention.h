// Paged attention over chunks of keys that are anchored at absolute positions.
//
// A row meets its chunks in ascending order.  Within a chunk it computes its scores, their highest, the exponentials,
// and sums over keys in ascending order; the chunk's result is finished before it is merged.  Nothing that a row
// computes depends on the rows beside it: tiles of rows share the reading of keys and values, and a key that one of
// them does not see has the weight 0 there.
#pragma once
#include <limits>

#include "pool.h"
#include "row.h"
#include "simd.h"

namespace octavo {

constexpr int CHUNK = 256;
constexpr int MIN_BLOCK = 16;
constexpr int ROWS = 6;          // query rows of a tile
constexpr int KEYS = 4;          // keys whose scores are computed together
constexpr int AHEAD = 32;        // keys between the one computed and the one fetched from memory
constexpr int TASK_TOKENS = 32;  // query tokens of a task
constexpr int WRITE_ROWS = 32;   // rows of a task that writes the cache
constexpr int DIMS = 4;          // vectors of the output that a pass over the values adds up

struct Attention {
  float *q, *k, *v;        // [num_rows] heads of head_dim, row strides ldq, ldk, ldv
  float* out;              // [num_rows][num_heads][head_dim]
  void* kv;                // a layer's view
  const int64_t* slots;    // [num_rows]
  const int64_t* tables;   // [num_seqs][table_width]
  const int32_t *starts, *lens, *contexts;  // [num_seqs]: first row, rows, tokens with these rows
  long ldq, ldk, ldv, block_stride, table_width;
  int num_rows, num_seqs, num_heads, num_kv_heads, head_dim, block_size, window;
  float scale;
  int is_bf16;
  // With these, heads of q and k are first normed (where there is a norm) and turned, in place.
  const float *cosines, *sines;  // [max_len][head_dim], or null
  const int64_t* positions;      // [num_rows]
  const float *q_norm, *k_norm;  // [head_dim], or null
  float eps;
};

inline void turn(const Attention& a, int row) {
  const float *cosines = a.cosines + a.positions[row] * a.head_dim, *sines = a.sines + a.positions[row] * a.head_dim;
  for (int h = 0; h < a.num_heads + a.num_kv_heads; h++) {
    bool is_q = h < a.num_heads;
    float* head = is_q ? a.q + row * a.ldq + h * a.head_dim : a.k + row * a.ldk + (h - a.num_heads) * a.head_dim;
    const float* weight = is_q ? a.q_norm : a.k_norm;
    if (weight) norm_row(head, weight, head, a.head_dim, a.eps);
    rotate(head, cosines, sines, a.head_dim);
  }
}

template <class T>
void write_cache(const Attention& a, int row) {
  T* kv = static_cast<T*>(a.kv);
  int64_t block = a.slots[row] / a.block_size, offset = a.slots[row] % a.block_size;
  size_t page = size_t(a.block_size) * a.head_dim;
  for (int h = 0; h < a.num_kv_heads; h++) {
    T* to = kv + block * a.block_stride + h * page + offset * a.head_dim;
    const float *k = a.k + row * a.ldk + h * a.head_dim, *v = a.v + row * a.ldv + h * a.head_dim;
    for (int i = 0; i < a.head_dim; i++) from_float(k[i], to + i);
    to += a.num_kv_heads * page;
    for (int i = 0; i < a.head_dim; i++) from_float(v[i], to + i);
  }
}

// What a row has so far: the highest score, the sum of exponentials, the weighted values (not normalised).
struct State {
  float highest, total;
};

struct Scratch {
  std::vector<float> q, scores, part, done;
  std::vector<State> state;
};

// Where a chunk's keys, or values, are: block by block.
template <class T>
struct Pages {
  const T* page[CHUNK / MIN_BLOCK];
  int shift, mask, head_dim;
  const T* row(int key) const { return page[key >> shift] + (key & mask) * head_dim; }
};

// Scores of KEYS keys.  They are always computed together; where fewer are wanted, `key` repeats some.
template <int N, class T>
void score_keys(const float* q, const T* const* key, int head_dim, float* out) {
  vf total[N][KEYS];
  for (int r = 0; r < N; r++)
    for (int j = 0; j < KEYS; j++) total[r][j] = zero();
  for (int i = 0; i < head_dim; i += W) {
    vf of_key[KEYS];
    for (int j = 0; j < KEYS; j++) of_key[j] = load(key[j] + i);
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
      vf of_row = load(q + r * head_dim + i);
#pragma GCC unroll 4
      for (int j = 0; j < KEYS; j++) total[r][j] = fma(of_row, of_key[j], total[r][j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < N; r++) store_sums(total[r][0], total[r][1], total[r][2], total[r][3], out + r * CHUNK);
}

template <int N, int D, class T>
void add_values(const Pages<T>& values, int first, int end, const float* weights, int dim, float* part) {
  vf total[N][D];
  for (int r = 0; r < N; r++)
    for (int v = 0; v < D; v++) total[r][v] = zero();
  for (int key = first; key < end; key++) {
    const T* value = values.row(key) + dim;
    vf of_value[D];
    for (int v = 0; v < D; v++) of_value[v] = load(value + v * W);
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
      vf weight = set1(weights[r * CHUNK + key]);
#pragma GCC unroll 4
      for (int v = 0; v < D; v++) total[r][v] = fma(weight, of_value[v], total[r][v]);
    }
  }
  for (int r = 0; r < N; r++)
    for (int v = 0; v < D; v++) store(part + r * values.head_dim + dim + v * W, total[r][v]);
}

// One chunk for N rows of one KV head.  `position` is of each row; `state` and `done` are of the chunks before.
template <int N, class T>
void attend_chunk(
    const Attention& a, const Pages<T>& keys, const Pages<T>& values, int base, const float* q, const int* positions,
    bool is_cold, Scratch& s, State* state, float* done) {
  int first = CHUNK, end = 0;
  int lows[N], highs[N];
  for (int r = 0; r < N; r++) {
    lows[r] = a.window ? std::max(0, positions[r] - a.window + 1 - base) : 0;
    highs[r] = std::min(CHUNK, positions[r] + 1 - base);
    if (lows[r] < highs[r]) first = std::min(first, lows[r]), end = std::max(end, highs[r]);
  }
  if (first >= end) return;
  float* scores = s.scores.data();
  for (int key = first / KEYS * KEYS; key < end; key += KEYS) {
    const T* rows[KEYS];
    for (int j = 0; j < KEYS; j++) rows[j] = keys.row(std::max(first, std::min(end - 1, key + j)));
    if (is_cold)
      for (int j = 0; j < KEYS; j++)
        for (int i = 0; i < a.head_dim; i += 64 / int(sizeof(T))) {
          prefetch(keys.row(std::min(end - 1, key + j + AHEAD)) + i);
          prefetch(values.row(std::min(end - 1, key + j)) + i);
        }
    score_keys<N, T>(q, rows, a.head_dim, scores + key);
  }
  float high[N], total[N];
  for (int r = 0; r < N; r++) {
    float* line = scores + r * CHUNK;
    int from = first / W * W, to = (end + W - 1) / W * W;
    const float none = -std::numeric_limits<float>::infinity();
    for (int key = from; key < std::max(from, std::min(lows[r], to)); key++) line[key] = none;
    for (int key = std::max(from, highs[r]); key < to; key++) line[key] = none;
    vf highest = set1(none);
    for (int key = from; key < to; key += W) highest = max(highest, load(line + key));
    high[r] = max_lane(highest);
    vf shift = set1(lows[r] < highs[r] ? high[r] : 0.f), sums = zero();
    for (int key = from; key < to; key += W) {
      vf weight = exp(sub(load(line + key), shift));
      store(line + key, weight);
      sums = add(sums, weight);
    }
    total[r] = sum(sums);
  }
  float* part = s.part.data();
  int dim = 0;
  for (; dim + DIMS * W <= a.head_dim; dim += DIMS * W) add_values<N, DIMS, T>(values, first, end, scores, dim, part);
  for (; dim < a.head_dim; dim += W) add_values<N, 1, T>(values, first, end, scores, dim, part);
  for (int r = 0; r < N; r++) {
    if (lows[r] >= highs[r]) continue;
    float *to = done + r * a.head_dim, *from = part + r * a.head_dim;
    if (state[r].total == 0.f) {
      state[r] = {high[r], total[r]};
      std::memcpy(to, from, sizeof(float) * a.head_dim);
      continue;
    }
    float highest = high[r] > state[r].highest ? high[r] : state[r].highest;
    float old_part = exp1(state[r].highest - highest), new_part = exp1(high[r] - highest);
    state[r] = {highest, state[r].total * old_part + total[r] * new_part};
    vf x = set1(old_part), y = set1(new_part);
    for (int i = 0; i < a.head_dim; i += W) store(to + i, fma(load(from + i), y, mul(load(to + i), x)));
  }
}

template <class T, int N = ROWS>
void attend_rows(
    int num_rows, const Attention& a, const Pages<T>& keys, const Pages<T>& values, int base, const float* q,
    const int* positions, bool is_cold, Scratch& s, State* state, float* done) {
  if constexpr (N > 1) {
    if (num_rows < N)
      return attend_rows<T, N - 1>(num_rows, a, keys, values, base, q, positions, is_cold, s, state, done);
  }
  attend_chunk<N, T>(a, keys, values, base, q, positions, is_cold, s, state, done);
}

// Tokens [first, first + num) of sequence `seq`, for one KV head.
template <class T>
void attend_tokens(const Attention& a, int seq, int head, int first, int num, Scratch& s) {
  int share = a.num_heads / a.num_kv_heads, num_rows = num * share, dim = a.head_dim;
  int start = a.contexts[seq] - a.lens[seq] + first, last = start + num - 1;
  s.q.resize(size_t(num_rows) * dim);
  s.done.resize(size_t(num_rows) * dim);
  s.scores.resize(ROWS * CHUNK);
  s.part.resize(ROWS * dim);
  s.state.assign(num_rows, State{0.f, 0.f});
  std::vector<int> positions(num_rows);
  for (int t = 0; t < num; t++)
    for (int j = 0; j < share; j++) {
      const float* from = a.q + (a.starts[seq] + first + t) * a.ldq + (head * share + j) * dim;
      float* to = s.q.data() + size_t(t * share + j) * dim;
      for (int i = 0; i < dim; i++) to[i] = from[i] * a.scale;
      positions[t * share + j] = start + t;
    }
  int chunk = a.window ? std::max(0, start - a.window + 1) / CHUNK : 0;
  size_t page = size_t(a.block_size) * dim;
  const int64_t* table = a.tables + seq * a.table_width;
  Pages<T> keys, values;
  keys.shift = __builtin_ctz(a.block_size), keys.mask = a.block_size - 1, keys.head_dim = dim;
  values = keys;
  for (; chunk * CHUNK <= last; chunk++) {
    int base = chunk * CHUNK;
    for (int b = 0; b * a.block_size < CHUNK && base + b * a.block_size <= last; b++) {
      keys.page[b] = static_cast<const T*>(a.kv) + table[base / a.block_size + b] * a.block_stride + head * page;
      values.page[b] = keys.page[b] + a.num_kv_heads * page;
    }
    for (int r = 0; r < num_rows; r += ROWS)
      attend_rows<T>(
          std::min(ROWS, num_rows - r), a, keys, values, base, s.q.data() + size_t(r) * dim, positions.data() + r, r == 0, s,
          s.state.data() + r, s.done.data() + size_t(r) * dim);
  }
  for (int r = 0; r < num_rows; r++) {
    float* to = a.out + (size_t(a.starts[seq] + first + r / share) * a.num_heads + head * share + r % share) * dim;
    vf total = set1(s.state[r].total);
    for (int i = 0; i < dim; i += W) store(to + i, div(load(s.done.data() + size_t(r) * dim + i), total));
  }
}

template <class T>
void attention(Pool& pool, const Attention& a, std::vector<Scratch>& scratch) {
  pool.run((a.num_rows + WRITE_ROWS - 1) / WRITE_ROWS, [&](int task, int) {
    for (int row = task * WRITE_ROWS; row < std::min(a.num_rows, (task + 1) * WRITE_ROWS); row++) {
      if (a.cosines) turn(a, row);
      write_cache<T>(a, row);
    }
  });
  struct Task {
    int seq, head, first, num;
  };
  std::vector<Task> tasks;
  for (int seq = 0; seq < a.num_seqs; seq++)
    for (int first = 0; first < a.lens[seq]; first += TASK_TOKENS)
      for (int head = 0; head < a.num_kv_heads; head++)
        tasks.push_back({seq, head, first, std::min(TASK_TOKENS, a.lens[seq] - first)});
  scratch.resize(pool.size());
  pool.run(int(tasks.size()), [&](int task, int thread) {
    const Task& t = tasks[task];
    attend_tokens<T>(a, t.seq, t.head, t.first, t.num, scratch[thread]);
  });
}

}  // namespace octavo
