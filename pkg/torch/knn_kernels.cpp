#include "knn_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#if defined(__x86_64__)
// g++ 12 takes the undefined operands in its own intrinsics for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define X86 1
#endif

namespace {

constexpr int LANES = 16;
constexpr float NONE = -std::numeric_limits<float>::infinity();

// ---- the exact score ----------------------------------------------------------------------------
//
// Lane l of 16 sums the terms of positions l, l+16, l+32, … in this order, each
// term by one fused multiply-add; then lane l takes l+8, l+4, l+2, l+1 in turn.
// All code below that computes exact scores performs just these roundings, so a
// pair's score depends on its two rows and on nothing else.

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
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define AVX512BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))
#define AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16,fma")))

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

float pair(const knn_plan &p, const float *a, const float *b) {
#if X86
  if (p.level >= KNN_AVX512) return p.l2 ? pair_avx512<true>(a, b, p.width) : pair_avx512<false>(a, b, p.width);
  if (p.level >= KNN_AVX2) return p.l2 ? pair_avx2<true>(a, b, p.width) : pair_avx2<false>(a, b, p.width);
#endif
  return pair_baseline(a, b, p.width, p.l2);
}

// exact_tile computes the scores of na (at most 16) rows with nb consecutive ones.
void exact_tile(const knn_plan &p, const float *const *a, int na, const float *b, int64_t nb, float *out, int64_t stride) {
#if X86
  if (p.level >= KNN_AVX512) return (p.l2 ? tile_avx512<true> : tile_avx512<false>)(a, na, b, nb, p.width, out, stride);
  if (p.level >= KNN_AVX2) return (p.l2 ? tile_avx2<true> : tile_avx2<false>)(a, na, b, nb, p.width, out, stride);
#endif
  tile_baseline(a, na, b, nb, p.width, p.l2, out, stride);
}

// exact_block runs tiles of 16 rows by as many columns as stay in the cache.
void exact_block(const knn_plan &p, const float *a, int64_t na, const float *b, int64_t nb, float *out, int64_t stride) {
  const int64_t columns = std::max(4, 65536 / p.width / 4 * 4);
  for (int64_t j = 0; j < nb; j += columns)
    for (int64_t i = 0; i < na; i += 16) {
      const float *rows[16];
      int n = static_cast<int>(std::min<int64_t>(16, na - i));
      for (int u = 0; u < n; u++) rows[u] = a + (i + u) * p.width;
      exact_tile(p, rows, n, b + j * p.width, std::min(columns, nb - j), out + i * stride + j, stride);
    }
}

// ---- the screen: products in bfloat16 with a proven bound ---------------------------------------
//
// x = h + r, h = x rounded to bfloat16, r exact in float32. Then
//   <x,y> - <h,h'> = <h,r'> + <r,y>, at most |h||r'| + |r||y|   (Cauchy-Schwarz),
// and with l = r rounded to bfloat16, |r - l| <= 2^-8 |r|,
//   <x,y> - <h,h'> - <h,l'> - <l,h'> is at most 2^-8 (|x||r'| + |r||y|) + |l||l'| (and smaller terms, covered by the factors below).
// The sums round in float32: every term passes fewer than m roundings of 2^-24,
// m = width + 64 (the small products are summed first, so they add next to nothing),
// and sums to at most |x||y|; the exact score has its own width/16 + 8 roundings.
// Products of bfloat16 numbers are exact in float32 unless they underflow,
// which is below 2^-126 each and far below the rounding term, as rows are
// either of length 1 or (L2) within [2^-30, 2^60].

struct Bound {
  float each, cross, floor; // |screened - exact| <= each (lost_i + lost_j) + cross lost_i lost_j + floor
};

