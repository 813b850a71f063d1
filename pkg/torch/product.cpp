#include "product.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <cstring>

namespace {

// FullFloat32 keeps GPUs from rounding the factors of float32 products.
struct FullFloat32 {
  const bool allowed = at::globalContext().allowTF32CuBLAS();
  FullFloat32() { at::globalContext().setAllowTF32CuBLAS(false); }
  ~FullFloat32() { at::globalContext().setAllowTF32CuBLAS(allowed); }
};

} // namespace

extern "C" rt_one rt_product_float32(rt_handle a, rt_handle b) {
  rt_one r = {0, nullptr};
  try {
    const FullFloat32 full;
    const at::NoGradGuard no_grad;
    const at::Tensor &x = *reinterpret_cast<at::Tensor *>(a), &y = *reinterpret_cast<at::Tensor *>(b);
    r.t = reinterpret_cast<rt_handle>(new at::Tensor(at::mm(x, y.t())));
  } catch (const c10::Error &e) {
    r.err = strdup(e.what_without_backtrace());
  } catch (const std::exception &e) {
    r.err = strdup(e.what());
  }
  return r;
}
