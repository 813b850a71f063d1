#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

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
#define AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-int8,fma")))

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

// pairs computes the scores of n pairs of rows.
void pairs(const knn_plan &p, const float *const *a, const float *const *b, int n, float *scores) {
  int i = 0;
#if X86
  if (p.level >= KNN_AVX512)
    for (; i + 4 <= n; i += 4) (p.l2 ? four_avx512<true> : four_avx512<false>)(a + i, b + i, p.width, scores + i);
#endif
  for (; i < n; i++) scores[i] = pair(p, a[i], b[i]);
}

void prefetch(const float *row, int width) {
  for (int k = 0; k < width; k += 16) __builtin_prefetch(row + k);
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

// ---- the screen: products in integers with a proven bound ------------------------------------------
//
// x = X + r with X = s (256 a + b), a and b whole numbers of 8 bits, |r| <= s/2 per element.
// Screened is s s' (65536 <a,a'> + 256 <a,b'> + 256 <b,a'>), whose sums are exact. Then
//   <x,x'> - screened = <X,r'> + <r,x'> + s s' <b,b'>
// is at most |X||r'| + |r||x'| + |s b||s' b'| (Cauchy-Schwarz), |X| <= |x| + |r|.
// What is left is rounding: a few of 2^-24 here, width/16 + 5 of them in the exact
// score, each of at most |x||x'|.

struct Bound {
  float each, cross, floor; // |screened - exact| <= each (lost + lost') + cross low low' + floor
};

Bound bound(const knn_plan &p) {
  const double n = p.longest, ulp = std::ldexp(1.0, -24);
  double each = 1.01 * n, cross = 1.01, floor = n * n * ulp * (p.width / 16 + 64);
  if (p.l2) { // 2 <x,x'> - |x|² - |x'|², terms and score of up to 4 n²
    each *= 2, cross *= 2;
    floor = 2 * floor + n * n * ulp * (p.width / 4 + 128);
  }
  auto up = [](double v) { return static_cast<float>(v * 1.0001); };
  return {up(each), up(cross), up(floor)};
}

// The largest errors of some rows.
struct Most {
  float lost, low;
};

Most most(const knn_row *row, int64_t n) {
  Most m = {0, 0};
  for (int64_t i = 0; i < n; i++) m = {std::max(m.lost, row[i].lost), std::max(m.low, row[i].low)};
  return m;
}

float band(const Bound &b, const knn_row &row, const Most &m) { return b.each * (row.lost + m.lost) + b.cross * row.low * m.low + b.floor; }

constexpr int CHUNK = 64, TOP = 127 * 256; // positions side by side; the largest 256 a

#if X86
// quantize fills in q [width/64, 2, 64] and row but its square.
AVX512 inline void quantize(const float *x, int width, int8_t *q, knn_row *row) {
  float largest = 0;
  for (int k = 0; k < width; k += LANES)
    for (int l = 0; l < LANES; l++) largest = std::max(largest, std::fabs(x[k + l]));
  const float scale = largest / TOP;
  const float inverse = scale > 0 ? 1 / scale : 0;
  double lost = 0, low = 0;
  for (int k = 0; k < width; k += CHUNK, q += 2 * CHUNK) {
    float rest[CHUNK], small[CHUNK];
    for (int l = 0; l < CHUNK; l++) {
      int whole = static_cast<int>(std::nearbyint(x[k + l] * inverse));
      whole = std::min(std::max(whole, -TOP), TOP);
      const int a = (whole + 128) >> 8, b = whole - 256 * a;
      q[l] = static_cast<int8_t>(a);
      q[CHUNK + l] = static_cast<int8_t>(b);
      small[l] = static_cast<float>(b);
      rest[l] = static_cast<float>(static_cast<double>(x[k + l]) - static_cast<double>(scale) * whole);
    }
    for (int l = 0; l < CHUNK; l++) {
      lost += static_cast<double>(rest[l]) * rest[l];
      low += static_cast<double>(small[l]) * small[l];
    }
  }
  row->scale = scale;
  row->lost = static_cast<float>(std::sqrt(lost) * 1.00001);
  row->low = static_cast<float>(scale * std::sqrt(low) * 1.00001);
}

struct __attribute__((packed)) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

AVX512 inline void transpose16(__m512 *r) {
  __m512 t[16];
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
    t[c] = _mm512_shuffle_f32x4(a, d, 0x88);
    t[4 + c] = _mm512_shuffle_f32x4(b, e, 0x88);
    t[8 + c] = _mm512_shuffle_f32x4(a, d, 0xdd);
    t[12 + c] = _mm512_shuffle_f32x4(b, e, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) r[i] = t[i];
}

AVX512 void transpose_avx512(const float *in, int64_t rows, int64_t columns, int64_t in_stride, float *out, int64_t out_stride) {
  for (int64_t i = 0; i < rows; i += 16)
    for (int64_t j = 0; j < columns; j += 16) {
      __m512 r[16];
#pragma GCC unroll 16
      for (int u = 0; u < 16; u++) r[u] = _mm512_loadu_ps(in + (i + u) * in_stride + j);
      transpose16(r);
#pragma GCC unroll 16
      for (int u = 0; u < 16; u++) _mm512_storeu_ps(out + (j + u) * out_stride + i, r[u]);
    }
}

// product_amx fills out [rows, columns] with screened scores and turned with
// their transpose (unless null); both are -inf past the last row or column, up
// to the next multiples of 16 and 32.
AMX void product_amx(const knn_plan &p, const knn_side &moving, const knn_side &fixed, int64_t from, int64_t columns, float *out, int64_t stride,
                     float *turned, int64_t turned_stride) {
  TileConfig config;
  _tile_loadconfig(&config);
  alignas(64) int32_t high[2][16][16], cross[2][16][16];
  const int64_t rows = moving.rows, bytes = 2 * p.width; // of a row
  const __m512 none = _mm512_set1_ps(NONE);
  for (int64_t j = 0; j < columns; j += 32) {
    alignas(64) float scale[32] = {}, square[32] = {};
    for (int64_t c = 0; c < std::min<int64_t>(32, columns - j); c++) {
      scale[c] = fixed.row[from + j + c].scale;
      square[c] = fixed.row[from + j + c].square;
    }
    for (int64_t i = 0; i < rows; i += 16) {
      const int8_t *a = moving.q + i * bytes, *b = fixed.packed + (from + j) * bytes, *b1 = b + 16 * bytes;
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int k = 0; k < p.width; k += CHUNK, a += 128, b += 2048, b1 += 2048) {
        _tile_loadd(4, a, bytes);
        _tile_loadd(6, b, 64);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(5, a + 64, bytes);
        _tile_dpbssd(1, 5, 6);
        _tile_loadd(7, b + 1024, 64);
        _tile_dpbssd(1, 4, 7);
        _tile_loadd(6, b1, 64);
        _tile_dpbssd(2, 4, 6);
        _tile_loadd(7, b1 + 1024, 64);
        _tile_dpbssd(3, 5, 6);
        _tile_dpbssd(3, 4, 7);
      }
      _tile_stored(0, high[0], 64);
      _tile_stored(1, cross[0], 64);
      _tile_stored(2, high[1], 64);
      _tile_stored(3, cross[1], 64);
      for (int half = 0; half < 2; half++) {
        const __mmask16 real = static_cast<__mmask16>((1u << std::clamp<int64_t>(columns - j - 16 * half, 0, 16)) - 1);
        const __m512 s = _mm512_load_ps(scale + 16 * half), n = _mm512_load_ps(square + 16 * half);
        __m512 r[16];
#pragma GCC unroll 16
        for (int u = 0; u < 16; u++) {
          const __m512 f = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(high[half][u])), _mm512_set1_ps(256),
                                           _mm512_cvtepi32_ps(_mm512_load_si512(cross[half][u])));
          r[u] = none;
          if (i + u < rows) {
            const knn_row &row = moving.row[i + u];
            __m512 v = _mm512_mul_ps(_mm512_mul_ps(f, s), _mm512_set1_ps(row.scale * (p.l2 ? 512 : 256)));
            if (p.l2) v = _mm512_sub_ps(_mm512_sub_ps(v, _mm512_set1_ps(row.square)), n);
            r[u] = _mm512_mask_mov_ps(none, real, v);
          }
          _mm512_storeu_ps(out + (i + u) * stride + j + 16 * half, r[u]);
        }
        if (!turned) continue;
        transpose16(r);
#pragma GCC unroll 16
        for (int u = 0; u < 16; u++) _mm512_storeu_ps(turned + (j + 16 * half + u) * turned_stride + i, r[u]);
      }
    }
  }
  _tile_release();
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

