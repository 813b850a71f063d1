// Scores of pairs of rows and what is counted or collected from them, tile by
// tile. See knn.go for the definitions and the promises.
#ifndef ROADMAP_EVAL_KNN_KERNELS_H
#define ROADMAP_EVAL_KNN_KERNELS_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a processor can do; each includes what stands before it.
enum { KNN_BASELINE, KNN_AVX2, KNN_AVX512, KNN_AMX };
// Why a row cannot be used.
enum { KNN_USABLE, KNN_NOT_FINITE, KNN_ZERO_ROW, KNN_TOO_LONG };

#define KNN_COLUMNS 256     // columns of a tile: rows of the fixed side at a time
#define KNN_MOVING_ROWS 256 // most rows of the moving side
#define KNN_FEW 32          // up to so many wanted items of a query are each compared with all scores; beyond, each score is placed among them
#define KNN_ROUND 64        // a row's width is a multiple; a side's memory reaches up to the next multiple of so many rows

typedef struct {
  int width;  // floats a row, a multiple of KNN_ROUND; those past the embedding are 0
  int l2;     // score is minus the squared distance instead of the product
  int isa;    // KNN_BASELINE …
  int screen; // compute tiles in integers first, and float32 where those do not decide
  float longest; // no row is longer
} knn_plan;

// A row in integers: x = scale (256 a + b) + rest, a and b of 8 bits.
typedef struct {
  float scale;
  float lost;   // length of rest, rounded up
  float low;    // length of scale b, rounded up
  float square; // squared length of x
} knn_row;

// Rows to be compared. The integers may be null where nothing is screened.
typedef struct {
  const float *x;       // [rows, width]
  const int8_t *q;      // [rows, width/64, 2, 64] a and b
  const int8_t *packed; // fixed side: q as knn_pack lays it out
  const knn_row *row;   // [rows]
  int64_t first, rows;  // row 0's number in its whole set; how many
} knn_side;

// Items whose ranks are wanted, of each row of a side as a query: row i's are
// start[i]-start[0] … start[i+1]-start[0] of the lists, best first. An item of
// the opposite side ranks before a wanted one if its score is higher, or equal
// and its number smaller than the wanted one's; where there is a limit, an item
// of another label than the query's has to have a number below that instead.
typedef struct {
  const int64_t *start;
  const float *score;
  const int32_t *item;  // number in the gallery
  const int32_t *limit; // null: the items' numbers
  int32_t *count;       // see knn_total
  const int64_t *label; // of the side's rows; null without a limit
  const int64_t *other; // of the opposite side's rows
} knn_wanted;

typedef struct {
  float score;
  int32_t item; // number in the gallery
} knn_found;

// The best items so far of each query; what is beyond the k best of them goes
// when the room is full.
typedef struct {
  knn_found *found; // [rows, room], room > k
  int32_t *filled;  // [rows]
  knn_found *worst; // [rows] the k-th best when the room was last full or k were first there
  int k, room;
  int skip_own; // query i is gallery item i, which is not to be found
} knn_best;

typedef struct knn_worker knn_worker;

int knn_processor(void);           // the best level of this machine
void *knn_allocate(int64_t bytes); // aligned; null when there is no memory; free() frees it
int64_t knn_prepare(const knn_plan *p, const float *rows, int64_t n, int dim, float *x, int8_t *q, knn_row *row, float *longest, int *why);
void knn_pack(const knn_plan *p, const int8_t *q, int64_t rows, int8_t *packed);
void knn_exact(const knn_plan *p, const float *a, int64_t na, const float *b, int64_t nb, float *scores);

knn_worker *knn_worker_new(const knn_plan *p);
void knn_worker_free(knn_worker *w);
typedef struct {
  int64_t screened, exact, settled; // pairs; settled: of the screened ones, those that float32 decided
} knn_pairs;
knn_pairs knn_worker_pairs(const knn_worker *w);

// knn_count compares rows [0, moving->rows) with [from, to) of fixed and counts
// for the queries of either side; by_moving and by_fixed may be null.
void knn_count(knn_worker *w, const knn_plan *p, const knn_side *moving, const knn_side *fixed, int64_t from, int64_t to, const knn_wanted *by_moving,
               const knn_wanted *by_fixed, int levels);
// knn_count_pairs counts single pairs, by their exact scores, for the queries: places are i * items->rows + j.
void knn_count_pairs(const knn_plan *p, const knn_side *queries, const knn_side *items, const knn_wanted *wanted, const int64_t *places, int64_t n);
// knn_total turns counts into the number of gallery items ranked before each wanted one.
void knn_total(int32_t *count, const int64_t *start, int64_t rows);
// knn_search offers all rows of fixed to the queries of moving.
void knn_search(knn_worker *w, const knn_plan *p, const knn_side *moving, const knn_side *fixed, const knn_best *best);
// knn_offer offers single pairs, by their exact scores: places are i * fixed->rows + j.
void knn_offer(const knn_plan *p, const knn_side *moving, const knn_side *fixed, const knn_best *best, const int64_t *places, int64_t n);
// knn_sort brings the k best of each of rows queries to the front, best first.
void knn_sort(const knn_best *best, int64_t rows);
#ifdef __cplusplus
}
#endif
#endif
