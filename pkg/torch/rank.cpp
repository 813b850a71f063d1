#include "rank.h"
#include "shim.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <atomic>

namespace {

// job_over checks that scores is a matrix that a kernel may walk through.
void *matrix(const at::Tensor &t) {
  TORCH_CHECK(t.is_cpu() && t.dim() == 2 && t.is_contiguous(), "the kernel needs a contiguous matrix on the CPU");
  TORCH_CHECK(t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble, "the kernel needs float32 or float64");
  return t.data_ptr();
}

template <class F> char *guarded(F f) {
  try {
    f();
    return nullptr;
  } catch (const c10::Error &e) {
    return strdup(e.what_without_backtrace());
  } catch (const std::exception &e) {
    return strdup(e.what());
  }
}

} // namespace

extern "C" {

char *rt_rank(rt_handle scores, int clamp, int backward, int64_t query, const int32_t *members, const int64_t *class_at, const int32_t *class_of,
              const int32_t *never, const int64_t *never_at, const rt_rank_term *terms, int term_count, const double *p, double *out) {
  return guarded([&] {
    const at::Tensor &t = *reinterpret_cast<at::Tensor *>(scores);
    rt_rank_job job = {matrix(t), t.size(0), t.size(1), t.scalar_type() == at::kDouble, clamp, backward, query,
                       members,   class_at,  class_of,  never,                          never_at, terms,   term_count, p, out};
    std::atomic<int> refused{0};
    at::parallel_for(0, job.rows, 1, [&](int64_t begin, int64_t end) {
      if (rt_rank_rows(&job, begin, end) != 0) refused = 1;
    });
    TORCH_CHECK(refused == 0, "out of memory in the working space of a row of ", job.columns, " scores");
  });
}

char *rt_add_transpose(rt_handle square) {
  return guarded([&] {
    const at::Tensor &t = *reinterpret_cast<at::Tensor *>(square);
    void *a = matrix(t);
    int64_t n = t.size(0);
    TORCH_CHECK(n == t.size(1), "the matrix is not square");
    at::parallel_for(0, (n + RT_TRANSPOSE_BLOCK - 1) / RT_TRANSPOSE_BLOCK, 1,
                     [&](int64_t begin, int64_t end) { rt_add_transposed(a, n, t.scalar_type() == at::kDouble, begin, end); });
  });
}

char *rt_mm_into(rt_handle out, rt_handle a, rt_handle b) {
  return guarded([&] {
    at::mm_out(*reinterpret_cast<at::Tensor *>(out), *reinterpret_cast<at::Tensor *>(a), *reinterpret_cast<at::Tensor *>(b));
  });
}
}
