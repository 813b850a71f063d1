// Sums of a step function: the ranks of SupAP, Smooth-AP and AP, and triplets.
// A step gives its value at t, and its derivative as d.

template <class T> struct Heaviside {
  explicit Heaviside(const sc_step &) {}
  INLINE_MEMBER V<T> operator()(V<T> t, V<T> &d) const {
    d = V<T>{};
    return one_where<T>(t >= 0);
  }
};

template <class T> struct Sigmoid {
  T per_tau;
  explicit Sigmoid(const sc_step &s) : per_tau(T(1 / s.tau)) {}
  INLINE_MEMBER V<T> operator()(V<T> t, V<T> &d) const {
    V<T> s = sigmoid<T>(t * per_tau, d);
    d *= per_tau;
    return s;
  }
};

template <class T> struct UpperBound {
  T per_tau, rho, delta, start, offset;
  bool zero_is_low;
  explicit UpperBound(const sc_step &s)
      : per_tau(T(1 / s.tau)), rho(T(s.rho)), delta(T(s.delta)), start(T(s.start)), offset(T(s.offset)), zero_is_low(s.zero_is_low != 0) {}
  INLINE_MEMBER V<T> operator()(V<T> t, V<T> &d) const {
    V<T> s = sigmoid<T>(t * per_tau, d);
    I<T> up = zero_is_low ? t > 0 : t >= 0;
    I<T> far = t > delta;
    d = pick<T>(far, all<T>(rho), d * per_tau);
    return pick<T>(far, (t - delta) * rho + offset, s + pick<T>(up, all<T>(start), V<T>{}));
  }
};

// Hinge is t + margin where that is above least, or with Active whether it is.
template <class T, bool Active> struct Hinge {
  T margin, least;
  bool below;
  explicit Hinge(const sc_step &s) : margin(T(s.margin)), least(T(s.least)), below(s.below != 0) {}
  INLINE_MEMBER V<T> operator()(V<T> t, V<T> &d) const {
    V<T> x = t + margin;
    I<T> in = x > least;
    if (below) in &= t < 0;
    d = Active ? V<T>{} : one_where<T>(in);
    return pick<T>(in, Active ? all<T>(1) : x, V<T>{});
  }
};

template <class T, class Step>
void sums_of(const Step &step, sc_matrix x, sc_matrix thresholds, double start, double padding, double *sums, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    const T *row = static_cast<const T *>(x.data) + i * x.columns, *at = static_cast<const T *>(thresholds.data) + i * thresholds.columns;
    for (int64_t k = 0; k < thresholds.columns; k++) {
      double &sum = sums[i * thresholds.columns + k];
      sum = padding;
      if (at[k] == none<T>) continue;
      Total<T> total;
      for (int64_t j = 0; j < x.columns; j += Lanes<T>::width) {
        V<T> d;
        total.add(step(at_row(row, j, x.columns, none<T>) - at[k], d));
      }
      sum = start + total.value();
    }
  }
}

template <class T, class Step>
void sums_backward_of(const Step &step, sc_matrix x, sc_matrix thresholds, const double *gradient, T *by_x, T *by_thresholds, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    const T *row = static_cast<const T *>(x.data) + i * x.columns, *at = static_cast<const T *>(thresholds.data) + i * thresholds.columns;
    const double *g = gradient + i * thresholds.columns;
    T *to = by_x + i * x.columns, *to_threshold = by_thresholds + i * thresholds.columns;
    std::fill(to, to + x.columns, T(0));
    for (int64_t k = 0; k < thresholds.columns; k++) {
      to_threshold[k] = 0;
      if (at[k] == none<T> || g[k] == 0) continue;
      Total<T> slopes;
      T by = T(g[k]);
      for (int64_t j = 0; j < x.columns; j += Lanes<T>::width) {
        V<T> d;
        step(at_row(row, j, x.columns, none<T>) - at[k], d);
        slopes.add(d);
        put_row(to, j, x.columns, at_row(to, j, x.columns) + d * by);
      }
      to_threshold[k] = T(-g[k] * slopes.value());
    }
  }
}

// WITH_STEP calls a function with the step function that is asked for.
#define WITH_STEP(step, call, ...)                                             \
  switch ((step).kind) {                                                       \
  case SC_HEAVISIDE: return call<T>(Heaviside<T>(step), __VA_ARGS__);          \
  case SC_SIGMOID: return call<T>(Sigmoid<T>(step), __VA_ARGS__);              \
  case SC_UPPER_BOUND: return call<T>(UpperBound<T>(step), __VA_ARGS__);       \
  case SC_HINGE: return call<T>(Hinge<T, false>(step), __VA_ARGS__);           \
  case SC_HINGE_ACTIVE: return call<T>(Hinge<T, true>(step), __VA_ARGS__);     \
  }

template <class T> void sums(const sc_step &step, sc_matrix x, sc_matrix thresholds, double start, double padding, double *out, int64_t begin, int64_t end) {
  WITH_STEP(step, sums_of, x, thresholds, start, padding, out, begin, end)
}

template <class T>
void sums_backward(const sc_step &step, sc_matrix x, sc_matrix thresholds, const double *gradient, void *by_x, void *by_thresholds, int64_t begin, int64_t end) {
  WITH_STEP(step, sums_backward_of, x, thresholds, gradient, static_cast<T *>(by_x), static_cast<T *>(by_thresholds), begin, end)
}

#undef WITH_STEP