// between lists those of n scores (a multiple of 16, at most 256) in [low, high].
int between_baseline(const float *s, int64_t n, float low, float high, uint8_t *list) {
  int found = 0;
  for (int64_t j = 0; j < n; j++) {
    list[found] = static_cast<uint8_t>(j);
    found += s[j] >= low && !(s[j] > high);
  }
  return found;
}

#if X86
AVX512 int between_avx512(const float *s, int64_t n, float low, float high, uint8_t *list) {
  const __m512 l = _mm512_set1_ps(low), h = _mm512_set1_ps(high);
  int found = 0;
  for (int64_t j = 0; j < n; j += 16) {
    const __m512 v = _mm512_loadu_ps(s + j);
    for (unsigned m = _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(v, l, _CMP_GE_OQ), v, h, _CMP_LE_OQ); m; m &= m - 1)
      list[found++] = static_cast<uint8_t>(j + __builtin_ctz(m));
  }
  return found;
}
#endif

int between(int level, const float *s, int64_t n, float low, float high, uint8_t *list) {
#if X86
  if (level >= KNN_AVX512) return between_avx512(s, n, low, high, list);
#endif
  (void)level;
  return between_baseline(s, n, low, high, list);
}

#if X86
constexpr int TAIL = 31;

// A bisection of TAIL descending numbers in two registers.
struct Bisection {
  __m512 low, high;