Bound bound(const knn_plan &p, int effort) {
  if (effort == KNN_EXACT) return {0, 0, 0};
  const double n = p.longest, ulp = std::ldexp(1.0, -24);
  double each = 1.02 * n, cross = 0, floor = n * n * ulp * (1.25 * p.width + 192);
  if (effort == KNN_FINE) each = std::ldexp(1.02 * n, -8), cross = 1.02;
  if (p.l2) { // 2<x,y> - |x|² - |y|²: the product twice, and sums and scores of up to 4n²
    each *= 2, cross *= 2;
    floor = 2 * floor + n * n * ulp * (0.5 * p.width + 256);
  }
  auto up = [](double v) { return static_cast<float>(v * 1.0001); };
  return {up(each), up(cross), up(floor)};
}

uint16_t to_bfloat16(float x) { // to nearest, ties to even; x is finite
  uint32_t u;
  memcpy(&u, &x, 4);
  return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float from_bfloat16(uint16_t h) {
  uint32_t u = static_cast<uint32_t>(h) << 16;
  float x;
  memcpy(&x, &u, 4);
  return x;
}

// low_part is x - hi in bfloat16.
void low_part(const float *x, const uint16_t *hi, int64_t n, uint16_t *low) {
  for (int64_t k = 0; k < n; k++) low[k] = to_bfloat16(x[k] - from_bfloat16(hi[k]));
}

#if X86
// Rows of a and columns of packed (16 at a time, pairs of positions side by
// side: [columns/16][width/2][16][2]), 32 by 32; out += when add is set.
struct __attribute__((packed)) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

AMX void accumulate_amx(const uint16_t *a, const uint16_t *b, int width) {
  const uint16_t *a1 = a + 16 * width, *b1 = b + 16 * width;
  for (int k = 0; k < width; k += 32) {
    _tile_loadd(4, a + k, width * 2);
    _tile_loadd(6, b + 16 * k, 64);
    _tile_loadd(5, a1 + k, width * 2);
    _tile_loadd(7, b1 + 16 * k, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

AMX void product_amx(const uint16_t *hi, const uint16_t *low, int64_t rows, const uint16_t *packed, const uint16_t *packed_low, int64_t columns,
                     int width, float *out, int64_t stride) {
  TileConfig config;
  _tile_loadconfig(&config);
  for (int64_t j = 0; j < columns; j += 32)
    for (int64_t i = 0; i < rows; i += 32) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      if (low) {
        accumulate_amx(low + i * width, packed + j * width, width);
        accumulate_amx(hi + i * width, packed_low + j * width, width);
      }
      accumulate_amx(hi + i * width, packed + j * width, width);
      float *o = out + i * stride + j;
      _tile_stored(0, o, stride * 4);
      _tile_stored(1, o + 16, stride * 4);
      _tile_stored(2, o + 16 * stride, stride * 4);
      _tile_stored(3, o + 16 * stride + 16, stride * 4);
    }
  _tile_release();
}

// Eight rows by 32 columns: 16 accumulators.
AVX512BF16 void product_bf16(const uint16_t *hi, int64_t rows, const uint16_t *packed, int64_t columns, int width, float *out, int64_t stride) {
  for (int64_t j = 0; j < columns; j += 32)
    for (int64_t i = 0; i < rows; i += 8) {
      __m512 sum[8][2];
#pragma GCC unroll 8
      for (int u = 0; u < 8; u++) sum[u][0] = sum[u][1] = _mm512_setzero_ps();
      for (int k = 0; k < width / 2; k++) {
        __m512bh y0 = (__m512bh)_mm512_loadu_si512(packed + j * width + 32 * k);
        __m512bh y1 = (__m512bh)_mm512_loadu_si512(packed + (j + 16) * width + 32 * k);
#pragma GCC unroll 8
        for (int u = 0; u < 8; u++) {
          int32_t two;
          memcpy(&two, hi + (i + u) * width + 2 * k, 4);
          __m512bh x = (__m512bh)_mm512_set1_epi32(two);
          sum[u][0] = _mm512_dpbf16_ps(sum[u][0], x, y0);
          sum[u][1] = _mm512_dpbf16_ps(sum[u][1], x, y1);
        }
      }
#pragma GCC unroll 8
      for (int u = 0; u < 8; u++) {
        _mm512_storeu_ps(out + (i + u) * stride + j, sum[u][0]);
        _mm512_storeu_ps(out + (i + u) * stride + j + 16, sum[u][1]);
      }
    }
}

AVX512 inline void transpose16(const float *in, int64_t in_stride, float *out, int64_t out_stride) {
  __m512 r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_ps(in + i * in_stride);
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) { // r[4i+c]: column 4q+c of rows 4i … 4i+3, in quarter q
    __m512d p = _mm512_castps_pd(t[4 * i]), q = _mm512_castps_pd(t[4 * i + 2]);
    __m512d s = _mm512_castps_pd(t[4 * i + 1]), u = _mm512_castps_pd(t[4 * i + 3]);
    r[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, q));
    r[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, q));
    r[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(s, u));
    r[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(s, u));
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++) {
    __m512 a = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88), b = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
    __m512 d = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88), e = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
    _mm512_storeu_ps(out + c * out_stride, _mm512_shuffle_f32x4(a, d, 0x88));
    _mm512_storeu_ps(out + (4 + c) * out_stride, _mm512_shuffle_f32x4(b, e, 0x88));
    _mm512_storeu_ps(out + (8 + c) * out_stride, _mm512_shuffle_f32x4(a, d, 0xdd));
    _mm512_storeu_ps(out + (12 + c) * out_stride, _mm512_shuffle_f32x4(b, e, 0xdd));
  }
}

