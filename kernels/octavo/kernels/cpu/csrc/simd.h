// A vector of floats, as wide as the instruction set has: AVX-512, AVX2 with FMA, or portable.
//
// Lanes never mix except in `sum`, `store_sums` and `max_lane`, whose order is fixed.  Compile with -ffp-contract=off:
// what is fused is written as `fma`.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace octavo {

using bf16 = uint16_t;

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
  uint32_t bits = uint32_t(x) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

inline void from_float(float x, float* out) { *out = x; }
// To nearest, ties to even; NaN stays NaN.
inline void from_float(float x, bf16* out) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  *out = x != x ? 0x7fc0 : bf16((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#if defined(__AVX2__)
// The sums of the lanes of four vectors.
inline void store_sums8(__m256 a, __m256 b, __m256 c, __m256 d, float* out) {
  __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
  __m256d x = _mm256_castps_pd(ab), y = _mm256_castps_pd(cd);
  __m256 all = _mm256_add_ps(
      _mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__)
constexpr int W = 16;
constexpr int TILE_ROWS = 12;
typedef __m512 vf;
inline vf zero() { return _mm512_setzero_ps(); }
inline vf set1(float x) { return _mm512_set1_ps(x); }
inline vf load(const float* p) { return _mm512_loadu_ps(p); }
inline vf load(const bf16* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}
inline void store(float* p, vf x) { _mm512_storeu_ps(p, x); }
inline vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
inline vf add(vf a, vf b) { return _mm512_add_ps(a, b); }
inline vf sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
inline vf mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
inline vf div(vf a, vf b) { return _mm512_div_ps(a, b); }
// The second operand where one is NaN.
inline vf max(vf a, vf b) { return _mm512_max_ps(a, b); }
inline vf min(vf a, vf b) { return _mm512_min_ps(a, b); }
inline vf round_even(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline vf power_of_two(vf n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
inline vf zero_below(vf x, float limit, vf y) {
  return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_LT_OQ), _mm512_setzero_ps());
}
// 2 W values [W][2] → the first and the second of each pair.
inline void load_pair(const bf16* p, vf& even, vf& odd) {
  __m512i both = _mm512_loadu_si512(p);
  even = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
  odd = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(int(0xffff0000))));
}
inline __m256 halves(vf x) {
  __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
  return _mm256_add_ps(_mm512_castps512_ps256(x), high);
}
inline float sum8(__m256 x) {
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
inline float sum(vf x) { return sum8(halves(x)); }
inline float max_lane(vf x) { return _mm512_reduce_max_ps(x); }
inline void store_sums(vf a, vf b, vf c, vf d, float* out) {
  store_sums8(halves(a), halves(b), halves(c), halves(d), out);
}

#elif defined(__AVX2__) && defined(__FMA__)
constexpr int W = 8;
constexpr int TILE_ROWS = 3;
typedef __m256 vf;
inline vf zero() { return _mm256_setzero_ps(); }
inline vf set1(float x) { return _mm256_set1_ps(x); }
inline vf load(const float* p) { return _mm256_loadu_ps(p); }
inline vf load(const bf16* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
}
inline void store(float* p, vf x) { _mm256_storeu_ps(p, x); }
inline vf fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
inline vf add(vf a, vf b) { return _mm256_add_ps(a, b); }
inline vf sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
inline vf mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
inline vf div(vf a, vf b) { return _mm256_div_ps(a, b); }
inline vf max(vf a, vf b) { return _mm256_max_ps(a, b); }
inline vf min(vf a, vf b) { return _mm256_min_ps(a, b); }
inline vf round_even(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline vf power_of_two(vf n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
inline vf zero_below(vf x, float limit, vf y) {
  return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_LT_OQ), y);
}
inline void load_pair(const bf16* p, vf& even, vf& odd) {
  __m256i both = _mm256_loadu_si256((const __m256i*)p);
  even = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
  odd = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(int(0xffff0000))));
}
inline float sum(vf x) {
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
inline float max_lane(vf x) {
  __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
inline void store_sums(vf a, vf b, vf c, vf d, float* out) { store_sums8(a, b, c, d, out); }

#else
constexpr int W = 8;
constexpr int TILE_ROWS = 2;
struct vf {
  float at[W];
};
#define OCTAVO_LANES(expression)                \
  vf out;                                       \
  for (int i = 0; i < W; i++) out.at[i] = expression; \
  return out;
inline vf set1(float x) { OCTAVO_LANES(x) }
inline vf zero() { return set1(0.f); }
inline vf load(const float* p) { OCTAVO_LANES(p[i]) }
inline vf load(const bf16* p) { OCTAVO_LANES(to_float(p[i])) }
inline void store(float* p, vf x) { std::memcpy(p, x.at, sizeof(x.at)); }
inline vf fma(vf a, vf b, vf c) { OCTAVO_LANES(a.at[i] * b.at[i] + c.at[i]) }
inline vf add(vf a, vf b) { OCTAVO_LANES(a.at[i] + b.at[i]) }
inline vf sub(vf a, vf b) { OCTAVO_LANES(a.at[i] - b.at[i]) }
inline vf mul(vf a, vf b) { OCTAVO_LANES(a.at[i] * b.at[i]) }
inline vf div(vf a, vf b) { OCTAVO_LANES(a.at[i] / b.at[i]) }
inline vf max(vf a, vf b) { OCTAVO_LANES(a.at[i] > b.at[i] ? a.at[i] : b.at[i]) }
inline vf min(vf a, vf b) { OCTAVO_LANES(a.at[i] < b.at[i] ? a.at[i] : b.at[i]) }
inline vf round_even(vf x) { OCTAVO_LANES(nearbyintf(x.at[i])) }
inline float power_of_two(float n) {
  uint32_t bits = uint32_t(int32_t(n == n ? n : 0.f) + 127) << 23;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}
inline vf power_of_two(vf n) { OCTAVO_LANES(power_of_two(n.at[i])) }
inline vf zero_below(vf x, float limit, vf y) { OCTAVO_LANES(x.at[i] < limit ? 0.f : y.at[i]) }
inline void load_pair(const bf16* p, vf& even, vf& odd) {
  for (int i = 0; i < W; i++) even.at[i] = to_float(p[2 * i]), odd.at[i] = to_float(p[2 * i + 1]);
}
inline float sum(vf x) {
  const float* a = x.at;
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}
inline float max_lane(vf x) {
  float out = x.at[0];
  for (int i = 1; i < W; i++) out = x.at[i] > out ? x.at[i] : out;
  return out;
}
inline void store_sums(vf a, vf b, vf c, vf d, float* out) {
  out[0] = sum(a), out[1] = sum(b), out[2] = sum(c), out[3] = sum(d);
}
#endif

inline void prefetch(const void* p) { __builtin_prefetch(p); }

// e^x within 2 units in the last place; 0 below -87, NaN for NaN.
inline vf exp(vf x) {
  vf y = min(set1(88.f), max(set1(-88.f), x));
  vf n = round_even(mul(y, set1(1.44269504f)));
  vf r = fma(n, set1(-0.693359375f), y);
  r = fma(n, set1(2.12194440e-4f), r);
  vf p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = add(fma(mul(r, r), p, r), set1(1.f));
  return zero_below(x, -87.f, mul(p, power_of_two(n)));
}

inline float exp1(float x) {
  float out[W];
  store(out, exp(set1(x)));
  return out[0];
}

}  // namespace octavo