  // reach counts, in each lane, the numbers that are not below its value.
  AVX512 __m512i reach(__m512 value) const {
    __m512i n = _mm512_setzero_si512();
#pragma GCC unroll 5
    for (int step = 16; step > 0; step /= 2) {
      const __m512 x = _mm512_permutex2var_ps(low, _mm512_add_epi32(n, _mm512_set1_epi32(step - 1)), high);
      n = _mm512_mask_add_epi32(n, _mm512_cmp_ps_mask(x, value, _CMP_GE_OQ), n, _mm512_set1_epi32(step));
    }
    return n;
  }

  // last is the n-th number; infinity where n is 0.
  AVX512 __m512 last(__m512i n) const {
    const __m512 x = _mm512_permutex2var_ps(low, _mm512_sub_epi32(n, _mm512_set1_epi32(1)), high);
    return _mm512_mask_mov_ps(_mm512_set1_ps(-NONE), _mm512_test_epi32_mask(n, n), x);
  }
};

// Placer finds, for each of n scores, the first of some descending numbers that
// is below score - band, and raises its count. Where the number before that one
// is within the band, the score is left open: it is listed with its place.
struct Placer {
  int found; // open scores: their positions, and places
  uint8_t open[KNN_COLUMNS];
  int32_t place[KNN_COLUMNS];

  AVX512 void note(__mmask16 unsure, const int32_t *column, __m512i p) {
    alignas(64) int32_t at[16];
    _mm512_store_si512(at, p);
    for (unsigned m = unsure; m; m &= m - 1) {
      open[found] = static_cast<uint8_t>(column[__builtin_ctz(m)]);
      place[found++] = at[__builtin_ctz(m)];
    }
  }

  // run takes n scores, a multiple of 16 and at most KNN_COLUMNS. Most of them
  // are below most numbers, so the last numbers are bisected first; only what is
  // above all of those is compared with the others.
  AVX512 void run(const float *number, int64_t numbers, const float *s, int64_t n, float band, int32_t *count) {
    found = 0;
    const __m512 off = _mm512_set1_ps(band), lowest = _mm512_set1_ps(number[numbers - 1]);
    alignas(64) float high[KNN_COLUMNS + 16];
    alignas(64) int32_t on[KNN_COLUMNS + 16], at[16];
    int some = 0;
    __m512i here = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int64_t j = 0; j < n; j += 16, here = _mm512_add_epi32(here, _mm512_set1_epi32(16))) {
      const __m512 v = _mm512_loadu_ps(s + j);
      const __mmask16 m = _mm512_cmp_ps_mask(_mm512_add_ps(v, off), lowest, _CMP_GE_OQ);
      _mm512_storeu_ps(high + some, _mm512_maskz_compress_ps(m, v));
      _mm512_storeu_si512(on + some, _mm512_maskz_compress_epi32(m, here));
      some += __builtin_popcount(m);
    }
    if (some == 0) return;

