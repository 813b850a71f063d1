// Histograms with triangular counts, of FastAP and SoftBin-AP.

// Places maps a score to a slot of a histogram and to how far it is in it. Bin
// b is slot b+1; what falls outside goes to slots that nobody reads.
template <class T> struct Places {
  T per_score, low, high, outside;
  explicit Places(const sc_bins &b)
      : per_score(T(b.per_score)), low(b.flat ? T(0) : T(-1)), high(T(b.flat ? b.bins - 1 : b.bins)), outside(T(b.bins + 1)) {}
  INLINE_MEMBER I<T> slot(V<T> score, V<T> &inside) const {
    V<T> u = (1 - score) * per_score;
    u = smaller<T>(larger<T>(u, all<T>(low)), all<T>(high)) + 1;
    u = pick<T>(score == none<T>, all<T>(outside), u);
    I<T> s = __builtin_convertvector(u, I<T>);
    inside = u - __builtin_convertvector(s, V<T>);
    return s;
  }
};

// histogram counts in four interleaved copies, so that an addition need not
// wait for the one before it.
template <class T> void histogram(const sc_bins &bins, sc_matrix x, double *counts, int64_t begin, int64_t end) {
  const Places<T> places(bins);
  const int64_t slots = bins.bins + 3;
  std::vector<double> copies(size_t(slots) * 4);
  for (int64_t i = begin; i < end; i++) {
    const T *row = static_cast<const T *>(x.data) + i * x.columns;
    std::fill(copies.begin(), copies.end(), 0.0);
    for (int64_t j = 0; j < x.columns; j += Lanes<T>::width) {
      V<T> inside;
      I<T> slot = places.slot(at_row(row, j, x.columns, none<T>), inside);
      T f[Lanes<T>::width];
      typename Lanes<T>::Bits s[Lanes<T>::width];
      memcpy(f, &inside, sizeof f);
      memcpy(s, &slot, sizeof s);
#pragma GCC unroll 16
      for (int l = 0; l < Lanes<T>::width; l++) {
        double *count = copies.data() + (l & 3) * slots + s[l];
        count[0] += 1 - double(f[l]);
        count[1] += double(f[l]);
      }
    }
    for (int64_t b = 0; b < bins.bins; b++) {
      const double *count = copies.data() + b + 1;
      counts[i * bins.bins + b] = count[0] + count[slots] + count[2 * slots] + count[3 * slots];
    }
  }
}

template <class T> void histogram_backward(const sc_bins &bins, sc_matrix x, const double *gradient, void *by_x, int64_t begin, int64_t end) {
  const Places<T> places(bins);
  std::vector<T> table(size_t(bins.bins) + 2); // derivative by a score in each slot
  for (int64_t i = begin; i < end; i++) {
    const T *row = static_cast<const T *>(x.data) + i * x.columns;
    const double *g = gradient + i * bins.bins;
    for (int64_t slot = 0; slot <= bins.bins; slot++) { // the place falls as the score rises
      double before = slot > 0 ? g[slot - 1] : 0, after = slot < bins.bins ? g[slot] : 0;
      table[size_t(slot)] = T(bins.per_score * (before - after));
    }
    T *to = static_cast<T *>(by_x) + i * x.columns;
    for (int64_t j = 0; j < x.columns; j += Lanes<T>::width) {
      V<T> inside;
      I<T> slot = places.slot(at_row(row, j, x.columns, none<T>), inside);
      T d[Lanes<T>::width];
      typename Lanes<T>::Bits s[Lanes<T>::width];
      memcpy(s, &slot, sizeof s);
#pragma GCC unroll 16
      for (int l = 0; l < Lanes<T>::width; l++) d[l] = table[s[l]];
      put_row(to, j, x.columns, pick<T>(inside > 0, load(d), V<T>{}));
    }
  }
}
