// What the kernels share: instructions, exact scores, the screen's bound, and
// a worker's tile of scores. See kernels.h for what they are called by.
#ifndef ROADMAP_EVAL_KNN_TILE_H
#define ROADMAP_EVAL_KNN_TILE_H
#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
// g++ 12 takes the undefined operands in its own intrinsics for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#define X86 1
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-int8,fma")))
#endif

namespace knn {

constexpr int LANES = 16; // of a sum, see score.cpp
constexpr float NONE = -std::numeric_limits<float>::infinity();

inline int64_t up16(int64_t n) { return (n + 15) / 16 * 16; }

inline void prefetch(const float *row, int width) {
  for (int k = 0; k < width; k += 16) __builtin_prefetch(row + k);
}

// ---- score.cpp: exact scores

// pair is the score of two rows.
float pair(const knn_plan &p, const float *a, const float *b);
// pairs computes the scores of n pairs of rows.
void pairs(const knn_plan &p, const float *const *a, const float *const *b, int n, float *scores);
// block computes the scores of na consecutive rows with nb consecutive ones.
void block(const knn_plan &p, const float *a, int64_t na, const float *b, int64_t nb, float *out, int64_t stride);

// ---- screen.cpp: scores in integers, and how far they may be off

struct Bound {
  float each, cross, floor; // |screened - exact| <= each (lost + lost') + cross low low' + floor
};

Bound bound(const knn_plan &p);

// The largest errors of some rows.
struct Most {
  float lost, low;
};

Most most(const knn_row *row, int64_t n);

inline float band(const Bound &b, const knn_row &row, const Most &m) { return b.each * (row.lost + m.lost) + b.cross * row.low * m.low + b.floor; }

#if X86
// screened fills out [rows, columns] with screened scores and turned with
// their transpose (unless null); both are -inf past the last row or column, up
// to the next multiples of 16 and 32.
void screened(const knn_plan &p, const knn_side &moving, const knn_side &fixed, int64_t from, int64_t columns, float *out, int64_t stride, float *turned,
              int64_t turned_stride);
#endif
// transpose handles multiples of 16.
void transpose(const knn_plan &p, const float *in, int64_t rows, int64_t columns, int64_t in_stride, float *out, int64_t out_stride);

// ---- tile.cpp: a tile of scores, and which of them lie within bounds

// tally counts, of n scores (a multiple of 16), those above high and those not below low.
struct Tally {
  int above, reach;
};

Tally tally(int isa, const float *s, int64_t n, float low, float high);

// between lists those of n scores (a multiple of 16, at most 256) in [low, high].
int between(int isa, const float *s, int64_t n, float low, float high, uint8_t *list);

// choose tells whether to screen the next tile.
bool choose(knn_worker *w, const knn_plan &p);
// learn notes how a tile was computed and how many comparisons were settled by exact scores.
void learn(knn_worker *w, bool screened, int64_t settled, int64_t pairs);
// compute fills the worker's scores [moving rows, columns], and the transpose
// if wanted; what lies past the last row or column is -inf up to the next
// multiple of 16.
void compute(knn_worker *w, const knn_plan &p, bool screen, const knn_side &moving, const knn_side &fixed, int64_t from, int64_t columns, bool turn);

// Unsure is a comparison that the screen leaves open.
struct Unsure {
  int32_t query, wanted; // row of its side; which of its wanted items
  uint8_t level, row;    // of wanted items; of the other side
};

constexpr int UNSURE = 4096; // held before they are settled

} // namespace knn

struct knn_worker {
  float *scores, *turned; // [256, 256] and transposed
  bool screen;            // the last tiles were worth screening
  int until_trial = 0;    // tiles until screening is tried again
  knn::Unsure open[knn::UNSURE];
  knn_pairs pairs = {};
};

#endif
