#include "rank.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

// Vectors passed between functions that are always inlined have no ABI to mind.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace baseline {
#include "rank_rows.hpp"
}

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2")
namespace avx2 {
#include "rank_rows.hpp"
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2,prefer-vector-width=512")
namespace avx512 {
#include "rank_rows.hpp"
}
#pragma GCC pop_options
#endif

namespace {

typedef void (*Rows)(const rt_rank_job &, int64_t, int64_t);

// best is the widest version that this processor runs.
Rows best(bool is_double) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return is_double ? avx512::rows<double> : avx512::rows<float>;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return is_double ? avx2::rows<double> : avx2::rows<float>;
#endif
  return is_double ? baseline::rows<double> : baseline::rows<float>;
}

template <class T> void add_transposed(T *a, int64_t n, int64_t begin, int64_t end) {
  const int64_t block = RT_TRANSPOSE_BLOCK;
  for (int64_t bi = begin; bi < end; bi++)
    for (int64_t bj = bi; bj * block < n; bj++)
      for (int64_t i = bi * block; i < std::min(n, (bi + 1) * block); i++)
        for (int64_t j = std::max(i, bj * block); j < std::min(n, (bj + 1) * block); j++) {
          T sum = a[i * n + j] + a[j * n + i];
          a[i * n + j] = sum;
          a[j * n + i] = sum;
        }
}

} // namespace

extern "C" {

int rt_rank_rows(const rt_rank_job *job, int64_t begin, int64_t end) {
  try {
    best(job->is_double != 0)(*job, begin, end);
    return 0;
  } catch (const std::bad_alloc &) {
    return -1;
  }
}

void rt_add_transposed(void *a, int64_t n, int is_double, int64_t begin, int64_t end) {
  if (is_double)
    add_transposed(static_cast<double *>(a), n, begin, end);
  else
    add_transposed(static_cast<float *>(a), n, begin, end);
}
}
