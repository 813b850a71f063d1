#include "unbind.h"
#include "guard.h"

#include <ATen/ATen.h>

using namespace border;

char *rt_unbind(rt_handle t, int64_t dim, rt_handle *out, int n) {
  return guard([&] {
    std::vector<at::Tensor> parts = ref(t).unbind(dim);
    TORCH_CHECK(static_cast<int>(parts.size()) == n, "the size along dimension ", dim, " is ", parts.size(), ", not ", n);
    for (int i = 0; i < n; i++) out[i] = handle(parts[static_cast<size_t>(i)]);
  });
}