    const int64_t tail = std::min<int64_t>(TAIL, numbers), front = numbers - tail;
    alignas(64) float pivot[TAIL + 1];
    std::fill(std::copy(number + front, number + numbers, pivot), pivot + TAIL + 1, NONE);
    const Bisection end = {_mm512_load_ps(pivot), _mm512_load_ps(pivot + 16)};
    alignas(64) int32_t bin[4][TAIL + 1] = {}; // four, so that an addition need not wait for the one before
    int higher = 0;
    for (int i = 0; i < some; i += 16) {
      const __mmask16 real = static_cast<__mmask16>((1u << std::min(16, some - i)) - 1);
      const __m512 v = _mm512_load_ps(high + i), most = _mm512_add_ps(v, off);
      const __m512i column = _mm512_load_si512(on + i);
      const __m512i p = end.reach(_mm512_sub_ps(v, off));
      const __mmask16 unsure = _mm512_mask_cmp_ps_mask(real, end.last(p), most, _CMP_LE_OQ);
      const __mmask16 up = front > 0 ? _mm512_mask_testn_epi32_mask(real, p, p) : static_cast<__mmask16>(0);
      _mm512_store_si512(at, _mm512_mask_mov_epi32(_mm512_set1_epi32(TAIL), static_cast<__mmask16>(real & ~unsure & ~up), p));
#pragma GCC unroll 16
      for (int k = 0; k < 16; k++) bin[k % 4][at[k]]++;
      if (unsure) note(unsure, on + i, _mm512_add_epi32(p, _mm512_set1_epi32(static_cast<int>(front))));
      _mm512_storeu_ps(high + higher, _mm512_maskz_compress_ps(up, v));
      _mm512_storeu_si512(on + higher, _mm512_maskz_compress_epi32(up, column));
      higher += __builtin_popcount(up);
    }
    for (int64_t p = 0; p < tail; p++) count[front + p] += bin[0][p] + bin[1][p] + bin[2][p] + bin[3][p];
    if (higher > 0) upper(number, front, high, on, higher, band, count);
  }

  // upper takes scores above all but the first front numbers, which it bisects
  // in strides and then one by one.
  AVX512 void upper(const float *number, int64_t front, const float *s, const int32_t *column, int n, float band, int32_t *count) {
    const int64_t stride = front / (TAIL + 1) + 1;
    alignas(64) float pivot[TAIL + 1];
    for (int64_t i = 0; i <= TAIL; i++) pivot[i] = (i + 1) * stride <= front ? number[(i + 1) * stride - 1] : NONE;
    const Bisection strides = {_mm512_load_ps(pivot), _mm512_load_ps(pivot + 16)};
    const __m512 off = _mm512_set1_ps(band);
    const __m512i end = _mm512_set1_epi32(static_cast<int>(front));
    alignas(64) int32_t at[16];
    for (int i = 0; i < n; i += 16) {
      const __mmask16 real = static_cast<__mmask16>((1u << std::min(16, n - i)) - 1);
      const __m512 v = _mm512_loadu_ps(s + i), least = _mm512_sub_ps(v, off);
      const __m512i leaf = strides.reach(least);
      __m512 before = strides.last(leaf);
      __m512i p = _mm512_mullo_epi32(leaf, _mm512_set1_epi32(static_cast<int>(stride)));
      for (int64_t rest = stride - 1; rest > 0;) {
        const int64_t half = (rest + 1) / 2;
        const __m512i next = _mm512_min_epi32(_mm512_add_epi32(p, _mm512_set1_epi32(static_cast<int>(half - 1))), end);
        const __m512 x = _mm512_mask_i32gather_ps(before, real, next, number, 4);
        const __mmask16 reached = _mm512_mask_cmp_ps_mask(real, x, least, _CMP_GE_OQ);
        before = _mm512_mask_mov_ps(before, reached, x);
        p = _mm512_mask_add_epi32(p, reached, p, _mm512_set1_epi32(static_cast<int>(half)));
        rest -= half;
      }
      const __mmask16 unsure = _mm512_mask_cmp_ps_mask(real, before, _mm512_add_ps(v, off), _CMP_LE_OQ);
      if (unsure) note(unsure, column + i, p);
      const __mmask16 sure = static_cast<__mmask16>(real & ~unsure);
      _mm512_store_si512(at, _mm512_maskz_compress_epi32(sure, p));
      for (int k = 0; k < __builtin_popcount(sure); k++) count[at[k]]++;
    }
  }
};
#endif

