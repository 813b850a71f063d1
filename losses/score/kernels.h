// Kernels over rows of scores on a CPU: what package score computes more
// quickly than tensor operations do. A row holds the scores of one query and
// stays in the processor's cache while it is worked on. Rows are independent
// and each is the work of one thread in a fixed order, so results are the same
// to the bit for any number of threads.
//
// A score of -infinity is no entry: it counts nowhere.
#ifndef ROADMAP_SCORE_KERNELS_H
#define ROADMAP_SCORE_KERNELS_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// How a kernel runs. Elements are double if is_double, else float.
typedef struct {
  int is_double;
  int level;   // instruction set: 0 the best, 1 baseline, 2 AVX2, 3 AVX-512
  int threads; // at the most
} sc_run;

// sc_has says whether this processor runs an instruction set.
int sc_has(int level);

// A matrix in row order.
typedef struct {
  void *data;
  int64_t rows, columns;
} sc_matrix;

// Which columns are a query's positives: the members of its class without those
// that are excluded for it. All other columns but the excluded are negatives.
// Columns ascend in every list.
typedef struct {
  const int32_t *members;     // columns of all classes
  const int64_t *class_at;    // class c is members[class_at[c]] .. members[class_at[c+1]-1]
  const int32_t *class_of;    // class of each query
  const int32_t *excluded;    // columns of all queries, or NULL
  const int64_t *excluded_at; // those of query i are excluded[excluded_at[i]] .. excluded[excluded_at[i+1]-1]
} sc_lists;

// sc_split copies the scores of queries first, first+1, ... to negatives, with
// -infinity where a column is no negative, and to positives, in the order of
// their columns with -infinity behind them; column is where each stands.
// The kernels return 0, or -1 when memory for a row's working space was refused.
int sc_split(sc_run run, sc_matrix scores, const sc_lists *lists, int64_t first, sc_matrix negatives, sc_matrix positives, int64_t *column);

// sc_join writes the gradients of positives and negatives to the places in
// scores that sc_split took them from, and 0 to excluded columns. Magnitudes
// below 2^-100 (double: 2^-960) become 0: subnormal numbers would make the
// products that follow many times slower.
int sc_join(sc_run run, sc_matrix scores, const sc_lists *lists, int64_t first, sc_matrix negatives, sc_matrix positives);

// A step function of a difference t of scores.
enum { SC_HEAVISIDE = 0, SC_SIGMOID, SC_UPPER_BOUND, SC_HINGE, SC_HINGE_ACTIVE };
typedef struct {
  int kind;
  double tau;                       // SC_SIGMOID, SC_UPPER_BOUND
  double rho, delta, start, offset; // SC_UPPER_BOUND
  int zero_is_low;                  // SC_UPPER_BOUND: t = 0 falls in the first branch
  double margin, least;             // SC_HINGE: t + margin where that is above least, else 0; SC_HINGE_ACTIVE: whether it is
  int below;                        // both: 0 where t >= 0
} sc_step;

// sc_sums adds up, for each threshold c of a row, the step function of x - c
// over the row's entries x, and start: sums [rows, thresholds]. For thresholds
// that are -infinity it is padding.
int sc_sums(sc_run run, sc_matrix x, sc_matrix thresholds, const sc_step *step, double start, double padding, double *sums);

// sc_sums_backward turns gradients by the sums into those by x and thresholds.
int sc_sums_backward(sc_run run, sc_matrix x, sc_matrix thresholds, const sc_step *step, const double *gradient, void *by_x, void *by_thresholds);

// A histogram of scores with triangular counts; bin b is centred at the score
// 1 - b/per_score.
typedef struct {
  double per_score; // bins that a difference of scores of 1 spans
  int64_t bins;
  int flat; // scores beyond the outermost centres count whole there; else ever less
} sc_bins;

// sc_histogram counts the entries of each row of x: counts [rows, bins].
int sc_histogram(sc_run run, sc_matrix x, const sc_bins *bins, double *counts);

// sc_histogram_backward turns gradients by the counts into those by x. At a
// centre, a corner of triangles, it is 0.
int sc_histogram_backward(sc_run run, sc_matrix x, const sc_bins *bins, const double *gradient, void *by_x);

// A ranking of a row's positives and negatives together, descending from 1,
// ties in the order of the columns, after positives were lowered and negatives
// raised by half the margin.
typedef struct {
  sc_matrix negatives, positives;
  const int64_t *column; // of each positive
  double margin, lambda;
} sc_ranking;

// sc_ranks gives the ranks of the positives among all and among positives, both
// [rows, columns of positives], 1 where there is no positive.
int sc_ranks(sc_run run, const sc_ranking *ranking, double *rank, double *plus);

// sc_ranks_backward is algorithm 1 of RaMBO: gradient is that by the rank that
// sc_ranks gave.
int sc_ranks_backward(sc_run run, const sc_ranking *ranking, const double *rank, const double *gradient, void *by_negatives, void *by_positives);

// sc_unit_rows divides the rows of x by their lengths, into unit, and says what
// is the matter with each row.
int sc_unit_rows(sc_run run, sc_matrix x, void *unit, void *length, uint8_t *state);
enum { SC_ROW_GOOD = 0, SC_ROW_ZERO, SC_ROW_NOT_FINITE };

// sc_unit_rows_backward turns gradients of the unit rows into those of x, in place.
int sc_unit_rows_backward(sc_run run, sc_matrix gradient, const void *unit, const void *length);

// sc_hash_rows hashes the bytes of each row.
int sc_hash_rows(sc_run run, sc_matrix x, uint64_t *hash);

// sc_add_transposed adds its transpose to a square matrix.
int sc_add_transposed(sc_run run, sc_matrix square);

#ifdef __cplusplus
}
#endif
#endif