AVX512 void transpose_avx512(const float *in, int64_t rows, int64_t columns, int64_t in_stride, float *out, int64_t out_stride) {
  for (int64_t i = 0; i < rows; i += 16)
    for (int64_t j = 0; j < columns; j += 16) transpose16(in + i * in_stride + j, in_stride, out + j * out_stride + i, out_stride);
}
#endif

// transpose handles multiples of 16.
void transpose(const knn_plan &p, const float *in, int64_t rows, int64_t columns, int64_t in_stride, float *out, int64_t out_stride) {
#if X86
  if (p.level >= KNN_AVX512) return transpose_avx512(in, rows, columns, in_stride, out, out_stride);
#endif
  for (int64_t i = 0; i < rows; i += 8)
    for (int64_t j = 0; j < columns; j += 8)
      for (int u = 0; u < 8; u++)
        for (int v = 0; v < 8; v++) out[(j + v) * out_stride + i + u] = in[(i + u) * in_stride + j + v];
  (void)p;
}

// ---- counting -----------------------------------------------------------------------------------

// tally counts, of n scores (a multiple of 16), those above high and those not below low.
struct Tally {
  int above, reach;
};

Tally tally_baseline(const float *s, int64_t n, float low, float high) {
  int above = 0, reach = 0;
  for (int64_t i = 0; i < n; i++) {
    above += s[i] > high;
    reach += s[i] >= low;
  }
  return {above, reach};
}

#if X86
AVX2 Tally tally_avx2(const float *s, int64_t n, float low, float high) {
  const __m256 l = _mm256_set1_ps(low), h = _mm256_set1_ps(high);
  __m256i above = _mm256_setzero_si256(), reach = above; // minus the counts
  for (int64_t i = 0; i < n; i += 8) {
    __m256 v = _mm256_loadu_ps(s + i);
    above = _mm256_add_epi32(above, _mm256_castps_si256(_mm256_cmp_ps(v, h, _CMP_GT_OQ)));
    reach = _mm256_add_epi32(reach, _mm256_castps_si256(_mm256_cmp_ps(v, l, _CMP_GE_OQ)));
  }
  __m256i both = _mm256_hadd_epi32(above, reach);
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  sum = _mm_hadd_epi32(sum, sum);
  return {-_mm_extract_epi32(sum, 0), -_mm_extract_epi32(sum, 1)};
}