// Unsure is a comparison that the screen leaves open.
struct Unsure {
  int32_t query, wanted; // row of its side; which of its wanted items
  uint8_t level, row;    // of wanted items; of the other side
};

constexpr int UNSURE = 4096; // held before they are settled

// Up to so many wanted items, each is compared with all scores; beyond, each
// score finds its place among the items by bisection.
constexpr int64_t FEW = 32;

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

  // before tells whether row j, of exact score s, ranks before wanted item p.
  bool before(float s, int64_t j, int64_t p) const {
    if (s != score[p]) return s > score[p];
    if (plan.ties == KNN_BY_INDEX || other[j] == *label) return first + j < item[p];
    return plan.ties == KNN_PESSIMISTIC;
  }
  const float *row(int64_t j) const { return rows + j * plan.width; }
  float settle(const float *s, int64_t j) const { return exact ? s[j] : pair(plan, x, row(j)); }

  // settle gives the exact scores of up to four rows.
  void settle(const float *s, const uint8_t *list, int n, float *scores) const {
    const float *a[4] = {x, x, x, x}, *b[4];
    for (int i = 0; i < n; i++) b[i] = row(list[i]), scores[i] = s[list[i]];
    if (!exact) pairs(plan, a, b, n, scores);
  }

  // run counts n scores, a multiple of 16. What stays open is noted, or
  // settled at once; it returns how many comparisons that was.
  int64_t run(const float *s, int64_t n, Unsure *open, int &opened, int32_t row, uint8_t level) const {
    return wanted <= FEW ? few(s, n, open, opened, row, level) : many(s, n);
  }

  // few counts for each wanted item from the last one up, until no score reaches it.
  int64_t few(const float *s, int64_t n, Unsure *open, int &opened, int32_t row, uint8_t level) const {
    int64_t settled = 0;
    for (int64_t p = wanted - 1; p >= 0; p--) {
      const float low = score[p] - band, high = score[p] + band;
      const Tally t = tally(plan.level, s, n, low, high);
      if (t.reach == 0) break;
      count[p] += t.above;
      if (t.reach == t.above) continue;
      uint8_t list[KNN_COLUMNS];
      const int found = between(plan.level, s, n, low, high, list);
      for (int i = 0; i < found; i++) {
        if (exact)
          count[p] += before(s[list[i]], list[i], p);
        else if (opened < UNSURE)
          open[opened++] = {row, static_cast<int32_t>(p), level, list[i]};
        else
          count[p] += before(settle(s, list[i]), list[i], p);
      }
      settled += found;
    }
    return exact ? 0 : settled;
  }

  // many notes each score at the first wanted item that it ranks before;
  // knn_total sums up.
  int64_t many(const float *s, int64_t n) const {
    int64_t settled = 0;
#if X86
    if (plan.level >= KNN_AVX512) {
      Placer placer;
      placer.run(score, wanted, s, n, band, count);
      for (int i = 0; i < placer.found; i += 4) {
        const int few = std::min(4, placer.found - i);
        const uint8_t *open = placer.open + i;
        float score4[4];
        settle(s, open, few, score4);
        for (int k = 0; k < few; k++) {
          const int64_t p = decide(score4[k], s[open[k]], open[k], placer.place[i + k]);
          if (p < wanted) count[p]++;
        }
      }
      return exact ? 0 : placer.found;
    }
#endif
    for (int64_t j = 0; j < n; j++) {
      if (s[j] == NONE) continue;
      int64_t sure = lower([&](int64_t p) { return score[p] < s[j] - band; }, 0, wanted);
      if (sure > 0 && score[sure - 1] <= s[j] + band) {
        sure = decide(settle(s, j), s[j], j, sure);
        settled++;
      }
      if (sure < wanted) count[sure]++;
    }
    return exact ? 0 : settled;
  }

  // decide is the first wanted item that row j, of exact score e, ranks before,
  // where the screened score s has it before item sure and leaves some before
  // that open.
  int64_t decide(float e, float s, int64_t j, int64_t sure) const {
    const float reach = s + band;
    const int64_t maybe = lower([&](int64_t p) { return score[p] <= reach; }, 0, sure);
    return lower([&](int64_t p) { return before(e, j, p); }, maybe, sure);
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
  float *scores, *turned; // [256, 256] and transposed
  bool screen;            // the last tiles were worth screening
  int until_trial = 0;    // tiles until screening is tried again
  Unsure open[UNSURE];
  knn_pairs pairs = {};
};

