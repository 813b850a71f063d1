#include "tile.h"

// Lane l of 16 sums the terms of positions l, l+16, l+32, … in this order, each
// term by one fused multiply-add; then lane l takes l+8, l+4, l+2, l+1 in turn.
// All code that computes exact scores performs just these roundings, so a
// pair's score depends on its two rows and on nothing else.

namespace knn {
namespace {

float gather_lanes(float *lane) {
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) lane[l] += lane[l + half];
  return lane[0];
}

float pair_baseline(const float *a, const float *b, int width, bool l2) {
  float lane[LANES] = {};
  for (int k = 0; k < width; k += LANES)
    for (int l = 0; l < LANES; l++) {
      float x = a[k + l], y = b[k + l];
      if (l2) x = y = x - y;
      lane[l] = std::fma(x, y, lane[l]);
    }
  return l2 ? -gather_lanes(lane) : gather_lanes(lane);
}

void tile_baseline(const float *const *a, int na, const float *b, int64_t nb, int width, bool l2, float *out, int64_t stride) {
  for (int i = 0; i < na; i++)
    for (int64_t j = 0; j < nb; j++) out[i * stride + j] = pair_baseline(a[i], b + j * width, width, l2);
}

#if X86
AVX2 inline float gather_avx2(__m256 low, __m256 high) {
  __m256 eight = _mm256_add_ps(low, high);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

template <bool L2> AVX2 inline void term_avx2(__m256 x, __m256 y, __m256 &sum) {
  if (L2) x = y = _mm256_sub_ps(x, y);
  sum = _mm256_fmadd_ps(x, y, sum);
}

template <bool L2> AVX2 float pair_avx2(const float *a, const float *b, int width) {
  __m256 low = _mm256_setzero_ps(), high = low;
  for (int k = 0; k < width; k += LANES) {
    term_avx2<L2>(_mm256_loadu_ps(a + k), _mm256_loadu_ps(b + k), low);
    term_avx2<L2>(_mm256_loadu_ps(a + k + 8), _mm256_loadu_ps(b + k + 8), high);
  }
  float s = gather_avx2(low, high);
  return L2 ? -s : s;
}

// Two rows by three: 12 accumulators of the 16 registers.
template <bool L2> AVX2 void tile_avx2(const float *const *a, int na, const float *b, int64_t nb, int width, float *out, int64_t stride) {
  for (int i = 0; i < na; i += 2)
    for (int64_t j = 0; j < nb; j += 3) {
      const float *r[2] = {a[i], a[std::min(i + 1, na - 1)]};
      const float *c[3] = {b + j * width, b + std::min(j + 1, nb - 1) * width, b + std::min(j + 2, nb - 1) * width};
      __m256 low[2][3], high[2][3];
      for (int u = 0; u < 2; u++)
        for (int v = 0; v < 3; v++) low[u][v] = high[u][v] = _mm256_setzero_ps();
      for (int k = 0; k < width; k += LANES) {
        for (int u = 0; u < 2; u++)
          for (int v = 0; v < 3; v++) term_avx2<L2>(_mm256_loadu_ps(r[u] + k), _mm256_loadu_ps(c[v] + k), low[u][v]);
        for (int u = 0; u < 2; u++)
          for (int v = 0; v < 3; v++) term_avx2<L2>(_mm256_loadu_ps(r[u] + k + 8), _mm256_loadu_ps(c[v] + k + 8), high[u][v]);
      }
      for (int u = 0; u < 2 && i + u < na; u++)
        for (int v = 0; v < 3 && j + v < nb; v++) {
          float s = gather_avx2(low[u][v], high[u][v]);
          out[(i + u) * stride + j + v] = L2 ? -s : s;
        }
    }
}

template <bool L2> AVX512 inline void term_avx512(__m512 x, __m512 y, __m512 &sum) {
  if (L2) x = y = _mm512_sub_ps(x, y);
  sum = _mm512_fmadd_ps(x, y, sum);
}

AVX512 inline float gather_avx512(__m512 sum) { return gather_avx2(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1)); }

template <bool L2> AVX512 float pair_avx512(const float *a, const float *b, int width) {
  __m512 sum = _mm512_setzero_ps();
  for (int k = 0; k < width; k += LANES) term_avx512<L2>(_mm512_loadu_ps(a + k), _mm512_loadu_ps(b + k), sum);
  float s = gather_avx512(sum);
  return L2 ? -s : s;
}

// gather16 sums the lanes of 16 accumulators, each as gather_lanes does:
// register 4u+v becomes element 4u+v.
AVX512 inline __m512 gather16(const __m512 *s) {
  __m512 eight[8], four[4];
  for (int i = 0; i < 8; i++) { // registers 2i, 2i+1: lanes 0-7 + lanes 8-15
    __m512 p = s[2 * i], q = s[2 * i + 1];
    eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(p, q, 0x44), _mm512_shuffle_f32x4(p, q, 0xee));
  }
  for (int i = 0; i < 4; i++) // one register in each quarter
    four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(eight[2 * i], eight[2 * i + 1], 0x88), _mm512_shuffle_f32x4(eight[2 * i], eight[2 * i + 1], 0xdd));
  __m512 two[2];
  for (int i = 0; i < 2; i++)
    two[i] = _mm512_add_ps(_mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44), _mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));
  // Quarter v of each now holds register 4u+v for the two u of this pair.
  __m512 one = _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xdd));
  // Element 4v+u is register 4u+v: a transposition of 4 by 4 remains.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_ps(order, one);
}

