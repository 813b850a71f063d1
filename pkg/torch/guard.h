// What every C++ file of this package starts from: handles to tensors and back,
// and exceptions turned into texts that Go frees.
#ifndef ROADMAP_TORCH_GUARD_H
#define ROADMAP_TORCH_GUARD_H
#include "ops.h"

#include <ATen/core/Tensor.h>
#include <cstring>
#include <vector>

namespace border {

inline at::Tensor &ref(rt_handle t) { return *reinterpret_cast<at::Tensor *>(t); }
inline at::Tensor maybe(rt_handle t) { return t ? ref(t) : at::Tensor(); }
inline rt_handle handle(at::Tensor t) { return reinterpret_cast<rt_handle>(new at::Tensor(std::move(t))); }

// guard runs f and returns the text of what it throws, NULL if nothing.
template <class F> char *guard(F f) {
  try {
    f();
    return nullptr;
  } catch (const c10::Error &e) {
    return strdup(e.what_without_backtrace());
  } catch (const std::exception &e) {
    return strdup(e.what());
  } catch (...) {
    return strdup("unknown C++ exception");
  }
}

// make runs f, which returns a tensor.
template <class F> rt_one make(F f) {
  rt_one r = {0, nullptr};
  r.err = guard([&] { r.t = handle(f()); });
  return r;
}

} // namespace border
#endif
