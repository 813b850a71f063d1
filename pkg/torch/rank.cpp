#include "rank.h"
#include "guard.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <atomic>

namespace {

// matrix is the memory of a tensor that a kernel may walk through.
void *matrix(const at::Tensor &t) {
  TORCH_CHECK(t.is_cpu() && t.dim() == 2 && t.is_contiguous(), "the kernel needs a contiguous matrix on the CPU");
  TORCH_CHECK(t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble, "the kernel needs float32 or float64");
  return t.data_ptr();
}

// grain is the rows that are worth another thread's while, of so many elements
// each: waking it and waiting for it takes as long as some 30,000 elements.
int64_t grain(int64_t elements) { return std::max<int64_t>(1, 32768 / std::max<int64_t>(1, elements)); }

} // namespace

extern "C" {

int rt_parallel(void) {
#ifdef INTRA_OP_PARALLEL
  return 1;
#else
  return 0;
#endif
}

char *rt_rank(rt_handle scores, int clamp, int backward, int level, int64_t query, const int32_t *members, const int64_t *class_at, const int32_t *class_of,
              const int32_t *never, const int64_t *never_at, const rt_rank_term *terms, int term_count, const double *p, double *out) {
  return border::guard([&] {
    const at::Tensor &t = border::ref(scores);
    rt_rank_job job = {matrix(t), t.size(0), t.size(1), t.scalar_type() == at::kDouble, clamp, backward, level, query, members, class_at,
                       class_of,  never,     never_at,  terms, term_count, p, out};
    std::atomic<int> refused{0};
    at::parallel_for(0, job.rows, grain(job.columns), [&](int64_t begin, int64_t end) {
      if (rt_rank_rows(&job, begin, end) != 0) refused = 1;
    });
    TORCH_CHECK(refused == 0, "out of memory in the working space of a row of ", job.columns, " scores");
  });
}

char *rt_normalize(rt_handle x, rt_handle unit, rt_handle length, uint8_t *state, int level) {
  return border::guard([&] {
    const at::Tensor &from = border::ref(x);
    void *in = matrix(from), *out = matrix(border::ref(unit)), *lengths = matrix(border::ref(length));
    at::parallel_for(0, from.size(0), grain(from.size(1)), [&](int64_t begin, int64_t end) {
      rt_unit_rows(in, out, lengths, state, from.size(1), from.scalar_type() == at::kDouble, level, begin, end);
    });
  });
}

char *rt_normalize_back(rt_handle grad, rt_handle unit, rt_handle length, int level) {
  return border::guard([&] {
    const at::Tensor &g = border::ref(grad);
    void *out = matrix(g), *rows = matrix(border::ref(unit)), *lengths = matrix(border::ref(length));
    at::parallel_for(0, g.size(0), grain(g.size(1)), [&](int64_t begin, int64_t end) {
      rt_unit_rows_back(out, rows, lengths, g.size(1), g.scalar_type() == at::kDouble, level, begin, end);
    });
  });
}

char *rt_hash(rt_handle x, uint64_t *hash) {
  return border::guard([&] {
    const at::Tensor &t = border::ref(x);
    void *rows = matrix(t);
    int64_t bytes = t.size(1) * t.element_size();
    at::parallel_for(0, t.size(0), grain(t.size(1) / 4), [&](int64_t begin, int64_t end) { rt_hash_rows(rows, hash, bytes, begin, end); });
  });
}

char *rt_add_transpose(rt_handle square) {
  return border::guard([&] {
    const at::Tensor &t = border::ref(square);
    void *a = matrix(t);
    int64_t n = t.size(0);
    TORCH_CHECK(n == t.size(1), "the matrix is not square");
    int64_t blocks = (n + RT_TRANSPOSE_BLOCK - 1) / RT_TRANSPOSE_BLOCK;
    bool is_double = t.scalar_type() == at::kDouble;
    // A block row from the top and one from the bottom have together the same work everywhere.
    at::parallel_for(0, (blocks + 1) / 2, grain(n * RT_TRANSPOSE_BLOCK), [&](int64_t begin, int64_t end) {
      rt_add_transposed(a, n, is_double, begin, end);
      rt_add_transposed(a, n, is_double, std::max(blocks - end, end), blocks - begin);
    });
  });
}

char *rt_mm_into(rt_handle out, rt_handle a, rt_handle b) {
  return border::guard([&] {
    at::mm_out(border::ref(out), border::ref(a), border::ref(b));
  });
}
}