AVX512 Tally tally_avx512(const float *s, int64_t n, float low, float high) {
  const __m512 l = _mm512_set1_ps(low), h = _mm512_set1_ps(high);
  const __m512i minus = _mm512_set1_epi32(-1);
  __mmask16 any = 0;
  for (int64_t i = 0; i < n; i += 16) any |= _mm512_cmp_ps_mask(_mm512_loadu_ps(s + i), l, _CMP_GE_OQ);
  if (!any) return {0, 0};
  __m512i above = _mm512_setzero_si512(), reach = above;
  for (int64_t i = 0; i < n; i += 16) {
    __m512 v = _mm512_loadu_ps(s + i);
    above = _mm512_mask_sub_epi32(above, _mm512_cmp_ps_mask(v, h, _CMP_GT_OQ), above, minus);
    reach = _mm512_mask_sub_epi32(reach, _mm512_cmp_ps_mask(v, l, _CMP_GE_OQ), reach, minus);
  }
  return {_mm512_reduce_add_epi32(above), _mm512_reduce_add_epi32(reach)};
}
#endif

Tally tally(int level, const float *s, int64_t n, float low, float high) {
#if X86
  if (level >= KNN_AVX512) return tally_avx512(s, n, low, high);
  if (level >= KNN_AVX2) return tally_avx2(s, n, low, high);
#endif
  (void)level;
  return tally_baseline(s, n, low, high);
}

// Up to so many wanted items, each is compared with all scores; beyond, each
// score finds its place among the items by bisection.
constexpr int64_t FEW = 48;

// One query against consecutive rows of the other side.
struct Query {
  const knn_plan &plan;
  const float *x;         // its row
  const float *score;     // of its wanted items, best first
  const int32_t *item;    //
  int32_t *count;         //
  int64_t wanted;         //
  const int64_t *label;   // its own, or null
  const float *rows;      // of the other side
  const int64_t *other;   // their labels
  int64_t first;          // number of the first of them
  bool exact;             // scores are exact already
  float band;             // else how far they may be off
  std::vector<uint8_t> &mark;

  // before tells whether row j, of exact score s, ranks before wanted item p.
  bool before(float s, int64_t j, int64_t p) const {
    if (s != score[p]) return s > score[p];
    if (plan.ties == KNN_BY_INDEX || other[j] == *label) return first + j < item[p];
    return plan.ties == KNN_PESSIMISTIC;
  }
  float settle(const float *s, int64_t j) const { return exact ? s[j] : pair(plan, x, rows + j * plan.width); }

  int64_t run(const float *s, int64_t n) const { return wanted <= FEW ? few(s, n) : many(s, n); }

  // few counts for each wanted item from the last one up, until no score reaches it.
  int64_t few(const float *s, int64_t n) const {
    bool unsure = false;
    for (int64_t p = wanted - 1; p >= 0; p--) {
      const float low = score[p] - band, high = score[p] + band;
      Tally t = tally(plan.level, s, n, low, high);
      if (t.reach == 0) break;
      count[p] += t.above;
      if (t.reach == t.above) continue;
      if (!unsure) std::fill(mark.begin(), mark.begin() + n, 0), unsure = true;
      for (int64_t j = 0; j < n; j++) mark[j] |= (s[j] >= low) & !(s[j] > high);
    }
    return unsure ? settle_marked(s, n) : 0;
  }

  int64_t settle_marked(const float *s, int64_t n) const {
    int64_t settled = 0;
    for (int64_t j = 0; j < n; j++) {
      if (!mark[j]) continue;
      settled++;
      const float e = settle(s, j);
      for (int64_t p = wanted - 1; p >= 0 && s[j] >= score[p] - band; p--)
        if (!(s[j] > score[p] + band)) count[p] += before(e, j, p);
    }
    return settled;
  }