namespace {

constexpr int TRIAL = 8; // tiles until screening is tried again
constexpr double WORTHWHILE = 0.4; // the share of comparisons settled one by one that costs as much as a tile in float32

// choose tells whether to screen the next tile. Below 2^-30 the bound's terms come near underflow.
bool choose(knn_worker *w, const knn_plan &p) {
  if (!p.screen || p.longest < std::ldexp(1.0f, -30)) return false;
  return w->screen || --w->until_trial <= 0;
}

void learn(knn_worker *w, bool screened, int64_t settled, int64_t pairs) {
  (screened ? w->pairs.screened : w->pairs.exact) += pairs;
  if (!screened) return;
  w->pairs.settled += settled;
  w->screen = static_cast<double>(settled) <= WORTHWHILE * static_cast<double>(pairs);
  w->until_trial = TRIAL;
}

int64_t up16(int64_t n) { return (n + 15) / 16 * 16; }

// compute fills w->scores [moving rows, columns], and w->turned with the
// transpose if wanted; what lies past the last row or column is -inf up to the
// next multiple of 16.
void compute(knn_worker *w, const knn_plan &p, bool screen, const knn_side &moving, const knn_side &fixed, int64_t from, int64_t columns,
             bool turn) {
  float *s = w->scores;
  const int64_t rows = moving.rows, stride = KNN_COLUMNS;
#if X86
  if (screen) return product_amx(p, moving, fixed, from, columns, s, stride, turn ? w->turned : nullptr, KNN_MOVING_ROWS);
#endif
  exact_block(p, moving.x, rows, fixed.x + from * p.width, columns, s, stride);
  for (int64_t i = 0; i < rows; i++) std::fill(s + i * stride + columns, s + i * stride + up16(columns), NONE);
  for (int64_t i = rows; i < up16(rows); i++) std::fill(s + i * stride, s + i * stride + up16(columns), NONE);
  if (turn) transpose(p, s, up16(rows), up16(columns), stride, w->turned, KNN_MOVING_ROWS);
  (void)screen;
}

// A query's list of wanted items, out of a side's.
Query query(const knn_plan &p, const knn_side &own, int64_t i, const knn_side &other, int64_t from, const knn_wanted &w, float band, bool exact) {
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
          band};
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
    const float low = worst.score - band;
    if (tally(plan.level, s, n, low, low).reach == 0) return 0;
    uint8_t list[KNN_COLUMNS];
    const int found = between(plan.level, s, n, low, -NONE, list);
    int settled = 0;
    for (int i = 0; i < found; i++) {
      const int j = list[i];
      if (s[j] == NONE || s[j] < worst.score - band) continue; // past the last row, or the worst has risen
      if (exact) {
        offer({s[j], static_cast<int32_t>(first + j)});
        continue;
      }
      if (i + 2 < found)
        prefetch(rows + list[i + 2] * plan.width, plan.width);
      settled++;
      offer({pair(plan, x, rows + j * plan.width), static_cast<int32_t>(first + j)});
    }
    return settled;
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

// collector is that of row i of moving, for the rows of fixed from f on.
Collector collector(const knn_plan &p, const knn_side &moving, int64_t i, const knn_side &fixed, int64_t f, const knn_best &best) {
  return {p,
          best,
          moving.x + i * p.width,
          fixed.x + f * p.width,
          fixed.first + f,
          best.skip_own ? moving.first + i : -1,
          best.found + i * best.room,
          best.filled[i],
          best.worst[i]};
}

// settle decides what the screen has left open of a tile, the queries of own
// with rows from … of other.
void settle(const knn_plan &p, const Unsure *open, int opened, const knn_side &own, const knn_side &other, int64_t from, const knn_wanted *wanted) {
  constexpr int GROUP = 4;
  auto query_row = [&](int i) { return own.x + open[i].query * p.width; };
  auto other_row = [&](int i) { return other.x + (from + open[i].row) * p.width; };
  for (int i = 0; i < opened; i += GROUP) {
    const float *a[GROUP], *b[GROUP];
    float scores[GROUP];
    const int n = std::min(GROUP, opened - i);
    for (int k = 0; k < n; k++) a[k] = query_row(i + k), b[k] = other_row(i + k);
    for (int k = i + GROUP; k < std::min(opened, i + 2 * GROUP); k++) prefetch(query_row(k), p.width), prefetch(other_row(k), p.width);
    pairs(p, a, b, n, scores);
    for (int k = 0; k < n; k++) {
      const Unsure &u = open[i + k];
      const Query q = query(p, own, u.query, other, from, wanted[u.level], 0, false);
      q.count[u.wanted] += q.before(scores[k], u.row, u.wanted);
    }
  }
}

#if X86
#define INLINE inline __attribute__((always_inline))
#else
#define INLINE inline
#endif

// prepare_row writes the row in float32, scaled to length 1 for the cosine, and
// returns why it cannot be used.
INLINE int prepare_row(const knn_plan &p, const float *in, int dim, float *out, float *squared, float *longest) {
  double lane[8] = {}; // products of floats are exact in double: the sum is the same with and without fused operations
  int k = 0;
  for (; k + 8 <= dim; k += 8)
    for (int l = 0; l < 8; l++) lane[l] += static_cast<double>(in[k + l]) * in[k + l];
  for (int l = 0; k < dim; k++, l++) lane[l] += static_cast<double>(in[k]) * in[k];
  const double sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  double length = std::sqrt(sum);
  if (!std::isfinite(sum)) return KNN_NOT_FINITE;
  if (!p.l2 && sum == 0) return KNN_ZERO_ROW;
  if (p.l2 && length > std::ldexp(1.0, 60)) return KNN_TOO_LONG;
  const double scale = p.l2 ? 1 : 1 / length;
  for (k = 0; k + 8 <= dim; k += 8)
    for (int l = 0; l < 8; l++) out[k + l] = static_cast<float>(in[k + l] * scale);
  for (; k < dim; k++) out[k] = static_cast<float>(in[k] * scale);
  std::fill(out + dim, out + p.width, 0.0f);
  *squared = static_cast<float>(sum);
  *longest = std::max(*longest, static_cast<float>((p.l2 ? length : 1.000001) * 1.000001));
  return KNN_USABLE;
}

#if X86
AVX512 int prepare_avx512(const knn_plan &p, const float *in, int dim, float *out, int8_t *q, knn_row *row, float *longest) {
  const int why = prepare_row(p, in, dim, out, &row->square, longest);
  if (why == KNN_USABLE) quantize(out, p.width, q, row);
  return why;
}
#endif

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
    unsigned a = 0, b = 0, c = 0, d = 0;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    const long request = 0x1023, tile_data = 18; // ARCH_REQ_XCOMP_PERM: the kernel makes room for the tiles
    const bool tiles = (d >> 24 & 1) && (d >> 25 & 1); // amx-tile, amx-int8
    return static_cast<int>(tiles && syscall(SYS_arch_prctl, request, tile_data) == 0 ? KNN_AMX : KNN_AVX512);
  }();
  return level;
