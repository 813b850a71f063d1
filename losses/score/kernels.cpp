#include "kernels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

// Vectors passed between functions that are always inlined have no ABI to mind.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace baseline {
#include "lanes.h"

#include "histogram.h"
#include "ranks.h"
#include "rows.h"
#include "sums.h"
} // namespace baseline

#if defined(__x86_64__)
#undef INLINE
#undef INLINE_MEMBER
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2")
namespace avx2 {
#include "lanes.h"

#include "histogram.h"
#include "ranks.h"
#include "rows.h"
#include "sums.h"
} // namespace avx2
#pragma GCC pop_options

#undef INLINE
#undef INLINE_MEMBER
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2,prefer-vector-width=512")
namespace avx512 {
#include "lanes.h"

#include "histogram.h"
#include "ranks.h"
#include "rows.h"
#include "sums.h"
} // namespace avx512
#pragma GCC pop_options
#endif

namespace {

bool has(int level) {
#if defined(__x86_64__)
  if (level == 3)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (level == 2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return level == 1;
}

int level(const sc_run &run) {
  static const int best = has(3) ? 3 : has(2) ? 2 : 1;
  return run.level ? run.level : best;
}

// share calls f with ranges of rows on several threads, or on the calling one
// where waking others would take longer: as long as some 30,000 elements do.
template <class F> int share(const sc_run &run, int64_t rows, int64_t elements, F f) {
  int64_t threads = std::min<int64_t>({run.threads, rows, rows * elements / 32768});
  std::atomic<int> refused{0};
  auto part = [&](int64_t i, int64_t n) {
    try {
      f(rows * i / n, rows * (i + 1) / n);
    } catch (const std::bad_alloc &) {
      refused = -1;
    }
  };
  if (threads <= 1) {
    part(0, 1);
    return refused;
  }
#pragma omp parallel for schedule(static, 1) num_threads(int(threads))
  for (int64_t i = 0; i < threads; i++) part(i, threads);
  return refused;
}

// PICK calls the version of a function template for an instruction set and an
// element type, T in its arguments.
#define TYPED(space, name, ...)         \
  do {                                  \
    if (run.is_double) {                \
      typedef double T;                 \
      space::name<T>(__VA_ARGS__);      \
    } else {                            \
      typedef float T;                  \
      space::name<T>(__VA_ARGS__);      \
    }                                   \
  } while (0)
#if defined(__x86_64__)
#define PICK(name, ...)                                   \
  switch (level(run)) {                                   \
  case 3: TYPED(avx512, name, __VA_ARGS__); break;        \
  case 2: TYPED(avx2, name, __VA_ARGS__); break;          \
  default: TYPED(baseline, name, __VA_ARGS__);            \
  }
#else
#define PICK(name, ...) TYPED(baseline, name, __VA_ARGS__)
#endif

// hash_row mixes the bytes of a row, in eight streams that do not wait for each
// other, with the multiplier of Knuth's linear congruential generator MMIX.
uint64_t hash_row(const unsigned char *row, int64_t bytes) {
  constexpr uint64_t factor = 6364136223846793005u;
  uint64_t stream[8] = {1, 2, 3, 4, 5, 6, 7, 8}, word[8], all = uint64_t(bytes);
  for (int64_t at = 0; at < bytes; at += 64) {
    if (at + 64 <= bytes) {
      memcpy(word, row + at, 64);
    } else {
      memset(word, 0, 64);
      memcpy(word, row + at, size_t(bytes - at));
    }
    for (int i = 0; i < 8; i++) stream[i] = (stream[i] ^ word[i]) * factor + (stream[i] >> 32);
  }
  for (uint64_t s : stream) all = (all ^ s ^ (s >> 29)) * factor;
  return all ^ (all >> 32);
}

constexpr int64_t block = 32;

// add_transposed works through pairs of blocks, (i, j) and (j, i), of block
// rows begin to end, that fit into the cache together; a block is turned in a
// buffer so that memory is read and written along its rows.
template <class T> void add_transposed(T *a, int64_t n, int64_t begin, int64_t end) {
  T turned[block][block];
  for (int64_t bi = begin; bi < end; bi++) {
    int64_t i0 = bi * block, rows = std::min(block, n - i0);
    for (int64_t j0 = i0; j0 < n; j0 += block) {
      int64_t columns = std::min(block, n - j0);
      for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++) turned[i][j] = a[(j0 + j) * n + i0 + i];
      for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) turned[i][j] += a[(i0 + i) * n + j0 + j];
      for (int64_t i = 0; i < rows; i++) memcpy(a + (i0 + i) * n + j0, turned[i], size_t(columns) * sizeof(T));
      if (i0 == j0) continue;
      for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++) a[(j0 + j) * n + i0 + i] = turned[i][j];
    }
  }
}

} // namespace

