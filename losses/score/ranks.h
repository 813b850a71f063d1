// Ranks, and their gradient by algorithm 1 of RaMBO.

// Ranking is a row's shifted scores. Few positives are compared with every
// column; many are merged with the negatives, both sorted.
template <class T> struct Ranking {
  const T *negative;
  int64_t width;
  T half; // of the margin; negatives are raised by it as they are read
  double lambda;
  const int64_t *column;   // of each positive
  std::vector<T> positive; // lowered by half
  double n = 0;            // entries in all
};

template <class T> Ranking<T> ranking(const sc_ranking &all, int64_t row) {
  Ranking<T> r;
  r.negative = static_cast<const T *>(all.negatives.data) + row * all.negatives.columns;
  r.width = all.negatives.columns;
  r.half = T(all.margin / 2);
  r.lambda = all.lambda;
  r.column = all.column + row * all.positives.columns;
  const T *positive = static_cast<const T *>(all.positives.data) + row * all.positives.columns;
  for (int64_t k = 0; k < all.positives.columns && positive[k] != none<T>; k++) r.positive.push_back(positive[k] - r.half);
  Total<T> negatives;
  for (int64_t j = 0; j < r.width; j += Lanes<T>::width) negatives.add(one_where<T>(at_row(r.negative, j, r.width, none<T>) != none<T>));
  r.n = negatives.value() + double(r.positive.size());
  return r;
}

// rank_among counts the positives that stand before positive k, and k.
template <class T> double rank_among(const std::vector<T> &score, size_t k) {
  double rank = 1;
  for (size_t o = 0; o < score.size(); o++) rank += score[o] > score[k] || (score[o] == score[k] && o < k);
  return rank;
}

// before says for a vector of columns whether the positive of that score and
// column stands before the negative there.
template <class T> INLINE I<T> before(T score, int64_t column, V<T> negative, I<T> at) {
  return (negative < score) | ((negative == score) & (at > typename Lanes<T>::Index(column)));
}

template <class T> INLINE I<T> first_columns() {
  I<T> at;
  for (int i = 0; i < Lanes<T>::width; i++) at[i] = i;
  return at;
}

template <class T> void ranks_of_few(const Ranking<T> &r, double *rank, double *plus) {
  for (size_t k = 0; k < r.positive.size(); k++) {
    I<T> at = first_columns<T>();
    Total<T> behind; // columns without an entry too
    for (int64_t j = 0; j < r.width; j += Lanes<T>::width, at += Lanes<T>::width)
      behind.add(one_where<T>(before<T>(r.positive[k], r.column[k], at_row(r.negative, j, r.width, none<T>) + r.half, at)));
    int64_t width = (r.width + Lanes<T>::width - 1) / Lanes<T>::width * Lanes<T>::width;
    plus[k] = rank_among(r.positive, k);
    rank[k] = plus[k] + double(width) - behind.value();
  }
}

template <class T>
void ranks_backward_of_few(const Ranking<T> &r, const std::vector<T> &moved, const double *rank, T *by_negatives, T *by_positives) {
  double by = 1 / (r.lambda * r.n);
  int64_t width = (r.width + Lanes<T>::width - 1) / Lanes<T>::width * Lanes<T>::width;
  for (size_t k = 0; k < moved.size(); k++) {
    I<T> at = first_columns<T>();
    Total<T> behind;
    for (int64_t j = 0; j < r.width; j += Lanes<T>::width, at += Lanes<T>::width) {
      V<T> negative = at_row(r.negative, j, r.width, none<T>) + r.half;
      V<T> now = one_where<T>(before<T>(moved[k], r.column[k], negative, at));
      V<T> then = one_where<T>(before<T>(r.positive[k], r.column[k], negative, at));
      behind.add(now);
      put_row(by_negatives, j, r.width, at_row(by_negatives, j, r.width) + (now - then) * T(by));
    }
    by_positives[k] = T(by * (rank_among(moved, k) + double(width) - behind.value() - rank[k]));
  }
}

// Entry is a place in a list under a key that sorts scores descending.
template <class T> struct Entry {
  typename Lanes<T>::Bits key;
  int32_t place;
};

template <class T> INLINE typename Lanes<T>::Bits descending(T score) {
  typedef typename Lanes<T>::Bits Bits;
  score += T(0); // -0 becomes 0
  Bits b;
  __builtin_memcpy(&b, &score, sizeof b);
  const Bits sign = Bits(1) << (sizeof(Bits) * 8 - 1);
  return b & sign ? b : Bits(~(b | sign));
}

