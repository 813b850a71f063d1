// Rows of scores, taken apart and put together, and rows of embeddings.

// each_excluded calls f with the columns excluded for a query.
template <class F> INLINE void each_excluded(const sc_lists &lists, int64_t query, F f) {
  if (!lists.excluded) return;
  for (int64_t n = lists.excluded_at[query]; n < lists.excluded_at[query + 1]; n++) f(lists.excluded[n]);
}

// each_positive calls f with the columns of a query's positives.
template <class F> INLINE void each_positive(const sc_lists &lists, int64_t query, F f) {
  int32_t of = lists.class_of[query];
  const int32_t *n = nullptr, *end = nullptr;
  if (lists.excluded) n = lists.excluded + lists.excluded_at[query], end = lists.excluded + lists.excluded_at[query + 1];
  for (int64_t m = lists.class_at[of]; m < lists.class_at[of + 1]; m++) {
    int32_t column = lists.members[m];
    while (n < end && *n < column) n++;
    if (n == end || *n != column) f(column);
  }
}

template <class T>
void split(sc_matrix scores, const sc_lists &lists, int64_t first, sc_matrix negatives, sc_matrix positives, int64_t *columns, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    const T *row = static_cast<const T *>(scores.data) + i * scores.columns;
    T *negative = static_cast<T *>(negatives.data) + i * scores.columns, *positive = static_cast<T *>(positives.data) + i * positives.columns;
    int64_t *column = columns + i * positives.columns, count = 0;
    memcpy(negative, row, size_t(scores.columns) * sizeof(T));
    each_excluded(lists, first + i, [&](int32_t j) { negative[j] = none<T>; });
    each_positive(lists, first + i, [&](int32_t j) {
      positive[count] = row[j];
      column[count++] = j;
      negative[j] = none<T>;
    });
    std::fill(positive + count, positive + positives.columns, none<T>);
    std::fill(column + count, column + positives.columns, 0);
  }
}

template <class T> void join(sc_matrix scores, const sc_lists &lists, int64_t first, sc_matrix negatives, sc_matrix positives, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    T *row = static_cast<T *>(scores.data) + i * scores.columns;
    const T *negative = static_cast<const T *>(negatives.data) + i * scores.columns;
    const T *positive = static_cast<const T *>(positives.data) + i * positives.columns;
    for (int64_t j = 0; j < scores.columns; j += Lanes<T>::width) {
      V<T> g = at_row(negative, j, scores.columns);
      put_row(row, j, scores.columns, pick<T>(larger<T>(g, -g) < Lanes<T>::tiny, V<T>{}, g));
    }
    each_excluded(lists, first + i, [&](int32_t j) { row[j] = 0; });
    each_positive(lists, first + i, [&](int32_t j) {
      T g = *positive++;
      row[j] = std::abs(g) < Lanes<T>::tiny ? T(0) : g;
    });
  }
}

// Wide is as many doubles as V has lanes.
template <class T> struct Wide {
  typedef double V __attribute__((vector_size(sizeof(double) * Lanes<T>::width)));
};

// dot is the sum of a[j] b[j] / by^2, added up in double in an order that
// depends on nothing but d: equal rows have equal sums wherever they stand.
template <class T> INLINE double dot(const T *a, const T *b, T by, int64_t d) {
  typename Wide<T>::V total = {};
  for (int64_t j = 0; j < d; j += Lanes<T>::width)
    total += __builtin_convertvector(at_row(a, j, d) / by, typename Wide<T>::V) * __builtin_convertvector(at_row(b, j, d) / by, typename Wide<T>::V);
  double lane[Lanes<T>::width], s = 0;
  memcpy(lane, &total, sizeof lane);
  for (double x : lane) s += x;
  return s;
}

// unit_rows divides rows by their lengths. They are divided by their largest
// element first, so that squares neither overflow nor vanish.
template <class T> void unit_rows(const T *x, T *unit, T *length, uint8_t *state, int64_t d, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    const T *row = x + i * d;
    V<T> most = {}, nothing = {};
    for (int64_t j = 0; j < d; j += Lanes<T>::width) {
      V<T> v = at_row(row, j, d);
      most = larger<T>(most, larger<T>(v, -v));
      nothing += v * 0; // NaN where v is NaN or infinite
    }
    T largest = 0, not_finite = 0, lane[Lanes<T>::width];
    store(lane, most);
    for (T v : lane) largest = std::max(largest, v);
    store(lane, nothing);
    for (T v : lane) not_finite += v;
    state[i] = not_finite != 0 ? SC_ROW_NOT_FINITE : largest == 0 ? SC_ROW_ZERO : SC_ROW_GOOD;
    if (state[i] != SC_ROW_GOOD) continue;
    T shrunk = T(std::sqrt(dot(row, row, largest, d)));
    for (int64_t j = 0; j < d; j += Lanes<T>::width) put_row(unit + i * d, j, d, at_row(row, j, d) / largest / shrunk);
    length[i] = shrunk * largest;
  }
}

// unit_rows_backward takes from a gradient its part along the row and divides the
// rest by the row's length.
template <class T> void unit_rows_backward(T *grad, const T *unit, const T *length, int64_t d, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    T *g = grad + i * d;
    const T *u = unit + i * d;
    T along = T(dot(g, u, T(1), d));
    for (int64_t j = 0; j < d; j += Lanes<T>::width) put_row(g, j, d, (at_row(g, j, d) - at_row(u, j, d) * along) / length[i]);
  }
}