constexpr int64_t step_work = 8; // a step function takes as long as that many elements of a copy

extern "C" {

int sc_has(int level) { return has(level); }

int sc_split(sc_run run, sc_matrix scores, const sc_lists *lists, int64_t first, sc_matrix negatives, sc_matrix positives, int64_t *column) {
  return share(run, scores.rows, scores.columns,
               [&](int64_t begin, int64_t end) { PICK(split, scores, *lists, first, negatives, positives, column, begin, end); });
}

int sc_join(sc_run run, sc_matrix scores, const sc_lists *lists, int64_t first, sc_matrix negatives, sc_matrix positives) {
  return share(run, scores.rows, scores.columns,
               [&](int64_t begin, int64_t end) { PICK(join, scores, *lists, first, negatives, positives, begin, end); });
}

int sc_sums(sc_run run, sc_matrix x, sc_matrix thresholds, const sc_step *step, double start, double padding, double *sums) {
  return share(run, x.rows, x.columns * thresholds.columns * step_work,
               [&](int64_t begin, int64_t end) { PICK(sums, *step, x, thresholds, start, padding, sums, begin, end); });
}

int sc_sums_backward(sc_run run, sc_matrix x, sc_matrix thresholds, const sc_step *step, const double *gradient, void *by_x, void *by_thresholds) {
  return share(run, x.rows, x.columns * thresholds.columns * step_work,
               [&](int64_t begin, int64_t end) { PICK(sums_backward, *step, x, thresholds, gradient, by_x, by_thresholds, begin, end); });
}

int sc_histogram(sc_run run, sc_matrix x, const sc_bins *bins, double *counts) {
  return share(run, x.rows, x.columns, [&](int64_t begin, int64_t end) { PICK(histogram, *bins, x, counts, begin, end); });
}

int sc_histogram_backward(sc_run run, sc_matrix x, const sc_bins *bins, const double *gradient, void *by_x) {
  return share(run, x.rows, x.columns, [&](int64_t begin, int64_t end) { PICK(histogram_backward, *bins, x, gradient, by_x, begin, end); });
}

int sc_ranks(sc_run run, const sc_ranking *ranking, double *rank, double *plus) {
  return share(run, ranking->negatives.rows, ranking->negatives.columns,
               [&](int64_t begin, int64_t end) { PICK(ranks, *ranking, rank, plus, begin, end); });
}

int sc_ranks_backward(sc_run run, const sc_ranking *ranking, const double *rank, const double *gradient, void *by_negatives, void *by_positives) {
  return share(run, ranking->negatives.rows, ranking->negatives.columns,
               [&](int64_t begin, int64_t end) { PICK(ranks_backward, *ranking, rank, gradient, by_negatives, by_positives, begin, end); });
}

int sc_unit_rows(sc_run run, sc_matrix x, void *unit, void *length, uint8_t *state) {
  return share(run, x.rows, x.columns, [&](int64_t begin, int64_t end) {
    PICK(unit_rows, static_cast<const T *>(x.data), static_cast<T *>(unit), static_cast<T *>(length), state, x.columns, begin, end);
  });
}

int sc_unit_rows_backward(sc_run run, sc_matrix gradient, const void *unit, const void *length) {
  return share(run, gradient.rows, gradient.columns, [&](int64_t begin, int64_t end) {
    PICK(unit_rows_backward, static_cast<T *>(gradient.data), static_cast<const T *>(unit), static_cast<const T *>(length), gradient.columns, begin, end);
  });
}

int sc_hash_rows(sc_run run, sc_matrix x, uint64_t *hash) {
  int64_t bytes = x.columns * (run.is_double ? 8 : 4);
  return share(run, x.rows, x.columns, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) hash[i] = hash_row(static_cast<const unsigned char *>(x.data) + i * bytes, bytes);
  });
}

int sc_add_transposed(sc_run run, sc_matrix square) {
  int64_t n = square.rows, blocks = (n + block - 1) / block;
  auto add = [&](int64_t begin, int64_t end) {
    if (run.is_double)
      add_transposed(static_cast<double *>(square.data), n, begin, end);
    else
      add_transposed(static_cast<float *>(square.data), n, begin, end);
  };
  // A block row from the top and one from the bottom have together the same work everywhere.
  return share(run, (blocks + 1) / 2, n * block, [&](int64_t begin, int64_t end) {
    add(begin, end);
    add(std::max(blocks - end, end), blocks - begin);
  });
}
}