#else
  return KNN_BASELINE;
#endif
}

void *knn_allocate(int64_t bytes) { return aligned_alloc(64, static_cast<size_t>((bytes + 64) / 64 * 64)); }

int64_t knn_prepare(const knn_plan *p, const float *rows, int64_t n, int dim, float *x, int8_t *q, knn_row *row, float *longest, int *why) {
  for (int64_t i = 0; i < n; i++) {
    const float *in = rows + i * dim;
    float *out = x + i * p->width, square = 0;
#if X86
    if (q) {
      *why = prepare_avx512(*p, in, dim, out, q + 2 * i * p->width, row + i, longest);
    } else
#endif
      *why = prepare_row(*p, in, dim, out, &square, longest);
    if (*why != KNN_USABLE) return i;
  }
  (void)q;
  (void)row;
  return -1;
}

void knn_pack(const knn_plan *p, const int8_t *q, int64_t rows, int8_t *packed) {
  const int64_t bytes = 2 * p->width; // of a row: halves of 64, in groups of 4
  for (int64_t r = 0; r < (rows + 31) / 32 * 32; r++) {
    int8_t *to = packed + r / 16 * 16 * bytes + r % 16 * 4;
    for (int64_t k = 0; k < bytes; k += 4)
      if (r < rows)
        memcpy(to + 16 * k, q + r * bytes + k, 4);
      else
        memset(to + 16 * k, 0, 4);
  }
}

void knn_exact(const knn_plan *p, const float *a, int64_t na, const float *b, int64_t nb, float *scores) {
  exact_block(*p, a, na, b, nb, scores, nb);
}

