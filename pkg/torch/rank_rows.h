// The body of rank_rows.cpp, compiled once for each instruction set: no include
// guard. The includer opens a namespace and selects the instructions.
//
// Vectors are GCC's, 64 bytes wide; where registers are narrower the compiler
// splits them, so the order of additions is the same everywhere.

template <class T> struct Lanes;
template <> struct Lanes<float> {
  typedef float V __attribute__((vector_size(64)));
  typedef int32_t I __attribute__((vector_size(64)));
  typedef uint32_t Bits;
  static constexpr int width = 16, mantissa = 23, bias = 127, degree = 7; // degree: of the polynomial of e^r
  static constexpr float largest = 87.0f;    // e^-87 is still a normal number
  static constexpr float tiny = 0x1p-100f;   // gradients below are 0
  static constexpr float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to whole numbers
  static constexpr float ln2_high = 0.693145751953125f, ln2_low = 1.42860682030941723212e-6f;
};
template <> struct Lanes<double> {
  typedef double V __attribute__((vector_size(64)));
  typedef int64_t I __attribute__((vector_size(64)));
  typedef uint64_t Bits;
  static constexpr int width = 8, mantissa = 52, bias = 1023, degree = 13;
  static constexpr double largest = 708.0, tiny = 0x1p-960;
  static constexpr double magic = 6755399441055744.0;
  static constexpr double ln2_high = 6.93147180369123816490e-1, ln2_low = 1.90821492927058770002e-10;
};

#define INLINE static inline __attribute__((always_inline))

template <class T> using V = typename Lanes<T>::V;
template <class T> using I = typename Lanes<T>::I;

