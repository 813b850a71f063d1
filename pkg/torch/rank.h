// Fused passes over rows of scores: the losses of package losses on a CPU.
//
// A row holds the scores of one query. One pass reads it, evaluates every term
// of the loss on it and, when gradients are wanted, writes dLoss/dscore in its
// place, while the row is in the processor's cache. Rows are independent and
// each is the work of one thread in a fixed order, so results are the same to
// the bit for any number of threads.
#ifndef ROADMAP_TORCH_RANK_H
#define ROADMAP_TORCH_RANK_H
#include <stdint.h>

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

// The kinds of terms and their parameters p, in order. Every kind scales its
// value and gradient by the term's weight.
enum {
  RT_RANK_AP = 0,         // (none)                                  value 1 - AP
  RT_RANK_SMOOTHAP,       // tau
  RT_RANK_SUPAP,          // tau, rho, delta, start, offset, 1 if H(0) takes the first branch
  RT_RANK_RECALL,         // tau, tau of ranks, 1 if released, k...
  RT_RANK_HISTOGRAM,      // bins per unit of score, number of centres, 1 if the outermost are flat
  RT_RANK_BLACKBOX,       // lambda, margin, 0 AP | 1 log | 2 log log, 1/queries
  RT_RANK_HINGE_QUERY,    // floor, ceiling                          means over a query's pairs
  RT_RANK_HINGE_PAIRS,    // floor, ceiling, least, 1/count, 1/count  counts: positive pairs, negative pairs
  RT_RANK_TRIPLET,        // margin, 0 all | 1 semihard | 2 hard | 3 easy positive, 1/count  counts: triplets
  RT_RANK_MULTISIMILARITY, // alpha, beta, base, epsilon
  RT_RANK_SOFTMAX          // factor of the scores, 1 if the positive is not in the sum
};

#define RT_RANK_OUT 3 // numbers of a term for each row: its value and up to two counts

typedef struct {
  int32_t kind, first, count; // parameters p[first] .. p[first+count-1]
  double weight;
} rt_rank_term;

typedef struct {
  void *scores; // [rows, columns], float or double
  int64_t rows, columns;
  int is_double, clamp, backward; // clamp: scores to [-1, 1]; backward: rows become gradients
  int level;                      // instruction set: 0 the best, 1 baseline, 2 AVX2, 3 AVX-512
  int64_t query;                  // query of row 0
  const int32_t *members;         // columns of all classes, ascending in each
  const int64_t *class_at;        // class c is members[class_at[c]] .. members[class_at[c+1]-1]
  const int32_t *class_of;        // class of each query
  const int32_t *never;           // columns that queries never meet, or NULL
  const int64_t *never_at;        // those of query i are never[never_at[i]] .. never[never_at[i+1]-1]
  const rt_rank_term *terms;
  int term_count;
  const double *p;
  double *out; // [rows, term_count, RT_RANK_OUT]
} rt_rank_job;

// rt_rank_rows does the rows from begin to end of a job on the calling thread.
// It returns 0, or -1 when memory for a row's working space was refused.
int rt_rank_rows(const rt_rank_job *job, int64_t begin, int64_t end);

// rt_rank_has says whether this processor runs an instruction set.
int rt_rank_has(int level);

// rt_unit_rows divides the rows begin to end of x [n, d] by their lengths, into
// unit, and returns the lengths and what is the matter with each row.
void rt_unit_rows(const void *x, void *unit, void *length, uint8_t *state, int64_t d, int is_double, int level, int64_t begin, int64_t end);
enum { RT_ROW_GOOD = 0, RT_ROW_ZERO, RT_ROW_NOT_FINITE };

// rt_unit_rows_back turns gradients of the unit rows into those of x, in place.
void rt_unit_rows_back(void *grad, const void *unit, const void *length, int64_t d, int is_double, int level, int64_t begin, int64_t end);

// rt_hash_rows hashes the bytes of the rows begin to end of x [n, d].
void rt_hash_rows(const void *x, uint64_t *hash, int64_t row_bytes, int64_t begin, int64_t end);

// rt_add_transposed adds its transpose to the square matrix a [n, n], for the
// pairs of blocks of RT_TRANSPOSE_BLOCK rows that begin in block rows begin to end.
void rt_add_transposed(void *a, int64_t n, int is_double, int64_t begin, int64_t end);
enum { RT_TRANSPOSE_BLOCK = 32 };

// The same over libtorch's tensors and its threads; they return an error text or NULL.
char *rt_rank(rt_handle scores, int clamp, int backward, int level, int64_t query, const int32_t *members, const int64_t *class_at, const int32_t *class_of,
              const int32_t *never, const int64_t *never_at, const rt_rank_term *terms, int term_count, const double *p, double *out);
char *rt_normalize(rt_handle x, rt_handle unit, rt_handle length, uint8_t *state, int level);
char *rt_normalize_back(rt_handle grad, rt_handle unit, rt_handle length, int level);
int rt_parallel(void); // whether they share the work out at all
char *rt_hash(rt_handle x, uint64_t *hash);
char *rt_add_transpose(rt_handle square);
char *rt_mm_into(rt_handle out, rt_handle a, rt_handle b);

#ifdef __cplusplus
}
#endif
#endif