// Four rows by four: 16 accumulators of the 32 registers.
template <bool L2> AVX512 void tile_avx512(const float *const *a, int na, const float *b, int64_t nb, int width, float *out, int64_t stride) {
  const __m512 sign = _mm512_set1_ps(L2 ? -0.0f : 0.0f);
  for (int i = 0; i < na; i += 4)
    for (int64_t j = 0; j < nb; j += 4) {
      const float *r[4], *c[4];
      for (int u = 0; u < 4; u++) {
        r[u] = a[std::min(i + u, na - 1)];
        c[u] = b + std::min(j + u, nb - 1) * width;
      }
      __m512 sum[16];
#pragma GCC unroll 16
      for (int u = 0; u < 16; u++) sum[u] = _mm512_setzero_ps();
      for (int k = 0; k < width; k += LANES) {
        __m512 y[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) y[v] = _mm512_loadu_ps(c[v] + k);
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
          __m512 x = _mm512_loadu_ps(r[u] + k);
#pragma GCC unroll 4
          for (int v = 0; v < 4; v++) term_avx512<L2>(x, y[v], sum[4 * u + v]);
        }
      }
      __m512 s = _mm512_xor_ps(gather16(sum), sign);
      __mmask8 columns = static_cast<__mmask8>((1u << std::min<int64_t>(4, nb - j)) - 1);
      __m128 part[4] = {_mm512_extractf32x4_ps(s, 0), _mm512_extractf32x4_ps(s, 1), _mm512_extractf32x4_ps(s, 2), _mm512_extractf32x4_ps(s, 3)};
      for (int u = 0; u < 4 && i + u < na; u++) _mm_mask_storeu_ps(out + (i + u) * stride + j, columns, part[u]);
    }
}
#endif

} // namespace

float pair(const knn_plan &p, const float *a, const float *b) {
#if X86
  if (p.isa >= KNN_AVX512) return p.l2 ? pair_avx512<true>(a, b, p.width) : pair_avx512<false>(a, b, p.width);
  if (p.isa >= KNN_AVX2) return p.l2 ? pair_avx2<true>(a, b, p.width) : pair_avx2<false>(a, b, p.width);
#endif
  return pair_baseline(a, b, p.width, p.l2);
}

namespace {

#if X86
// Four pairs side by side: a sum's additions wait for each other, not for the other sums'.
template <bool L2> AVX512 void four_avx512(const float *const *a, const float *const *b, int width, float *scores) {
  __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int k = 0; k < width; k += LANES)
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) term_avx512<L2>(_mm512_loadu_ps(a[i] + k), _mm512_loadu_ps(b[i] + k), sum[i]);
  for (int i = 0; i < 4; i++) scores[i] = L2 ? -gather_avx512(sum[i]) : gather_avx512(sum[i]);
}
#endif

} // namespace

void pairs(const knn_plan &p, const float *const *a, const float *const *b, int n, float *scores) {
  int i = 0;
#if X86
  if (p.isa >= KNN_AVX512)
    for (; i + 4 <= n; i += 4) (p.l2 ? four_avx512<true> : four_avx512<false>)(a + i, b + i, p.width, scores + i);
#endif
  for (; i < n; i++) scores[i] = pair(p, a[i], b[i]);
}

namespace {

// exact_tile computes the scores of na (at most 16) rows with nb consecutive ones.
void exact_tile(const knn_plan &p, const float *const *a, int na, const float *b, int64_t nb, float *out, int64_t stride) {
#if X86
  if (p.isa >= KNN_AVX512) return (p.l2 ? tile_avx512<true> : tile_avx512<false>)(a, na, b, nb, p.width, out, stride);
  if (p.isa >= KNN_AVX2) return (p.l2 ? tile_avx2<true> : tile_avx2<false>)(a, na, b, nb, p.width, out, stride);
#endif
  tile_baseline(a, na, b, nb, p.width, p.l2, out, stride);
}

} // namespace

// block runs tiles of 16 rows by as many columns as stay in the cache.
void block(const knn_plan &p, const float *a, int64_t na, const float *b, int64_t nb, float *out, int64_t stride) {
  const int64_t columns = std::max(4, 65536 / p.width / 4 * 4);
  for (int64_t j = 0; j < nb; j += columns)
    for (int64_t i = 0; i < na; i += 16) {
      const float *rows[16];
      int n = static_cast<int>(std::min<int64_t>(16, na - i));
      for (int u = 0; u < n; u++) rows[u] = a + (i + u) * p.width;
      exact_tile(p, rows, n, b + j * p.width, std::min(columns, nb - j), out + i * stride + j, stride);
    }
}

} // namespace knn

extern "C" void knn_exact(const knn_plan *p, const float *a, int64_t na, const float *b, int64_t nb, float *scores) {
  knn::block(*p, a, na, b, nb, scores, nb);
}
