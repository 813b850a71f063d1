#include "tile.h"

namespace knn {
namespace {

bool better(const knn_found &a, const knn_found &b) { return a.score != b.score ? a.score > b.score : a.item < b.item; }

// One query that collects its best items.
struct Collector {
  const knn_plan *plan;
  const float *x;     // its row
  const float *rows;  // of the gallery, from item first on
  int64_t first;      // number of the first of them
  int64_t own;        // number of the query itself, which is not to be found; -1: it may be
  int k, room;        // see knn_best
  knn_found *found;   // what was offered and is among the best so far
  int32_t *filled;    // how many of them
  knn_found *worst;   // below this one nothing is among the best

  // run offers n scores (a multiple of 16), off by at most band; it returns how many were settled.
  int64_t run(const float *s, int64_t n, float band, bool exact) {
    const float low = worst->score - band;
    if (tally(plan->isa, s, n, low, low).reach == 0) return 0;
    uint8_t list[KNN_COLUMNS];
    const int reaching = between(plan->isa, s, n, low, -NONE, list);
    int settled = 0;
    for (int i = 0; i < reaching; i++) {
      const int j = list[i];
      if (s[j] == NONE || s[j] < worst->score - band) continue; // past the last row, or the worst has risen
      if (exact) {
        offer({s[j], static_cast<int32_t>(first + j)});
        continue;
      }
      if (i + 2 < reaching) prefetch(rows + list[i + 2] * plan->width, plan->width);
      settled++;
      offer({pair(*plan, x, rows + j * plan->width), static_cast<int32_t>(first + j)});
    }
    return settled;
  }

  void offer(const knn_found &f) {
    if (f.item == own || !better(f, *worst)) return;
    found[(*filled)++] = f;
    if (*filled == room || (*filled == k && worst->score == NONE)) shrink();
  }

  void shrink() {
    std::nth_element(found, found + k - 1, found + *filled, better);
    *filled = k;
    *worst = found[k - 1];
  }
};

// collector is that of row i of moving, for the rows of fixed from f on.
Collector collector(const knn_plan &p, const knn_side &moving, int64_t i, const knn_side &fixed, int64_t f, const knn_best &best) {
  Collector c;
  c.plan = &p;
  c.x = moving.x + i * p.width;
  c.rows = fixed.x + f * p.width;
  c.first = fixed.first + f;
  c.own = best.skip_own ? moving.first + i : -1;
  c.k = best.k;
  c.room = best.room;
  c.found = best.found + i * best.room;
  c.filled = best.filled + i;
  c.worst = best.worst + i;
  return c;
}

} // namespace
} // namespace knn

using namespace knn;

extern "C" {

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

} // extern "C"
