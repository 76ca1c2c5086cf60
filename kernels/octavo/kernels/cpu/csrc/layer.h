// A decoder layer in one call: norm, q k v, rotation, attention, output, norm, gated feed-forward.
//
// The same functions in the same order as when they are called one by one, so the same bits.
#pragma once
#include "attention.h"
#include "linear.h"
#include "row.h"

namespace octavo {

struct Layer {
  const void *qkv, *output, *gate_up, *down;                           // packed weights
  const float *qkv_bias, *output_bias, *gate_up_bias, *down_bias;      // or null
  const float *input_norm, *mlp_norm;
  int hidden, heads, kv_heads, ffn;  // outputs of the norms, of q, of k and of v, and of gate and of up
  float eps;
  int is_bf16;
};

struct Buffers {
  std::vector<float> packed, normed, qkv, heads, gated;
  std::vector<Scratch> scratch;
};

inline void linear(Pool& pool, const Linear& a, std::vector<float>& packed) {
  if (a.is_bf16) linear<bf16>(pool, a, packed);
  else linear<float>(pool, a, packed);
}

inline void attention(Pool& pool, const Attention& a, std::vector<Scratch>& scratch) {
  if (a.is_bf16) attention<bf16>(pool, a, scratch);
  else attention<float>(pool, a, scratch);
}

inline void run_layer(
    Pool& pool, const Layer& w, const Attention& attend, float* x, float* residual, bool is_first, Buffers& b) {
  int m = attend.num_rows, num_qkv = w.heads + 2 * w.kv_heads;
  b.normed.resize(size_t(m) * w.hidden), b.qkv.resize(size_t(m) * num_qkv);
  b.heads.resize(size_t(m) * w.heads), b.gated.resize(size_t(m) * w.ffn);
  auto multiply = [&](const std::vector<float>& from, const void* weight, const float* bias, float* to, int n, int k,
                      Activation activation) {
    int num_out = activation == SILU_MUL ? n / 2 : n;
    linear(pool, Linear{from.data(), weight, bias, to, k, num_out, m, n, k, w.is_bf16, activation}, b.packed);
  };
  if (is_first) {
    std::memcpy(residual, x, sizeof(float) * m * w.hidden);
    rms_norm(pool, x, nullptr, w.input_norm, b.normed.data(), m, w.hidden, w.hidden, w.eps);
  } else {
    rms_norm(pool, x, residual, w.input_norm, b.normed.data(), m, w.hidden, w.hidden, w.eps);
  }
  multiply(b.normed, w.qkv, w.qkv_bias, b.qkv.data(), num_qkv, w.hidden, NONE);
  Attention a = attend;
  a.q = b.qkv.data(), a.k = a.q + w.heads, a.v = a.k + w.kv_heads, a.out = b.heads.data();
  a.ldq = a.ldk = a.ldv = num_qkv;
  attention(pool, a, b.scratch);
  multiply(b.heads, w.output, w.output_bias, x, w.hidden, w.heads, NONE);
  rms_norm(pool, x, residual, w.mlp_norm, b.normed.data(), m, w.hidden, w.hidden, w.eps);
  multiply(b.normed, w.gate_up, w.gate_up_bias, b.gated.data(), 2 * w.ffn, w.hidden, SILU_MUL);
  multiply(b.gated, w.down, w.down_bias, x, w.hidden, w.ffn, NONE);
}

}  // namespace octavo
