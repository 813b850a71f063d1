// Vectors of scores, compiled once for each instruction set: no include guard.
// The includer opens a namespace and selects the instructions.
//
// Vectors are GCC's, 64 bytes wide; where registers are narrower the compiler
// splits them, so the order of additions is the same everywhere.

template <class T> struct Lanes;
template <> struct Lanes<float> {
  typedef float V __attribute__((vector_size(64)));
  typedef int32_t I __attribute__((vector_size(64)));
  typedef int32_t Index;
  typedef uint32_t Bits;
  static constexpr int width = 16, mantissa = 23, bias = 127, degree = 7; // degree: of the polynomial of e^r
  static constexpr float largest = 87.0f;     // e^-87 is still a normal number
  static constexpr float tiny = 0x1p-100f;   // gradients below are 0
  static constexpr float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to whole numbers
  static constexpr float ln2_high = 0.693145751953125f, ln2_low = 1.42860682030941723212e-6f;
};
template <> struct Lanes<double> {
  typedef double V __attribute__((vector_size(64)));
  typedef int64_t I __attribute__((vector_size(64)));
  typedef int64_t Index;
  typedef uint64_t Bits;
  static constexpr int width = 8, mantissa = 52, bias = 1023, degree = 13;
  static constexpr double largest = 708.0, tiny = 0x1p-960;
  static constexpr double magic = 6755399441055744.0;
  static constexpr double ln2_high = 6.93147180369123816490e-1, ln2_low = 1.90821492927058770002e-10;
};

#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER __attribute__((always_inline))

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

// at_row reads the vector at j of a row of d elements, and beyond its end.
template <class T> INLINE V<T> at_row(const T *row, int64_t j, int64_t d, T beyond = 0) {
  if (j + Lanes<T>::width <= d) return load(row + j);
  T lane[Lanes<T>::width];
  for (int64_t i = 0; i < Lanes<T>::width; i++) lane[i] = j + i < d ? row[j + i] : beyond;
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
  INLINE_MEMBER void add(V<T> v) {
    part += v;
    if (++n == 64) flush(*this);
  }
  INLINE_MEMBER double value() {
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

// sigmoid returns the logistic function of x and its derivative, both to full
// relative precision in the tails.
template <class T> INLINE V<T> sigmoid(V<T> x, V<T> &derivative) {
  V<T> e = exp_negative<T>(larger<T>(x, -x));
  V<T> inverse = 1 / (1 + e);
  V<T> small = e * inverse;
  derivative = small * inverse;
  return pick<T>(x >= 0, inverse, small);
}

// none stands for no entry.
template <class T> constexpr T none = -std::numeric_limits<T>::infinity();