  // many notes each score at the first wanted item that it ranks before;
  // knn_total sums up.
  int64_t many(const float *s, int64_t n) const {
    int64_t settled = 0;
    for (int64_t j = 0; j < n; j++) {
      if (s[j] == NONE) continue;
      int64_t sure = lower([&](int64_t p) { return s[j] > score[p] + band; }, 0, wanted);
      int64_t maybe = lower([&](int64_t p) { return s[j] >= score[p] - band; }, 0, sure);
      if (maybe < sure) {
        const float e = settle(s, j);
        sure = lower([&](int64_t p) { return before(e, j, p); }, maybe, sure);
        settled++;
      }
      if (sure < wanted) count[sure]++;
    }
    return settled;
  }

  // lower is the first p of [from, to) for which f holds; it holds from there on.
  template <class F> static int64_t lower(F f, int64_t from, int64_t to) {
    for (int64_t n = to - from; n > 0;) {
      int64_t half = n / 2;
      bool yes = f(from + half);
      from = yes ? from : from + half + 1;
      n = yes ? half : n - half - 1;
    }
    return from;
  }
};

} // namespace

// ---- tiles --------------------------------------------------------------------------------------

struct knn_worker {
  float *scores, *turned; // [256, 128] and transposed
  uint16_t *low;          // [256, width]
  const float *low_of = nullptr;
  int effort, trial = 0;
  int64_t pairs[KNN_EFFORTS] = {}, unsure = 0;
  std::vector<uint8_t> mark;
};

namespace {

// reach is the largest lost of some rows.
float most_lost(const float *lost, int64_t n) { return lost ? *std::max_element(lost, lost + n) : 0; }

// choose says how to compute the next tile: the effort that has paid off, and
// now and then the next cheaper one to see whether it would.
int choose(knn_worker *w, const knn_plan &p) {
  w->effort = std::max(w->effort, p.first);
  int cheaper = w->effort - 1;
  if (cheaper == KNN_FINE && p.level < KNN_AMX) cheaper = KNN_COARSE;
  if (cheaper >= p.first && --w->trial <= 0) {
    w->trial = 64;
    return cheaper;
  }
  return w->effort;
}

// learn keeps the effort of the last tile if few enough of its pairs had to be
// settled one by one (what one costs beside a tile of the next effort).
void learn(knn_worker *w, const knn_plan &p, int effort, int64_t unsure, int64_t pairs) {
  w->pairs[effort] += pairs;
  if (effort == KNN_EXACT) return;
  w->unsure += unsure;
  const bool fine_next = effort == KNN_COARSE && p.level >= KNN_AMX;
  const double share = fine_next ? 0.02 : 0.1;
  if (static_cast<double>(unsure) <= share * static_cast<double>(pairs)) {
    w->effort = effort;
  } else if (w->effort <= effort) {
    w->effort = fine_next ? KNN_FINE : KNN_EXACT;
    w->trial = 64;
  }
}

// compute fills w->scores [moving rows, columns] by an effort; what lies past
// the last row or column is -inf up to the next multiple of 16.
void compute(knn_worker *w, const knn_plan &p, int effort, const knn_side &moving, const knn_side &fixed, int64_t from, int64_t columns) {
  float *s = w->scores;
  const int64_t rows = moving.rows, stride = KNN_COLUMNS, wide = (columns + 15) / 16 * 16;
  if (effort == KNN_EXACT) {
    exact_block(p, moving.x, rows, fixed.x + from * p.width, columns, s, stride);
  }
#if X86
  const int64_t at = from * p.width;
  if (effort != KNN_EXACT && p.level >= KNN_AMX) {
    if (effort == KNN_FINE && w->low_of != moving.x) {
      low_part(moving.x, moving.hi, (rows + 31) / 32 * 32 * p.width, w->low);
      w->low_of = moving.x;
    }
    product_amx(moving.hi, effort == KNN_FINE ? w->low : nullptr, rows, fixed.packed + at, fixed.packed_low + at, columns, p.width, s, stride);
  } else if (effort != KNN_EXACT) {
    product_bf16(moving.hi, rows, fixed.packed + at, columns, p.width, s, stride);
  }
#endif
  if (p.l2 && effort != KNN_EXACT)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) s[i * stride + j] = 2 * s[i * stride + j] - moving.square[i] - fixed.square[from + j];
  for (int64_t i = 0; i < rows; i++) std::fill(s + i * stride + columns, s + i * stride + wide, NONE);
  for (int64_t i = rows; i < (rows + 15) / 16 * 16; i++) std::fill(s + i * stride, s + i * stride + wide, NONE);
}

