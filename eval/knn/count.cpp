#include "tile.h"

namespace knn {
namespace {

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

// One query against consecutive rows of the other side.
struct Query {
  const knn_plan *plan;
  const float *x;       // its row
  const float *score;   // of its wanted items, best first
  const int32_t *item;  // their numbers in the gallery
  const int32_t *limit; // see knn_wanted
  int32_t *count;       // how many scores rank before each, see knn_total
  int64_t wanted;       // how many there are
  int64_t label;        // the query's own
  const float *rows;    // of the other side
  const int64_t *other; // their labels
  int64_t first;        // number of the first of them
  bool exact;           // scores are exact already
  float band;           // else how far they may be off

  // before tells whether row j, of exact score s, ranks before wanted item p.
  bool before(float s, int64_t j, int64_t p) const {
    if (s != score[p]) return s > score[p];
    return first + j < (limit && other[j] != label ? limit[p] : item[p]);
  }

  // note counts a score that ranks before wanted item p and all after it.
  void note(int64_t p) const {
    if (wanted > KNN_FEW) {
      if (p < wanted) count[p]++;
      return;
    }
    for (; p < wanted; p++) count[p]++;
  }

  // first_before is the first wanted item that row j, of exact score s, ranks before.
  int64_t first_before(float s, int64_t j) const {
    return lower([&](int64_t p) { return before(s, j, p); }, 0, wanted);
  }

  const float *row(int64_t j) const { return rows + j * plan->width; }
  float settle(const float *s, int64_t j) const { return exact ? s[j] : pair(*plan, x, row(j)); }

  // settle gives the exact scores of up to four rows.
  void settle(const float *s, const uint8_t *list, int n, float *scores) const {
    const float *a[4] = {x, x, x, x}, *b[4];
    for (int i = 0; i < n; i++) b[i] = row(list[i]), scores[i] = s[list[i]];
    if (!exact) pairs(*plan, a, b, n, scores);
  }

  // run counts n scores, a multiple of 16. What stays open is noted, or
  // settled at once; it returns how many comparisons that was.
  int64_t run(const float *s, int64_t n, Unsure *open, int &opened, int32_t row, uint8_t level) const {
    return wanted <= KNN_FEW ? few(s, n, open, opened, row, level) : many(s, n);
  }

  // few counts for each wanted item from the last one up, until no score reaches it.
  int64_t few(const float *s, int64_t n, Unsure *open, int &opened, int32_t row, uint8_t level) const {
    int64_t settled = 0;
    for (int64_t p = wanted - 1; p >= 0; p--) {
      const float low = score[p] - band, high = score[p] + band;
      const Tally t = tally(plan->isa, s, n, low, high);
      if (t.reach == 0) break;
      count[p] += t.above;
      if (t.reach == t.above) continue;
      uint8_t list[KNN_COLUMNS];
      const int found = between(plan->isa, s, n, low, high, list);
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
    if (plan->isa >= KNN_AVX512) {
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

// query is row i of a side against the rows of the other one from number from on.
Query query(const knn_plan &p, const knn_side &own, int64_t i, const knn_side &other, int64_t from, const knn_wanted &w, float band, bool exact) {
  const int64_t at = w.start[i] - w.start[0];
  Query q;
  q.plan = &p;
  q.x = own.x + i * p.width;
  q.score = w.score + at;
  q.item = w.item + at;
  q.limit = w.limit ? w.limit + at : nullptr;
  q.count = w.count + at;
  q.wanted = w.start[i + 1] - w.start[i];
  q.label = w.limit ? w.label[i] : 0;
  q.rows = other.x + from * p.width;
  q.other = w.limit ? w.other + from : nullptr;
  q.first = other.first + from;
  q.exact = exact;
  q.band = band;
  return q;
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

} // namespace
} // namespace knn

using namespace knn;

extern "C" {


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

void knn_count_pairs(const knn_plan *p, const knn_side *queries, const knn_side *items, const knn_wanted *wanted, const int64_t *places, int64_t n) {
  constexpr int GROUP = 4;
  for (int64_t k = 0; k < n; k += GROUP) {
    const int m = static_cast<int>(std::min<int64_t>(GROUP, n - k));
    const float *a[GROUP], *b[GROUP];
    float scores[GROUP];
    for (int u = 0; u < m; u++) {
      a[u] = queries->x + places[k + u] / items->rows * p->width;
      b[u] = items->x + places[k + u] % items->rows * p->width;
    }
    pairs(*p, a, b, m, scores);
    for (int u = 0; u < m; u++) {
      const Query q = query(*p, *queries, places[k + u] / items->rows, *items, 0, *wanted, 0, true);
      q.note(q.first_before(scores[u], places[k + u] % items->rows));
    }
  }
}

void knn_total(int32_t *count, const int64_t *start, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    int32_t *c = count + (start[i] - start[0]);
    const int64_t n = start[i + 1] - start[i];
    if (n > KNN_FEW)
      for (int64_t p = 1; p < n; p++) c[p] += c[p - 1];
  }
}

} // extern "C"
