#include "tile.h"

#include <new>

namespace knn {
namespace {

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

} // namespace

Tally tally(int isa, const float *s, int64_t n, float low, float high) {
#if X86
  if (isa >= KNN_AVX512) return tally_avx512(s, n, low, high);
  if (isa >= KNN_AVX2) return tally_avx2(s, n, low, high);
#endif
  (void)isa;
  return tally_baseline(s, n, low, high);
}

namespace {

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

} // namespace

int between(int isa, const float *s, int64_t n, float low, float high, uint8_t *list) {
#if X86
  if (isa >= KNN_AVX512) return between_avx512(s, n, low, high, list);
#endif
  (void)isa;
  return between_baseline(s, n, low, high, list);
}

namespace {

constexpr int TRIAL = 8; // tiles until screening is tried again
constexpr double WORTHWHILE = 0.4; // the share of comparisons settled one by one that costs as much as a tile in float32

} // namespace

// Below 2^-30 the bound's terms come near underflow.
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

void compute(knn_worker *w, const knn_plan &p, bool screen, const knn_side &moving, const knn_side &fixed, int64_t from, int64_t columns,
             bool turn) {
  float *s = w->scores;
  const int64_t rows = moving.rows, stride = KNN_COLUMNS;
#if X86
  if (screen) return screened(p, moving, fixed, from, columns, s, stride, turn ? w->turned : nullptr, KNN_MOVING_ROWS);
#endif
  block(p, moving.x, rows, fixed.x + from * p.width, columns, s, stride);
  for (int64_t i = 0; i < rows; i++) std::fill(s + i * stride + columns, s + i * stride + up16(columns), NONE);
  for (int64_t i = rows; i < up16(rows); i++) std::fill(s + i * stride, s + i * stride + up16(columns), NONE);
  if (turn) transpose(p, s, up16(rows), up16(columns), stride, w->turned, KNN_MOVING_ROWS);
  (void)screen;
}

} // namespace knn

extern "C" {

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

} // extern "C"
