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
#include "rank_rows.h"
}

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2")
namespace avx2 {
#include "rank_rows.h"
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2,prefer-vector-width=512")
namespace avx512 {
#include "rank_rows.h"
}
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

int best() {
  static const int level = has(3) ? 3 : has(2) ? 2 : 1;
  return level;
}

// PICK calls the version of a function for an instruction set and an element type.
#if defined(__x86_64__)
#define PICK(level, call)                \
  switch ((level) ? (level) : best()) { \
  case 3: avx512::call; break;          \
  case 2: avx2::call; break;            \
  default: baseline::call;              \
  }
#else
#define PICK(level, call) baseline::call
#endif

// hash_row mixes the bytes of a row, in eight streams that do not wait for each
// other, with the multiplier of Knuth's linear congruential generator MMIX.
uint64_t hash_row(const unsigned char *row, int64_t bytes) {
  constexpr uint64_t factor = 6364136223846793005u;
  uint64_t stream[8] = {1, 2, 3, 4, 5, 6, 7, 8}, word[8], all = uint64_t(bytes);
  int64_t at = 0;
  for (; at + 64 <= bytes; at += 64) {
    memcpy(word, row + at, 64);
    for (int i = 0; i < 8; i++) stream[i] = (stream[i] ^ word[i]) * factor + (stream[i] >> 32);
  }
  if (at < bytes) {
    memset(word, 0, 64);
    memcpy(word, row + at, size_t(bytes - at));
    for (int i = 0; i < 8; i++) stream[i] = (stream[i] ^ word[i]) * factor + (stream[i] >> 32);
  }
  for (uint64_t s : stream) all = (all ^ s ^ (s >> 29)) * factor;
  return all ^ (all >> 32);
}

// add_transposed works through pairs of blocks, (i, j) and (j, i), that fit into
// the cache together; a block is turned in a buffer so that memory is read and
// written along its rows.
template <class T> void add_transposed(T *a, int64_t n, int64_t begin, int64_t end) {
  constexpr int64_t block = RT_TRANSPOSE_BLOCK;
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

extern "C" {

int rt_rank_has(int level) { return has(level); }

int rt_rank_rows(const rt_rank_job *job, int64_t begin, int64_t end) {
  try {
    if (job->is_double)
      PICK(job->level, rows<double>(*job, begin, end))
    else
      PICK(job->level, rows<float>(*job, begin, end))
    return 0;
  } catch (const std::bad_alloc &) {
    return -1;
  }
}

void rt_unit_rows(const void *x, void *unit, void *length, uint8_t *state, int64_t d, int is_double, int level, int64_t begin, int64_t end) {
  if (is_double)
    PICK(level, unit_rows(static_cast<const double *>(x), static_cast<double *>(unit), static_cast<double *>(length), state, d, begin, end))
  else
    PICK(level, unit_rows(static_cast<const float *>(x), static_cast<float *>(unit), static_cast<float *>(length), state, d, begin, end))
}

void rt_unit_rows_back(void *grad, const void *unit, const void *length, int64_t d, int is_double, int level, int64_t begin, int64_t end) {
  if (is_double)
    PICK(level, unit_rows_back(static_cast<double *>(grad), static_cast<const double *>(unit), static_cast<const double *>(length), d, begin, end))
  else
    PICK(level, unit_rows_back(static_cast<float *>(grad), static_cast<const float *>(unit), static_cast<const float *>(length), d, begin, end))
}

void rt_hash_rows(const void *x, uint64_t *hash, int64_t row_bytes, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) hash[i] = hash_row(static_cast<const unsigned char *>(x) + i * row_bytes, row_bytes);
}

void rt_add_transposed(void *a, int64_t n, int is_double, int64_t begin, int64_t end) {
  if (is_double)
    add_transposed(static_cast<double *>(a), n, begin, end);
  else
    add_transposed(static_cast<float *>(a), n, begin, end);
}
}