template <class T> INLINE V<T> all(T x) { return x - V<T>{}; }
template <class T> INLINE V<T> load(const T *p) {
  V<T> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class T> INLINE void store(T *p, V<T> v) { __builtin_memcpy(p, &v, sizeof v); }
template <class T> INLINE V<T> pick(I<T> mask, V<T> yes, V<T> no) { return mask ? yes : no; }
template <class T> INLINE V<T> larger(V<T> a, V<T> b) { return a > b ? a : b; }
template <class T> INLINE V<T> smaller(V<T> a, V<T> b) { return a < b ? a : b; }
template <class T> INLINE V<T> one_where(I<T> mask) { return pick<T>(mask, all<T>(1), V<T>{}); }
template <class T> INLINE double sum(V<T> v) {
  T lane[Lanes<T>::width];
  store(lane, v);
  double s = 0;
  for (T x : lane) s += x;
  return s;
}

// at_row reads the vector at j of a row of d elements, zeros beyond its end.
template <class T> INLINE V<T> at_row(const T *row, int64_t j, int64_t d) {
  if (j + Lanes<T>::width <= d) return load(row + j);
  T lane[Lanes<T>::width] = {};
  for (int64_t i = j; i < d; i++) lane[i - j] = row[i];
  return load(lane);
}

template <class T> INLINE void put_row(T *row, int64_t j, int64_t d, V<T> v) {
  if (j + Lanes<T>::width <= d) return store(row + j, v);
  T lane[Lanes<T>::width];
  store(lane, v);
  for (int64_t i = j; i < d; i++) row[i] = lane[i - j];
}

// Total adds up many vectors: a few in T, then those sums in double, so that
// the error does not grow with the length of the row.
template <class T> struct Total {
  V<T> part = V<T>{};
  double whole = 0;
  int n = 0;
  INLINE void flush(Total &t) {
    t.whole += sum<T>(t.part);
    t.part = V<T>{};
    t.n = 0;
  }
  __attribute__((always_inline)) void add(V<T> v) {
    part += v;
    if (++n == 64) flush(*this);
  }
  __attribute__((always_inline)) double value() {
    flush(*this);
    return whole;
  }
};

constexpr double factorial_inverse[] = {1.0,        1.0,         1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,       1.0 / 720,
                                        1.0 / 5040, 1.0 / 40320, 1.0 / 362880,  1.0 / 3628800,  1.0 / 39916800,  1.0 / 479001600, 1.0 / 6227020800};

// exp_negative is e^-x for x >= 0: x = n ln 2 + r, e^-x = 2^-n e^-r, with the
// Taylor polynomial of e^-r on |r| <= ln2/2, whose remainder is below half a
// unit in the last place. Beyond `largest` it stays at e^-largest.
template <class T> INLINE V<T> exp_negative(V<T> x) {
  typedef Lanes<T> L;
  x = smaller<T>(x, all<T>(L::largest));
  V<T> shifted = x * T(1.44269504088896340736) + L::magic;
  V<T> n = shifted - L::magic;
  V<T> r = n * L::ln2_high - x + n * L::ln2_low; // -r, so that the polynomial is that of e^r
  V<T> e = all<T>(T(factorial_inverse[L::degree]));
#pragma GCC unroll 16
  for (int k = L::degree - 1; k >= 0; k--) e = e * r + T(factorial_inverse[k]);
  I<T> power = (L::bias - __builtin_convertvector(n, I<T>)) << L::mantissa;
  V<T> scale;
  __builtin_memcpy(&scale, &power, sizeof scale);
  return e * scale;
}

// exp_any is e^x, capped at e^largest.
template <class T> INLINE V<T> exp_any(V<T> x) {
  V<T> e = exp_negative<T>(larger<T>(x, -x));
  return pick<T>(x > 0, 1 / e, e);
}

// sigmoid returns the logistic function of x and its derivative, both to full
// relative precision in the tails.
template <class T> INLINE V<T> sigmoid(V<T> x, V<T> &derivative) {
  V<T> e = exp_negative<T>(larger<T>(x, -x));
  V<T> inverse = 1 / (1 + e);
  V<T> small = e * inverse;
  derivative = small * inverse;
  return pick<T>(x >= 0, inverse, small);
}

// ---- step functions of a difference t of scores: value and derivative ------------------------------

template <class T> struct Heaviside {
  __attribute__((always_inline)) V<T> operator()(V<T> t, V<T> &d) const {
    d = V<T>{};
    return one_where<T>(t >= 0);
  }
};

template <class T> struct Sigmoid {
  T per_tau;
  explicit Sigmoid(const double *p) : per_tau(T(1 / p[0])) {}
  __attribute__((always_inline)) V<T> operator()(V<T> t, V<T> &d) const {
    V<T> s = sigmoid<T>(t * per_tau, d);
    d *= per_tau;
    return s;
  }
};

template <class T> struct UpperBound {
  T per_tau, rho, delta, start, offset;
  bool zero_is_low;
  explicit UpperBound(const double *p)
      : per_tau(T(1 / p[0])), rho(T(p[1])), delta(T(p[2])), start(T(p[3])), offset(T(p[4])), zero_is_low(p[5] != 0) {}
  __attribute__((always_inline)) V<T> operator()(V<T> t, V<T> &d) const {
    V<T> s = sigmoid<T>(t * per_tau, d);
    I<T> up = zero_is_low ? t > 0 : t >= 0;
    I<T> far = t > delta;
    d = pick<T>(far, all<T>(rho), d * per_tau);
    return pick<T>(far, (t - delta) * rho + offset, s + pick<T>(up, all<T>(start), V<T>{}));
  }
};

// ---- one row ---------------------------------------------------------------------------------------

// Row is a query's scores, sorted into positives and negatives. Arrays are
// padded to whole vectors.
template <class T> struct Row {
  int64_t width;      // of negative, slope and gradient, a multiple of the lanes
  T *negative;        // score of each column; -inf where it is no negative
  T *slope;           // working space
  T *gradient;        // dLoss/dnegative; whatever where it is no negative
  int64_t count;      // |P|
  int64_t room;       // of the arrays of positives, a multiple of the lanes
  int32_t *column;    // of each positive
  T *positive;        // score of each positive, then -inf
  T *positive_slope;  // working space
  T *positive_gradient;
  int64_t negatives;  // |N|
  bool backward;
  double weight;
  const double *p;
  int32_t parameters;
  double *out;
};

// above_all is the sum of a step function of values - score, and its
// derivatives, into slope; total_slope is their sum.
template <class T, class Step>
INLINE double above_all(const Step &step, const T *values, int64_t n, T score, T *slope, double &total_slope) {
  Total<T> total, slopes;
  for (int64_t j = 0; j < n; j += Lanes<T>::width) {
    V<T> d, s = step(load(values + j) - score, d);
    total.add(s);
    slopes.add(d);
    store(slope + j, d);
  }
  total_slope = slopes.value();
  return total.value();
}

template <class T, class Step> INLINE double above_value(const Step &step, const T *values, int64_t n, T score) {
  Total<T> total;
  for (int64_t j = 0; j < n; j += Lanes<T>::width) {
    V<T> d;
    total.add(step(load(values + j) - score, d));
  }
  return total.value();
}

template <class T> INLINE void add_scaled(T *to, const T *from, int64_t n, double by) {
  T c = T(by);
  for (int64_t j = 0; j < n; j += Lanes<T>::width) store(to + j, load(to + j) + load(from + j) * c);
}

// hard_rank is rank+ with the step function.
template <class T> INLINE double hard_rank(const Row<T> &r, int64_t k) {
  return above_value<T>(Heaviside<T>(), r.positive, r.room, r.positive[k]); // k itself is the 1
}

// average_precision is 1 - AP with Step in rank-, and in rank+ too if Smooth,
// where the step function counts otherwise.
template <bool Smooth, class T, class Step> INLINE void average_precision(Row<T> &r, const Step &step) {
  if (r.count == 0) return;
  double ap = 0, per = 1.0 / double(r.count);
  for (int64_t k = 0; k < r.count; k++) {
    T score = r.positive[k];
    double slope, plus_slope = 0, plus;
    double minus = above_all(step, r.negative, r.width, score, r.slope, slope);
    if (Smooth)
      plus = 0.5 + above_all(step, r.positive, r.room, score, r.positive_slope, plus_slope); // k itself: 1 for its 1/2
    else
      plus = hard_rank(r, k);
    double rank = plus + minus;
    ap += plus / rank;
    if (!r.backward) continue;
    double by_minus = r.weight * per * plus / (rank * rank);
    add_scaled(r.gradient, r.slope, r.width, by_minus);
    r.positive_gradient[k] -= T(by_minus * slope);
    if (Smooth) {
      double by_plus = -r.weight * per * minus / (rank * rank);
      add_scaled(r.positive_gradient, r.positive_slope, r.room, by_plus);
      r.positive_gradient[k] -= T(by_plus * plus_slope);
    }
  }
  r.out[0] = r.weight * (1 - ap / double(r.count));
}

// recall is one minus the smooth recall, averaged over the lengths k.
template <class T> INLINE void recall(Row<T> &r) {
  if (r.count == 0) return;
  Sigmoid<T> step(r.p);
  double per_tau = 1 / r.p[1];
  bool released = r.p[2] != 0;
  int lengths = r.parameters - 3;
  const double *length = r.p + 3;
  double inside[64] = {};
  std::vector<double> rank(size_t(r.count));
  for (int64_t x = 0; x < r.count; x++) {
    double above = above_value<T>(step, r.positive, r.room, r.positive[x]) + above_value<T>(step, r.negative, r.width, r.positive[x]);
    rank[size_t(x)] = 0.5 + above; // x itself: 1 for its 1/2
    for (int i = 0; i < lengths; i++) inside[i] += 1 / (1 + std::exp((rank[size_t(x)] - length[i]) * per_tau));
  }
  double value = 0, by[64];
  for (int i = 0; i < lengths; i++) {
    double of = double(r.count), in = inside[i];
    by[i] = 1;
    if (released) {
      of = std::min(of, length[i]);
      by[i] = in <= length[i];
      in = std::min(in, length[i]);
    }
    value += in / of / lengths;
    by[i] /= of * lengths;
  }
  r.out[0] = r.weight * (1 - value);
  for (int64_t x = 0; r.backward && x < r.count; x++) { // a second time, now that the factors are known
    double factor = 0, slope, plus_slope;               // factor: d loss / d rank
    for (int i = 0; i < lengths; i++) {
      double in = 1 / (1 + std::exp((rank[size_t(x)] - length[i]) * per_tau));
      factor += r.weight * by[i] * in * (1 - in) * per_tau;
    }
    above_all(step, r.negative, r.width, r.positive[x], r.slope, slope);
    above_all(step, r.positive, r.room, r.positive[x], r.positive_slope, plus_slope);
    add_scaled(r.gradient, r.slope, r.width, factor);
    add_scaled(r.positive_gradient, r.positive_slope, r.room, factor);
    r.positive_gradient[x] -= T(factor * (slope + plus_slope));
  }
}

// ---- histograms ------------------------------------------------------------------------------------

// Places maps a score to a slot of a histogram and to how far it is in it.
// Centre b is slot b+1; what falls outside goes to slots that nobody reads.
template <class T> struct Places {
  T per_score, low, high, outside;
  Places(const double *p) : per_score(T(p[0])), low(p[2] != 0 ? T(0) : T(-1)), high(p[2] != 0 ? T(p[1] - 1) : T(p[1])), outside(T(p[1] + 1)) {}
  __attribute__((always_inline)) I<T> slot(V<T> score, V<T> &inside) const {
    V<T> u = (1 - score) * per_score;
    u = smaller<T>(larger<T>(u, all<T>(low)), all<T>(high)) + 1;
    u = pick<T>(score == -std::numeric_limits<T>::infinity(), all<T>(outside), u); // no entry at all
    I<T> s = __builtin_convertvector(u, I<T>);
    inside = u - __builtin_convertvector(s, V<T>);
    return s;
  }
};

// fill adds the soft counts of scores to h, in four interleaved copies so that
// an addition need not wait for the one before it.
template <class T> INLINE void fill(const Places<T> &places, const T *score, int64_t n, double *h, int64_t slots) {
  for (int64_t j = 0; j < n; j += Lanes<T>::width) {
    V<T> inside;
    I<T> slot = places.slot(load(score + j), inside);
    T f[Lanes<T>::width];
    typename Lanes<T>::Bits s[Lanes<T>::width];
    memcpy(f, &inside, sizeof f);
    memcpy(s, &slot, sizeof s);
#pragma GCC unroll 16
    for (int i = 0; i < Lanes<T>::width; i++) {
      double *count = h + (i & 3) * slots + s[i];
      count[0] += 1 - double(f[i]);
      count[1] += double(f[i]);
    }
  }
}

// slopes adds the derivative of a score's place: table has one number a slot.
// At a corner, where the place is whole, the derivative is 0.
template <class T> INLINE void slopes(const Places<T> &places, const T *score, int64_t n, const T *table, T *gradient) {
  for (int64_t j = 0; j < n; j += Lanes<T>::width) {
    V<T> inside;
    I<T> slot = places.slot(load(score + j), inside);
    T d[Lanes<T>::width];
    typename Lanes<T>::Bits s[Lanes<T>::width];
    memcpy(s, &slot, sizeof s);
#pragma GCC unroll 16
    for (int i = 0; i < Lanes<T>::width; i++) d[i] = table[s[i]];
    store(gradient + j, load(gradient + j) + pick<T>(inside > 0, load(d), V<T>{}));
  }
}

// histogram is 1 - 1/|P| sum_b H+_b h+_b / H_b.
template <class T> INLINE void histogram(Row<T> &r) {
  if (r.count == 0) return;
  int64_t bins = int64_t(r.p[1]), slots = bins + 3;
  Places<T> places(r.p);
  std::vector<double> space(size_t(slots) * 8);
  double *all_h = space.data(), *plus_h = all_h + 4 * slots;
  fill(places, r.negative, r.width, all_h, slots);
  fill(places, r.positive, r.room, plus_h, slots);
  for (int64_t b = 0; b < slots; b++) {
    plus_h[b] += plus_h[slots + b] + plus_h[2 * slots + b] + plus_h[3 * slots + b];
    all_h[b] += all_h[slots + b] + all_h[2 * slots + b] + all_h[3 * slots + b] + plus_h[b];
  }
  double all_sum = 0, plus_sum = 0, ap = 0, per = 1.0 / double(r.count);
  double *by_plus = plus_h + slots, *by_all = plus_h + 2 * slots; // derivatives of ap by h+ and by h
  for (int64_t b = 1; b <= bins; b++) {
    all_sum += all_h[b];
    plus_sum += plus_h[b];
    double share = all_sum > 0 ? 1 / all_sum : 0;
    ap += plus_sum * plus_h[b] * share;
    by_plus[b] = plus_h[b] * share;
    by_all[b] = -plus_sum * plus_h[b] * share * share;
    all_h[b] = plus_sum * share; // from here on the precision
  }
  r.out[0] = r.weight * (1 - ap / double(r.count));
  if (!r.backward) return;
  for (int64_t b = bins - 1; b >= 1; b--) { // what a count adds to the running sums of all later bins
    by_plus[b] += by_plus[b + 1];
    by_all[b] += by_all[b + 1];
  }
  by_plus[0] = by_all[0] = by_plus[bins + 1] = by_all[bins + 1] = 0;
  all_h[0] = all_h[bins + 1] = 0;
  std::vector<T> table(size_t(slots) * 2);
  double scale = r.weight * per * r.p[0]; // the loss is -ap, the place falls as the score rises
  for (int64_t b = 0; b <= bins; b++) {
    double all_slope = by_all[b + 1] - by_all[b];
    double plus_slope = by_plus[b + 1] + all_h[b + 1] - by_plus[b] - all_h[b];
    table[size_t(b)] = T(scale * all_slope);
    table[size_t(slots + b)] = T(scale * (all_slope + plus_slope));
  }
  slopes(places, r.negative, r.width, table.data(), r.gradient);
  slopes(places, r.positive, r.room, table.data() + slots, r.positive_gradient);
}

// ---- blackbox --------------------------------------------------------------------------------------

// Ranking is what the blackbox losses know of a row. Scores are shifted by half
// the margin; ranks begin at 1 and are stable in the order of the columns.
template <class T> struct Ranking {
  std::vector<T> positive;              // shifted scores
  std::vector<double> rank, plus, step; // of each positive: rk, rk+, and g = d loss / d (rk/n)
};

// before says for a vector of columns whether the positive of that score and
// column stands before the negative there.
template <class T> INLINE I<T> before(T score, int32_t column, V<T> negative, I<T> at) {
  return (negative < score) | ((negative == score) & (at > column));
}

template <class T> INLINE I<T> first_columns() {
  I<T> at;
  for (int i = 0; i < Lanes<T>::width; i++) at[i] = i;
  return at;
}

// rank_among counts the positives that stand before positive k, and k.
template <class T> INLINE double rank_among(const std::vector<T> &score, size_t k) {
  double rank = 1;
  for (size_t o = 0; o < score.size(); o++) rank += score[o] > score[k] || (score[o] == score[k] && o < k);
  return rank;
}

// weigh turns ranks into the loss and g.
template <class T> INLINE void weigh(Row<T> &r, Ranking<T> &q) {
  double n = double(r.count + r.negatives), value = 0;
  int form = int(r.p[2]);
  for (size_t k = 0; k < q.rank.size(); k++) {
    double slope;
    if (form == 0) {
      value += 1 - q.plus[k] / q.rank[k];
      slope = q.plus[k] / (q.rank[k] * q.rank[k]);
    } else {
      double missed = q.rank[k] - q.plus[k], log = std::log1p(missed);
      value += form == 1 ? log : std::log1p(log);
      slope = 1 / (1 + missed) / (form == 1 ? 1 : 1 + log);
    }
    q.step[k] = slope * n / double(r.count) * r.p[3];
  }
  r.out[0] = r.weight * value / double(r.count) * r.p[3];
}

// few compares every positive with every column: the quickest for few positives.
template <class T> INLINE void blackbox_few(Row<T> &r, Ranking<T> &q) {
  T half = T(r.p[1] / 2);
  double n = double(r.count + r.negatives);
  for (size_t k = 0; k < q.rank.size(); k++) {
    I<T> at = first_columns<T>();
    Total<T> behind;
    for (int64_t j = 0; j < r.width; j += Lanes<T>::width, at += Lanes<T>::width)
      behind.add(one_where<T>(before<T>(q.positive[k], r.column[k], load(r.negative + j) + half, at)));
    q.plus[k] = rank_among(q.positive, k);
    // Columns that are no negatives are -inf, behind every positive.
    q.rank[k] = q.plus[k] + double(r.width) - behind.value();
  }
  weigh(r, q);
  if (!r.backward) return;
  std::vector<T> moved(q.positive);
  for (size_t k = 0; k < moved.size(); k++) moved[k] = q.positive[k] + T(r.p[0] * q.step[k]);
  double by = r.weight / (r.p[0] * n);
  for (size_t k = 0; k < moved.size(); k++) {
    I<T> at = first_columns<T>();
    Total<T> behind;
    for (int64_t j = 0; j < r.width; j += Lanes<T>::width, at += Lanes<T>::width) {
      V<T> negative = load(r.negative + j) + half;
      V<T> now = one_where<T>(before<T>(moved[k], r.column[k], negative, at));
      V<T> then = one_where<T>(before<T>(q.positive[k], r.column[k], negative, at));
      behind.add(now);
      store(r.gradient + j, load(r.gradient + j) + (now - then) * T(by));
    }
    double rank = rank_among(moved, k) + double(r.width) - behind.value();
    r.positive_gradient[k] += T(by * (rank - q.rank[k]));
  }
}

// Entry is a column under a key that sorts scores descending.
template <class T> struct Entry {
  typename Lanes<T>::Bits key;
  int32_t column;
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
template <class T> void radix_sort(std::vector<Entry<T>> &entries, std::vector<Entry<T>> &space) {
  constexpr int bits = 11, digits = (int(sizeof(typename Lanes<T>::Bits)) * 8 + bits - 1) / bits;
  constexpr size_t buckets = size_t(1) << bits;
  space.resize(entries.size());
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

// sorted sorts negatives and positives once each; merging them gives all ranks.
// For many positives this is the quicker way: a few passes over the row.
template <class T> void blackbox_many(Row<T> &r, Ranking<T> &q) {
  T half = T(r.p[1] / 2);
  double n = double(r.count + r.negatives);
  std::vector<Entry<T>> negatives, positives, space;
  negatives.reserve(size_t(r.negatives));
  for (int64_t j = 0; j < r.width; j++)
    if (r.negative[j] != -std::numeric_limits<T>::infinity()) negatives.push_back({descending<T>(r.negative[j] + half), int32_t(j)});
  radix_sort<T>(negatives, space);
  auto order = [&](const std::vector<T> &score) {
    positives.resize(score.size());
    for (size_t k = 0; k < score.size(); k++) positives[k] = {descending<T>(score[k]), int32_t(k)};
    radix_sort<T>(positives, space);
  };
  // first says whether positive e stands before the negative.
  auto first = [&](const Entry<T> &e, const Entry<T> &negative) {
    return e.key < negative.key || (e.key == negative.key && r.column[e.column] < negative.column);
  };
  order(q.positive);
  size_t at = 0;
  std::vector<uint32_t> then(negatives.size()); // positives before each negative
  for (size_t i = 0; i < positives.size(); i++) {
    for (; at < negatives.size() && !first(positives[i], negatives[at]); at++) then[at] = uint32_t(i);
    q.plus[size_t(positives[i].column)] = double(i + 1);
    q.rank[size_t(positives[i].column)] = double(i + 1 + at);
  }
  for (; at < negatives.size(); at++) then[at] = uint32_t(positives.size());
  weigh(r, q);
  if (!r.backward) return;
  for (size_t k = 0; k < q.positive.size(); k++) q.positive[k] += T(r.p[0] * q.step[k]);
  order(q.positive);
  double by = r.weight / (r.p[0] * n);
  at = 0;
  for (size_t i = 0; i <= positives.size(); i++) {
    for (; at < negatives.size() && (i == positives.size() || !first(positives[i], negatives[at])); at++)
      r.gradient[negatives[at].column] += T(by * (double(i) - double(then[at])));
    if (i == positives.size()) break;
    size_t k = size_t(positives[i].column);
    r.positive_gradient[k] += T(by * (double(i + 1 + at) - q.rank[k]));
  }
}

template <class T> INLINE void blackbox(Row<T> &r) {
  if (r.count == 0) return;
  Ranking<T> q;
  T half = T(r.p[1] / 2);
  size_t count = size_t(r.count);
  q.positive.resize(count);
  q.rank.resize(count);
  q.plus.resize(count);
  q.step.resize(count);
  for (size_t k = 0; k < count; k++) q.positive[k] = r.positive[k] - half;
  if (r.count <= 32)
    blackbox_few(r, q);
  else
    blackbox_many(r, q);
}

// ---- pairs and triplets ----------------------------------------------------------------------------

// hinge sums [floor - s]+ over positives and [s - ceiling]+ over negatives where
// they are above least, and adds their gradients times a factor each.
template <class T>
INLINE void hinge(Row<T> &r, double least, double by_positive, double by_negative) {
  T floor = T(r.p[0]), ceiling = T(r.p[1]), bar = T(least);
  double pull = 0, pulled = 0;
  for (int64_t k = 0; k < r.count; k++) {
    T x = floor - r.positive[k];
    if (!(x > bar)) continue;
    pull += x;
    pulled++;
    if (r.backward) r.positive_gradient[k] -= T(r.weight * by_positive);
  }
  Total<T> push, pushed;
  T by = T(r.weight * by_negative);
  for (int64_t j = 0; j < r.width; j += Lanes<T>::width) {
    V<T> x = load(r.negative + j) - ceiling;
    I<T> over = x > bar;
    push.add(pick<T>(over, x, V<T>{}));
    pushed.add(one_where<T>(over));
    if (r.backward) store(r.gradient + j, load(r.gradient + j) + pick<T>(over, all<T>(by), V<T>{}));
  }
  r.out[0] = r.weight * (by_positive * pull + by_negative * push.value());
  r.out[1] = pulled;
  r.out[2] = pushed.value();
}

// most_similar is the first column of the highest negative; false without one,
// or when scores that overflowed have made it NaN.
template <class T> INLINE bool most_similar(const Row<T> &r, int64_t &column) {
  if (r.negatives == 0) return false;
  V<T> best = all<T>(-std::numeric_limits<T>::infinity());
  for (int64_t j = 0; j < r.width; j += Lanes<T>::width) best = larger<T>(best, load(r.negative + j));
  T most = best[0];
  for (int i = 1; i < Lanes<T>::width; i++) most = std::max(most, T(best[i]));
  for (column = 0; column < r.width; column++)
    if (r.negative[column] == most) return true;
  return false;
}

template <class T> INLINE void one_triplet(Row<T> &r, bool hard) {
  int64_t j;
  if (r.count == 0 || !most_similar(r, j)) return;
  int64_t k = 0;
  for (int64_t o = 1; o < r.count; o++)
    if (hard ? r.positive[o] < r.positive[k] : r.positive[o] > r.positive[k]) k = o;
  T x = (r.negative[j] - r.positive[k]) + T(r.p[0]);
  if (!(x > 0)) return;
  double by = r.weight * r.p[2];
  r.out[0] = by * x;
  r.out[1] = 1;
  if (!r.backward) return;
  r.gradient[j] += T(by);
  r.positive_gradient[k] -= T(by);
}

template <class T> INLINE void triplet(Row<T> &r) {
  int mining = int(r.p[1]);
  if (mining >= 2) return one_triplet(r, mining == 2);
  T margin = T(r.p[0]), by = T(r.weight * r.p[2]);
  double value = 0, count = 0;
  for (int64_t k = 0; k < r.count; k++) {
    Total<T> terms, active;
    for (int64_t j = 0; j < r.width; j += Lanes<T>::width) {
      V<T> gap = load(r.negative + j) - r.positive[k];
      V<T> x = gap + margin;
      I<T> in = x > 0;
      if (mining == 1) in &= gap < 0;
      V<T> one = one_where<T>(in);
      terms.add(pick<T>(in, x, V<T>{}));
      active.add(one);
      if (r.backward) store(r.gradient + j, load(r.gradient + j) + one * by);
    }
    double n = active.value();
    value += terms.value();
    count += n;
    if (r.backward) r.positive_gradient[k] -= T(r.weight * r.p[2] * n);
  }
  r.out[0] = r.weight * r.p[2] * value;
  r.out[1] = count;
}

template <class T> INLINE void multisimilarity(Row<T> &r) {
  int64_t top;
  if (r.count == 0 || !most_similar(r, top)) return;
  double alpha = r.p[0], beta = r.p[1], base = r.p[2];
  T epsilon = T(r.p[3]), most = r.negative[top], least = r.positive[0];
  for (int64_t k = 1; k < r.count; k++) least = std::min(least, r.positive[k]);
  // ln(1 + sum e^x) = m + ln(e^-m + sum e^(x-m)), m the largest mined exponent or 0
  double m = least - epsilon < most ? std::max(0.0, -alpha * (double(least) - base)) : 0, sum = std::exp(-m);
  for (int64_t k = 0; k < r.count; k++)
    if (r.positive[k] - epsilon < most) sum += std::exp(-alpha * (double(r.positive[k]) - base) - m);
  double value = (m + std::log(sum)) / alpha;
  for (int64_t k = 0; r.backward && k < r.count; k++)
    if (r.positive[k] - epsilon < most) r.positive_gradient[k] -= T(r.weight * std::exp(-alpha * (double(r.positive[k]) - base) - m) / sum);

  m = most + epsilon > least ? std::max(0.0, beta * (double(most) - base)) : 0;
  Total<T> total;
  for (int64_t j = 0; j < r.width; j += Lanes<T>::width) {
    V<T> s = load(r.negative + j);
    V<T> e = exp_negative<T>(larger<T>(T(m) - (s - T(base)) * T(beta), V<T>{}));
    e = pick<T>(s + epsilon > least, e, V<T>{});
    total.add(e);
    store(r.slope + j, e);
  }
  sum = std::exp(-m) + total.value();
  value += (m + std::log(sum)) / beta;
  if (r.backward) add_scaled(r.gradient, r.slope, r.width, r.weight / sum);
  r.out[0] = r.weight * value;
}

// softmax is the cross-entropy of the only positive: ln sum e^x - x_k of
// x = factor s, without the positive in the sum if apart.
template <class T> INLINE void softmax(Row<T> &r) {
  T factor = T(r.p[0]);
  bool apart = r.p[1] != 0;
  int64_t top;
  if (r.count != 1 || (!most_similar(r, top) && apart)) return;
  T own = r.positive[0] * factor, most = r.negatives > 0 ? r.negative[top] * factor : own;
  if (!apart) most = std::max(most, own);
  Total<T> total;
  for (int64_t j = 0; j < r.width; j += Lanes<T>::width) {
    V<T> s = load(r.negative + j);
    V<T> e = exp_negative<T>(larger<T>(most - s * factor, V<T>{}));
    e = pick<T>(s == -std::numeric_limits<T>::infinity(), V<T>{}, e);
    total.add(e);
    store(r.slope + j, e);
  }
  double mine = apart ? 0 : std::exp(double(own) - double(most)), sum = total.value() + mine;
  r.out[0] = r.weight * (double(most) + std::log(sum) - double(own));
  if (!r.backward) return;
  add_scaled(r.gradient, r.slope, r.width, r.weight * r.p[0] / sum);
  r.positive_gradient[0] += T(r.weight * r.p[0] * (mine / sum - 1));
}

// ---- the pass --------------------------------------------------------------------------------------

template <class T> void evaluate(Row<T> &r, int kind) {
  switch (kind) {
  case RT_RANK_AP: return average_precision<false>(r, Heaviside<T>());
  case RT_RANK_SMOOTHAP: return average_precision<true>(r, Sigmoid<T>(r.p));
  case RT_RANK_SUPAP: return average_precision<false>(r, UpperBound<T>(r.p));
  case RT_RANK_RECALL: return recall(r);
  case RT_RANK_HISTOGRAM: return histogram(r);
  case RT_RANK_BLACKBOX: return blackbox(r);
  case RT_RANK_HINGE_QUERY:
    return hinge(r, 0, 1 / double(std::max<int64_t>(r.count, 1)), 1 / double(std::max<int64_t>(r.negatives, 1)));
  case RT_RANK_HINGE_PAIRS: return hinge(r, r.p[2], r.p[3], r.p[4]);
  case RT_RANK_TRIPLET: return triplet(r);
  case RT_RANK_MULTISIMILARITY: return multisimilarity(r);
  case RT_RANK_SOFTMAX: return softmax(r);
  }
}

// read sorts the scores of a query into positives and negatives.
template <class T> void read(const rt_rank_job &job, const T *scores, int64_t query, Row<T> &r, std::vector<T> &space, std::vector<int32_t> &columns) {
  const T none = -std::numeric_limits<T>::infinity();
  const int32_t *member = job.members + job.class_at[job.class_of[query]], *members_end = job.members + job.class_at[job.class_of[query] + 1];
  const int32_t *never = job.never ? job.never + job.never_at[query] : nullptr, *never_end = job.never ? job.never + job.never_at[query + 1] : nullptr;
  memcpy(r.negative, scores, size_t(job.columns) * sizeof(T));
  for (int64_t j = 0; job.clamp && j < r.width; j += Lanes<T>::width)
    store(r.negative + j, smaller<T>(larger<T>(load(r.negative + j), all<T>(-1)), all<T>(1)));
  std::fill(r.negative + job.columns, r.negative + r.width, none); // padding
  r.negatives = job.columns - (never_end - never);
  for (const int32_t *n = never; n < never_end; n++) r.negative[*n] = none;
  columns.clear();
  for (const int32_t *n = never; member < members_end; member++) {
    while (n < never_end && *n < *member) n++;
    if (n == never_end || *n != *member) columns.push_back(*member);
  }
  r.count = int64_t(columns.size());
  r.negatives -= r.count;
  r.column = columns.data();
  r.room = (r.count + Lanes<T>::width - 1) / Lanes<T>::width * Lanes<T>::width;
  if (space.size() < size_t(3 * r.room)) space.resize(size_t(3 * r.room));
  r.positive = space.data();
  r.positive_slope = r.positive + r.room;
  r.positive_gradient = r.positive_slope + r.room;
  for (int64_t k = 0; k < r.count; k++) {
    r.positive[k] = r.negative[r.column[k]];
    r.negative[r.column[k]] = none;
  }
  std::fill(r.positive + r.count, r.positive + r.room, none);
}

template <class T> void rows(const rt_rank_job &job, int64_t begin, int64_t end) {
  Row<T> r;
  r.width = (job.columns + Lanes<T>::width - 1) / Lanes<T>::width * Lanes<T>::width;
  r.backward = job.backward != 0;
  std::vector<T> space(size_t(3 * r.width), -std::numeric_limits<T>::infinity()), positives;
  std::vector<int32_t> columns;
  r.negative = space.data();
  r.slope = r.negative + r.width;
  r.gradient = r.slope + r.width;
  for (int64_t i = begin; i < end; i++) {
    T *scores = static_cast<T *>(job.scores) + i * job.columns;
    read(job, scores, job.query + i, r, positives, columns);
    if (r.backward) {
      std::fill(r.gradient, r.gradient + r.width, T(0));
      std::fill(r.positive_gradient, r.positive_gradient + r.room, T(0));
    }
    for (int t = 0; t < job.term_count; t++) {
      const rt_rank_term &term = job.terms[t];
      r.weight = term.weight;
      r.p = job.p + term.first;
      r.parameters = term.count;
      r.out = job.out + (i * job.term_count + t) * RT_RANK_OUT;
      for (int o = 0; o < RT_RANK_OUT; o++) r.out[o] = 0;
      evaluate(r, term.kind);
    }
    if (!r.backward) continue;
    for (int64_t j = 0; j < r.width; j += Lanes<T>::width) { // subnormal numbers would slow the products that follow down
      V<T> g = load(r.gradient + j);
      put_row(scores, j, job.columns, pick<T>(larger<T>(g, -g) < Lanes<T>::tiny, V<T>{}, g));
    }
    for (int64_t k = 0; k < r.count; k++) {
      T g = r.positive_gradient[k];
      scores[r.column[k]] = std::abs(g) < Lanes<T>::tiny ? T(0) : g;
    }
    if (job.never)
      for (int64_t n = job.never_at[job.query + i]; n < job.never_at[job.query + i + 1]; n++) scores[job.never[n]] = 0;
  }
}

// ---- rows of embeddings ----------------------------------------------------------------------------

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
    state[i] = not_finite != 0 ? RT_ROW_NOT_FINITE : largest == 0 ? RT_ROW_ZERO : RT_ROW_GOOD;
    if (state[i] != RT_ROW_GOOD) continue;
    T shrunk = T(std::sqrt(dot(row, row, largest, d)));
    for (int64_t j = 0; j < d; j += Lanes<T>::width) put_row(unit + i * d, j, d, at_row(row, j, d) / largest / shrunk);
    length[i] = shrunk * largest;
  }
}

// unit_rows_back takes from a gradient its part along the row and divides the
// rest by the row's length.
template <class T> void unit_rows_back(T *grad, const T *unit, const T *length, int64_t d, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    T *g = grad + i * d;
    const T *u = unit + i * d;
    T along = T(dot(g, u, T(1), d));
    for (int64_t j = 0; j < d; j += Lanes<T>::width) put_row(g, j, d, (at_row(g, j, d) - at_row(u, j, d) * along) / length[i]);
  }
}

#undef INLINE