// A query's list of wanted items, out of a side's.
Query query(const knn_plan &p, const knn_side &own, int64_t i, const knn_side &other, int64_t from, const knn_wanted &w, float band, bool exact,
            std::vector<uint8_t> &mark) {
  const int64_t at = w.start[i] - w.start[0];
  return {p,
          own.x + i * p.width,
          w.score + at,
          w.item + at,
          w.count + at,
          w.start[i + 1] - w.start[i],
          w.label ? w.label + i : nullptr,
          other.x + from * p.width,
          w.other ? w.other + from : nullptr,
          other.first + from,
          exact,
          band,
          mark};
}

// ---- searching ----------------------------------------------------------------------------------

bool better(const knn_found &a, const knn_found &b) { return a.score != b.score ? a.score > b.score : a.item < b.item; }

// One query that collects its best items.
struct Collector {
  const knn_plan &plan;
  const knn_best &best;
  const float *x;    // its row
  const float *rows; // of the gallery, from item first on
  int64_t first, own;
  knn_found *found;
  int32_t &filled;
  knn_found &worst;

  // run offers n scores (a multiple of 16), off by at most band; it returns how many were settled.
  int64_t run(const float *s, int64_t n, float band, bool exact) {
    int64_t settled = 0;
    if (tally(plan.level, s, n, worst.score - band, worst.score).reach == 0) return 0;
    for (int64_t g = 0; g < n; g += LANES) {
      if (tally(plan.level, s + g, LANES, worst.score - band, worst.score).reach == 0) continue;
      for (int64_t j = g; j < g + LANES; j++) {
        if (s[j] == NONE || s[j] < worst.score - band) continue;
        settled++;
        offer({exact ? s[j] : pair(plan, x, rows + j * plan.width), static_cast<int32_t>(first + j)});
      }
    }
    return exact ? 0 : settled;
  }

  void offer(const knn_found &f) {
    if (f.item == own || !better(f, worst)) return;
    found[filled++] = f;
    if (filled == best.room || (filled == best.k && worst.score == NONE)) shrink();
  }

  void shrink() {
    std::nth_element(found, found + best.k - 1, found + filled, better);
    filled = best.k;
    worst = found[best.k - 1];
  }
};

float band(const Bound &b, float lost, float most) { return b.each * (lost + most) + b.cross * lost * most + b.floor; }

} // namespace