knn_worker *knn_worker_new(const knn_plan *p) {
  knn_worker *w = new (std::nothrow) knn_worker;
  if (!w) return nullptr;
  w->scores = static_cast<float *>(knn_allocate(sizeof(float) * KNN_MOVING_ROWS * KNN_COLUMNS));
  w->turned = static_cast<float *>(knn_allocate(sizeof(float) * KNN_MOVING_ROWS * KNN_COLUMNS));
  w->screen = p->screen;
  if (!w->scores || !w->turned) {
    knn_worker_free(w);
    return nullptr;
  }
  return w;
}

void knn_worker_free(knn_worker *w) {
  if (!w) return;
  free(w->scores);
  free(w->turned);
  delete w;
}

knn_pairs knn_worker_pairs(const knn_worker *w) { return w->pairs; }

void knn_count(knn_worker *w, const knn_plan *p, const knn_side *moving, const knn_side *fixed, int64_t from, int64_t to, const knn_wanted *by_moving,
               const knn_wanted *by_fixed, int levels) {
  const Bound b = bound(*p);
  const int64_t rows = moving->rows;
  for (int64_t f = from; f < to; f += KNN_COLUMNS) {
    const int64_t columns = std::min<int64_t>(KNN_COLUMNS, to - f);
    const bool screen = choose(w, *p);
    int64_t settled = 0;
    int opened = 0;
    compute(w, *p, screen, *moving, *fixed, f, columns, by_fixed != nullptr);
    if (by_moving) {
      const Most m = screen ? most(fixed->row + f, columns) : Most{};
      for (int64_t i = 0; i < rows; i++)
        for (int v = 0; v < levels; v++) {
          const float off = screen ? band(b, moving->row[i], m) : 0;
          settled += query(*p, *moving, i, *fixed, f, by_moving[v], off, !screen)
                         .run(w->scores + i * KNN_COLUMNS, up16(columns), w->open, opened, static_cast<int32_t>(i), static_cast<uint8_t>(v));
        }
      settle(*p, w->open, opened, *moving, *fixed, f, by_moving);
      opened = 0;
    }
    if (by_fixed) {
      const Most m = screen ? most(moving->row, rows) : Most{};
      for (int64_t j = 0; j < columns; j++)
        for (int v = 0; v < levels; v++) {
          const float off = screen ? band(b, fixed->row[f + j], m) : 0;
          settled += query(*p, *fixed, f + j, *moving, 0, by_fixed[v], off, !screen)
                         .run(w->turned + j * KNN_MOVING_ROWS, up16(rows), w->open, opened, static_cast<int32_t>(f + j), static_cast<uint8_t>(v));
        }
      settle(*p, w->open, opened, *fixed, *moving, 0, by_fixed);
    }
    learn(w, screen, settled, rows * columns);
  }
}

void knn_search(knn_worker *w, const knn_plan *p, const knn_side *moving, const knn_side *fixed, const knn_best *best) {
  const Bound b = bound(*p);
  const int64_t few = 8 * static_cast<int64_t>(best->k); // among so many items, most of them are among the best so far
  for (int64_t f = 0; f < fixed->rows; f += KNN_COLUMNS) {
    const int64_t columns = std::min<int64_t>(KNN_COLUMNS, fixed->rows - f);
    if (fixed->first + f < few) w->screen = false, w->until_trial = 1 + static_cast<int>((few - fixed->first - f) / KNN_COLUMNS);
    const bool screen = choose(w, *p);
    const Most m = screen ? most(fixed->row + f, columns) : Most{};
    int64_t settled = 0;
    compute(w, *p, screen, *moving, *fixed, f, columns, false);
    for (int64_t i = 0; i < moving->rows; i++) {
      Collector c = collector(*p, *moving, i, *fixed, f, *best);
      settled += c.run(w->scores + i * KNN_COLUMNS, up16(columns), screen ? band(b, moving->row[i], m) : 0, !screen);
    }
    learn(w, screen, settled, moving->rows * columns);
  }
}

void knn_offer(const knn_plan *p, const knn_side *moving, const knn_side *fixed, const knn_best *best, const int64_t *places, int64_t n) {
  for (int64_t k = 0; k < n; k++) {
    const int64_t i = places[k] / fixed->rows, j = places[k] % fixed->rows;
    Collector c = collector(*p, *moving, i, *fixed, 0, *best);
    c.offer({pair(*p, c.x, c.rows + j * p->width), static_cast<int32_t>(fixed->first + j)});
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
