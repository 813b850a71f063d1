#include "tile.h"

// Products in integers with a proven bound.
//
// x = X + r with X = s (256 a + b), a and b whole numbers of 8 bits, |r| <= s/2 per element.
// Screened is s s' (65536 <a,a'> + 256 <a,b'> + 256 <b,a'>), whose sums are exact. Then
//   <x,x'> - screened = <X,r'> + <r,x'> + s s' <b,b'>
// is at most |X||r'| + |r||x'| + |s b||s' b'| (Cauchy-Schwarz), |X| <= |x| + |r|.
// What is left is rounding: a few of 2^-24 here, width/16 + 5 of them in the exact
// score, each of at most |x||x'|.

namespace knn {

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

Most most(const knn_row *row, int64_t n) {
  Most m = {0, 0};
  for (int64_t i = 0; i < n; i++) m = {std::max(m.lost, row[i].lost), std::max(m.low, row[i].low)};
  return m;
}

namespace {

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
#endif

} // namespace

#if X86
AMX void screened(const knn_plan &p, const knn_side &moving, const knn_side &fixed, int64_t from, int64_t columns, float *out, int64_t stride, float *turned,
                  int64_t turned_stride) {
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

void transpose(const knn_plan &p, const float *in, int64_t rows, int64_t columns, int64_t in_stride, float *out, int64_t out_stride) {
#if X86
  if (p.isa >= KNN_AVX512) return transpose_avx512(in, rows, columns, in_stride, out, out_stride);
#endif
  for (int64_t i = 0; i < rows; i += 8)
    for (int64_t j = 0; j < columns; j += 8)
      for (int u = 0; u < 8; u++)
        for (int v = 0; v < 8; v++) out[(j + v) * out_stride + i + u] = in[(i + u) * in_stride + j + v];
  (void)p;
}

} // namespace knn

// ---- rows in the form in which they are compared ---------------------------------------------------

namespace knn {
namespace {

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
} // namespace knn

using namespace knn;

extern "C" {

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
} // extern "C"