extern "C" {

int knn_processor(void) {
#if X86
  static const int level = [] {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return static_cast<int>(KNN_BASELINE);
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq"))
      return static_cast<int>(KNN_AVX2);
    unsigned a = 0, b = 0, c = 0, d = 0, a1 = 0;
    __get_cpuid_count(7, 1, &a1, &b, &c, &d);
    if (!(a1 >> 5 & 1)) return static_cast<int>(KNN_AVX512);
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    const long request = 0x1023, tile_data = 18; // ARCH_REQ_XCOMP_PERM: the kernel makes room for the tiles
    if ((d >> 22 & 1) && (d >> 24 & 1) && syscall(SYS_arch_prctl, request, tile_data) == 0) return static_cast<int>(KNN_AMX);
    return static_cast<int>(KNN_BF16);
  }();
  return level;
#else
  return KNN_BASELINE;
#endif
}

void *knn_allocate(int64_t bytes) { return aligned_alloc(64, static_cast<size_t>((bytes + 64) / 64 * 64)); }

int64_t knn_prepare(const knn_plan *p, const float *rows, int64_t n, int dim, float *x, uint16_t *hi, float *lost, float *square, float *longest,
                    int *why) {
  for (int64_t i = 0; i < n; i++) {
    const float *in = rows + i * dim;
    float *out = x + i * p->width;
    double lane[8] = {}; // products of floats are exact in double: the sum is the same with and without fused operations
    int k = 0;
    for (; k + 8 <= dim; k += 8)
      for (int l = 0; l < 8; l++) lane[l] += static_cast<double>(in[k + l]) * in[k + l];
    for (int l = 0; k < dim; k++, l++) lane[l] += static_cast<double>(in[k]) * in[k];
    const double sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    double length = std::sqrt(sum);
    if (!std::isfinite(sum)) return *why = KNN_NOT_FINITE, i;
    if (!p->l2 && sum == 0) return *why = KNN_ZERO_ROW, i;
    if (p->l2 && length > std::ldexp(1.0, 60)) return *why = KNN_TOO_LONG, i;
    if (p->l2) {
      memcpy(out, in, dim * sizeof(float));
    } else {
      const double scale = 1 / length;
      for (k = 0; k < dim; k++) out[k] = static_cast<float>(in[k] * scale);
      length = 1.000001;
    }
    std::fill(out + dim, out + p->width, 0.0f);
    *longest = std::max(*longest, static_cast<float>(length * 1.000001));
    if (square) square[i] = static_cast<float>(sum);
    if (!hi) continue;
    double off = 0;
    for (k = 0; k < p->width; k++) {
      const uint16_t h = to_bfloat16(out[k]);
      hi[i * p->width + k] = h;
      const double r = static_cast<double>(out[k]) - from_bfloat16(h);
      off += r * r;
    }
    lost[i] = static_cast<float>(std::sqrt(off) * 1.00001);
  }
  return *why = KNN_FINE_ROW, -1;
}

void knn_pack(const knn_plan *p, const float *x, const uint16_t *hi, int64_t rows, uint16_t *packed, uint16_t *packed_low) {
  const int width = p->width;
  std::vector<uint16_t> low(width);
  for (int64_t r = 0; r < (rows + 31) / 32 * 32; r++) {
    uint16_t *to = packed + r / 16 * 16 * width + r % 16 * 2, *to_low = packed_low + r / 16 * 16 * width + r % 16 * 2;
    const bool real = r < rows;
    if (real) low_part(x + r * width, hi + r * width, width, low.data());
    for (int k = 0; k < width; k += 2)
      for (int u = 0; u < 2; u++) {
        to[16 * k + u] = real ? hi[r * width + k + u] : 0;
        to_low[16 * k + u] = real ? low[k + u] : 0;
      }
  }
}

void knn_exact(const knn_plan *p, const float *a, int64_t na, const float *b, int64_t nb, float *scores) {
  exact_block(*p, a, na, b, nb, scores, nb);
}

float knn_pair(const knn_plan *p, const float *a, const float *b) { return pair(*p, a, b); }

knn_worker *knn_worker_new(const knn_plan *p) {
  knn_worker *w = new (std::nothrow) knn_worker;
  if (!w) return nullptr;
  w->scores = static_cast<float *>(knn_allocate(sizeof(float) * KNN_MOVING_ROWS * KNN_COLUMNS));
  w->turned = static_cast<float *>(knn_allocate(sizeof(float) * KNN_MOVING_ROWS * KNN_COLUMNS));
  w->low = static_cast<uint16_t *>(knn_allocate(sizeof(uint16_t) * KNN_MOVING_ROWS * p->width));
  if (!w->scores || !w->turned || !w->low) {
    knn_worker_free(w);
    return nullptr;
  }
  w->effort = p->first;
  w->mark.resize(KNN_MOVING_ROWS);
  return w;
}

void knn_worker_free(knn_worker *w) {
  if (!w) return;
  free(w->scores);
  free(w->turned);
  free(w->low);
  delete w;
}

void knn_worker_pairs(const knn_worker *w, int64_t pairs[KNN_EFFORTS], int64_t *unsure) {
  for (int e = 0; e < KNN_EFFORTS; e++) pairs[e] += w->pairs[e];
  *unsure += w->unsure;
}

void knn_count(knn_worker *w, const knn_plan *p, const knn_side *moving, const knn_side *fixed, int64_t from, int64_t to, const knn_wanted *by_moving,
               const knn_wanted *by_fixed, int levels) {
  w->low_of = nullptr;
  for (int64_t f = from; f < to; f += KNN_COLUMNS) {
    const int64_t columns = std::min<int64_t>(KNN_COLUMNS, to - f), rows = moving->rows;
    const int effort = choose(w, *p);
    const bool exact = effort == KNN_EXACT;
    const Bound b = bound(*p, effort);
    int64_t unsure = 0;
    compute(w, *p, effort, *moving, *fixed, f, columns);
    if (by_moving) {
      const float most = exact ? 0 : most_lost(fixed->lost + f, columns);
      for (int64_t i = 0; i < rows; i++)
        for (int v = 0; v < levels; v++) {
          const float off = exact ? 0 : band(b, moving->lost[i], most);
          unsure += query(*p, *moving, i, *fixed, f, by_moving[v], off, exact, w->mark).run(w->scores + i * KNN_COLUMNS, (columns + 15) / 16 * 16);
        }
    }
    if (by_fixed) {
      const float most = exact ? 0 : most_lost(moving->lost, rows);
      const int64_t high = (rows + 15) / 16 * 16;
      transpose(*p, w->scores, high, (columns + 15) / 16 * 16, KNN_COLUMNS, w->turned, KNN_MOVING_ROWS);
      for (int64_t j = 0; j < columns; j++)
        for (int v = 0; v < levels; v++) {
          const float off = exact ? 0 : band(b, fixed->lost[f + j], most);
          unsure += query(*p, *fixed, f + j, *moving, 0, by_fixed[v], off, exact, w->mark).run(w->turned + j * KNN_MOVING_ROWS, high);
        }
    }
    learn(w, *p, effort, unsure, rows * columns);
  }
}

void knn_search(knn_worker *w, const knn_plan *p, const knn_side *moving, const knn_side *fixed, const knn_best *best) {
  w->low_of = nullptr;
  for (int64_t f = 0; f < fixed->rows; f += KNN_COLUMNS) {
    const int64_t columns = std::min<int64_t>(KNN_COLUMNS, fixed->rows - f);
    const int effort = choose(w, *p);
    const bool exact = effort == KNN_EXACT;
    const Bound b = bound(*p, effort);
    const float most = exact ? 0 : most_lost(fixed->lost + f, columns);
    int64_t unsure = 0;
    compute(w, *p, effort, *moving, *fixed, f, columns);
    for (int64_t i = 0; i < moving->rows; i++) {
      Collector c = {*p,
                     *best,
                     moving->x + i * p->width,
                     fixed->x + f * p->width,
                     fixed->first + f,
                     best->skip_own ? moving->first + i : -1,
                     best->found + i * best->room,
                     best->filled[i],
                     best->worst[i]};
      unsure += c.run(w->scores + i * KNN_COLUMNS, (columns + 15) / 16 * 16, exact ? 0 : band(b, moving->lost[i], most), exact);
    }
    learn(w, *p, effort, unsure, moving->rows * columns);
  }
}

void knn_sort(const knn_best *best, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    knn_found *f = best->found + i * best->room;
    const int32_t n = std::min(best->k, best->filled[i]);
    if (n < best->filled[i]) std::nth_element(f, f + n, f + best->filled[i], better);
    std::sort(f, f + n, better);
  }
}

void knn_total(int32_t *count, const int64_t *start, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    int32_t *c = count + (start[i] - start[0]);
    const int64_t n = start[i + 1] - start[i];
    if (n > FEW)
      for (int64_t p = 1; p < n; p++) c[p] += c[p - 1];
  }
}

} // extern "C"