// radix_sort sorts stably, 11 bits at a time, skipping digits that all share.
template <class T> void radix_sort(std::vector<Entry<T>> &entries) {
  constexpr int bits = 11, digits = (int(sizeof(typename Lanes<T>::Bits)) * 8 + bits - 1) / bits;
  constexpr size_t buckets = size_t(1) << bits;
  std::vector<Entry<T>> space(entries.size());
  std::vector<size_t> counts(buckets * digits);
  for (const Entry<T> &e : entries)
    for (int d = 0; d < digits; d++) counts[size_t(d) * buckets + ((e.key >> (d * bits)) & (buckets - 1))]++;
  for (int d = 0; d < digits; d++) {
    size_t *count = &counts[size_t(d) * buckets], at = 0;
    bool one = false;
    for (size_t b = 0; b < buckets; b++) {
      one = one || count[b] == entries.size();
      size_t n = count[b];
      count[b] = at;
      at += n;
    }
    if (one) continue;
    for (const Entry<T> &e : entries) space[count[(e.key >> (d * bits)) & (buckets - 1)]++] = e;
    entries.swap(space);
  }
}

template <class T> std::vector<Entry<T>> sorted(const std::vector<T> &score) {
  std::vector<Entry<T>> entries(score.size());
  for (size_t k = 0; k < score.size(); k++) entries[k] = {descending<T>(score[k]), int32_t(k)};
  radix_sort<T>(entries);
  return entries;
}

template <class T> std::vector<Entry<T>> sorted_negatives(const Ranking<T> &r) {
  std::vector<Entry<T>> entries;
  entries.reserve(size_t(r.n) - r.positive.size());
  for (int64_t j = 0; j < r.width; j++)
    if (r.negative[j] != none<T>) entries.push_back({descending<T>(r.negative[j] + r.half), int32_t(j)});
  radix_sort<T>(entries);
  return entries;
}

// merge walks through positives and negatives in their common order: positive
// is called with each positive and the negatives before it, negative with each
// negative and the positives before it.
template <class T, class Positive, class Negative>
INLINE void merge(const Ranking<T> &r, const std::vector<Entry<T>> &positives, const std::vector<Entry<T>> &negatives, Positive positive, Negative negative) {
  size_t at = 0;
  for (size_t i = 0; i <= positives.size(); i++) {
    for (; at < negatives.size(); at++) {
      const Entry<T> &n = negatives[at];
      if (i < positives.size()) {
        const Entry<T> &p = positives[i];
        if (p.key < n.key || (p.key == n.key && r.column[p.place] < n.place)) break;
      }
      negative(at, i);
    }
    if (i < positives.size()) positive(positives[i].place, i, at);
  }
}

template <class T> void ranks_of_many(const Ranking<T> &r, double *rank, double *plus) {
  merge<T>(
      r, sorted<T>(r.positive), sorted_negatives(r),
      [&](int32_t k, size_t i, size_t negatives) {
        plus[k] = double(i + 1);
        rank[k] = double(i + 1 + negatives);
      },
      [](size_t, size_t) {});
}

template <class T>
void ranks_backward_of_many(const Ranking<T> &r, const std::vector<T> &moved, const double *rank, T *by_negatives, T *by_positives) {
  double by = 1 / (r.lambda * r.n);
  std::vector<Entry<T>> negatives = sorted_negatives(r);
  merge<T>(
      r, sorted<T>(r.positive), negatives, [](int32_t, size_t, size_t) {},
      [&](size_t at, size_t positives) { by_negatives[negatives[at].place] = T(-by * double(positives)); });
  merge<T>(
      r, sorted<T>(moved), negatives, [&](int32_t k, size_t i, size_t before) { by_positives[k] = T(by * (double(i + 1 + before) - rank[k])); },
      [&](size_t at, size_t positives) { by_negatives[negatives[at].place] += T(by * double(positives)); });
}

constexpr size_t few = 32;

template <class T> void ranks(const sc_ranking &all, double *rank, double *plus, int64_t begin, int64_t end) {
  const int64_t p = all.positives.columns;
  for (int64_t i = begin; i < end; i++) {
    Ranking<T> r = ranking<T>(all, i);
    std::fill(rank + i * p, rank + (i + 1) * p, 1.0);
    std::fill(plus + i * p, plus + (i + 1) * p, 1.0);
    if (r.positive.size() <= few)
      ranks_of_few(r, rank + i * p, plus + i * p);
    else
      ranks_of_many(r, rank + i * p, plus + i * p);
  }
}

template <class T>
void ranks_backward(const sc_ranking &all, const double *rank, const double *gradient, void *by_negatives, void *by_positives, int64_t begin, int64_t end) {
  const int64_t p = all.positives.columns;
  for (int64_t i = begin; i < end; i++) {
    Ranking<T> r = ranking<T>(all, i);
    T *negative = static_cast<T *>(by_negatives) + i * r.width, *positive = static_cast<T *>(by_positives) + i * p;
    std::fill(negative, negative + r.width, T(0));
    std::fill(positive, positive + p, T(0));
    std::vector<T> moved(r.positive); // s + lambda g, where g is by rank / n
    for (size_t k = 0; k < moved.size(); k++) moved[k] += T(r.lambda * r.n * gradient[i * p + int64_t(k)]);
    if (moved.size() <= few)
      ranks_backward_of_few(r, moved, rank + i * p, negative, positive);
    else
      ranks_backward_of_many(r, moved, rank + i * p, negative, positive);
  }
}
