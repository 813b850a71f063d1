#include "shim.h"
#include "guard.h"
#include "pool.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/core/grad_mode.h>
#include <dlfcn.h>
#include <mutex>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

using at::Tensor;
using at::TensorList;
using namespace border;

namespace {

std::vector<Tensor> list(const rt_handle *t, int n) {
  std::vector<Tensor> all;
  all.reserve(n);
  for (int i = 0; i < n; i++) all.push_back(maybe(t[i]));
  return all;
}

at::Device device_of(int d) { return d < 0 ? at::Device(at::kCPU) : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(d)); }
at::DeviceType type_of(int d) { return d < 0 ? at::kCPU : at::kCUDA; }
at::IntArrayRef sizes(const int64_t *size, int dims) { return at::IntArrayRef(size, static_cast<size_t>(dims)); }
at::MemoryFormat format_of(int channels_last) { return channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous; }

// parameters that carry a gradient, each with its rows of optimiser state
struct Active {
  std::vector<Tensor> param, grad;
  std::vector<int> at;
  Active(const rt_handle *p, int n) {
    for (int i = 0; i < n; i++) {
      const Tensor &t = ref(p[i]);
      if (!t.grad().defined()) continue;
      param.push_back(t);
      grad.push_back(t.grad());
      at.push_back(i);
    }
  }
  // pick takes each one's tensor of state, of its size or of one element.
  std::vector<Tensor> pick(const rt_handle *t, bool counter = false) const {
    std::vector<Tensor> all;
    for (size_t k = 0; k < at.size(); k++) {
      const Tensor &s = ref(t[at[k]]);
      TORCH_CHECK(counter ? s.numel() == 1 : s.sizes() == param[k].sizes(), "parameter ", at[k], " of size ", param[k].sizes(), " has optimiser state of size ", s.sizes());
      TORCH_CHECK(s.device() == param[k].device(), "parameter ", at[k], " is on ", param[k].device(), ", its optimiser state on ", s.device());
      all.push_back(s);
    }
    return all;
  }
};

std::optional<Tensor> optional(rt_handle t) { return t ? std::optional<Tensor>(ref(t)) : std::nullopt; }

// Buffers lent by Go: libtorch drops its last reference at a time and on a thread
// of its own choosing, so a deleter only notes the ticket; Go collects it later.
std::mutex released_mutex;
std::vector<int64_t> released;

// WithGrad returns a value whose gradients were computed beside it.
struct WithGrad : torch::autograd::Function<WithGrad> {
  static Tensor forward(torch::autograd::AutogradContext *ctx, const Tensor &value, const std::vector<Tensor> &grads, at::TensorList) {
    ctx->save_for_backward(grads);
    return value.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *ctx, const torch::autograd::variable_list &upstream) {
    torch::autograd::variable_list out{Tensor(), Tensor()}; // none for value, none for the list of gradients
    for (const Tensor &g : ctx->get_saved_variables()) out.push_back(g.defined() ? g * upstream[0].to(g.scalar_type()) : Tensor());
    return out;
  }
};

} // namespace

extern "C" {

// ---- shared with the generated wrappers -----------------------------------------------------------

// A whole number given to an integer tensor stays an integer, as it does in Python.
void *rt_scalar(double value, void *like) {
  const Tensor *t = static_cast<const Tensor *>(like);
  if (t && t->defined() && at::isIntegralType(t->scalar_type(), /*includeBool=*/false) && value == std::floor(value) && std::abs(value) < 9.2e18)
    return new at::Scalar(static_cast<int64_t>(value));
  return new at::Scalar(value);
}

int rt_sum_dtype(void *t) {
  at::ScalarType s = static_cast<const Tensor *>(t)->scalar_type();
  return static_cast<int>(at::isIntegralType(s, /*includeBool=*/true) ? at::kLong : s);
}

// ---- tensors and memory ---------------------------------------------------------------------------

void rt_free_all(rt_handle *t, int n) {
  for (int i = 0; i < n; i++) delete reinterpret_cast<Tensor *>(t[i]);
}

rt_meta rt_describe(rt_handle h) {
  rt_meta m = {};
  const Tensor &t = ref(h);
  if (!t.defined()) return m;
  m.dims = static_cast<int>(t.dim());
  m.dtype = static_cast<int>(t.scalar_type());
  m.device = t.is_cpu() ? -1 : t.device().index();
  for (int i = 0; i < m.dims && i < RT_MAX_DIMS; i++) m.size[i] = t.size(i);
  return m;
}

rt_one rt_from(const void *data, const int64_t *size, int dims, int dtype) {
  return make([&] {
    Tensor t = at::empty(sizes(size, dims), at::TensorOptions(static_cast<at::ScalarType>(dtype)));
    if (t.numel()) memcpy(t.data_ptr(), data, t.nbytes());
    return t;
  });
}

rt_one rt_wrap(void *data, const int64_t *size, int dims, int dtype, int64_t ticket) {
  return make([&] {
    return at::from_blob(
        data, sizes(size, dims),
        [ticket](void *) {
          std::lock_guard<std::mutex> lock(released_mutex);
          released.push_back(ticket);
        },
        at::TensorOptions(static_cast<at::ScalarType>(dtype)));
  });
}

int rt_released(int64_t *tickets, int n) {
  std::lock_guard<std::mutex> lock(released_mutex);
  int k = 0;
  while (k < n && !released.empty()) {
    tickets[k++] = released.back();
    released.pop_back();
  }
  return k;
}

char *rt_read(rt_handle h, void *dst, int64_t bytes, int dtype) {
  return guard([&] {
    at::NoGradGuard no_grad;
    Tensor t = ref(h).detach().to(at::kCPU, static_cast<at::ScalarType>(dtype)).contiguous();
    TORCH_CHECK(static_cast<int64_t>(t.nbytes()) == bytes, "read of ", t.nbytes(), " bytes into a buffer of ", bytes);
    if (bytes) memcpy(dst, t.data_ptr(), static_cast<size_t>(bytes));
  });
}

char *rt_copy(rt_handle dst, rt_handle src) {
  return guard([&] { ref(dst).copy_(ref(src)); });
}

rt_one rt_to(rt_handle h, int device, int dtype, int channels_last) {
  return make([&] {
    const Tensor &t = ref(h);
    auto format = channels_last < 0 ? at::MemoryFormat::Preserve : format_of(channels_last);
    return t.to(at::TensorOptions(device_of(device)).dtype(static_cast<at::ScalarType>(dtype)), false, false, format);
  });
}

rt_one rt_alias(rt_handle t) {
  return make([&] { return ref(t); });
}

rt_one rt_clone(rt_handle t) {
  return make([&] { return ref(t).clone(); });
}

void rt_sizes(rt_handle t, int64_t *size) {
  for (int64_t n : ref(t).sizes()) *size++ = n;
}

void *rt_data(rt_handle t) {
  void *p = nullptr;
  free(guard([&] { p = ref(t).data_ptr(); })); // NULL for a tensor without storage
  return p;
}

int rt_is_contiguous(rt_handle t, int channels_last) { return ref(t).is_contiguous(format_of(channels_last)); }

static c10::List<std::optional<Tensor>> index_list(rt_handle *t, int n) {
  c10::List<std::optional<Tensor>> all;
  for (int i = 0; i < n; i++) all.push_back(optional(t[i]));
  return all;
}

rt_one rt_index(rt_handle t, rt_handle *indices, int n) {
  return make([&] { return at::index(ref(t), index_list(indices, n)); });
}

char *rt_index_put(rt_handle t, rt_handle *indices, int n, rt_handle values, int accumulate) {
  return guard([&] { at::index_put_(ref(t), index_list(indices, n), ref(values), accumulate != 0); });
}

rt_one rt_slice(rt_handle t, int64_t dim, int64_t start, int64_t end, int64_t step) {
  return make([&] { return ref(t).slice(dim, start, end, step); });
}

char *rt_set_data(rt_handle t, rt_handle data) {
  return guard([&] { ref(t).set_data(ref(data)); });
}

char *rt_mm_into(rt_handle out, rt_handle a, rt_handle b) {
  return guard([&] { at::mm_out(ref(out), ref(a), ref(b)); });
}

// ---- autograd -------------------------------------------------------------------------------------

char *rt_require_grad(rt_handle t, int on) {
  return guard([&] { ref(t).set_requires_grad(on != 0); });
}

int rt_requires_grad(rt_handle t) { return ref(t).requires_grad(); }

rt_one rt_grad(rt_handle t) {
  rt_one r = {0, nullptr};
  r.err = guard([&] {
    const Tensor &g = ref(t).grad();
    if (g.defined()) r.t = handle(g);
  });
  return r;
}

char *rt_set_grad(rt_handle t, rt_handle grad) {
  return guard([&] {
    Tensor &p = ref(t);
    if (grad) {
      const Tensor &g = ref(grad);
      TORCH_CHECK(g.sizes() == p.sizes() && g.scalar_type() == p.scalar_type() && g.device() == p.device(), "a gradient must have the parameter's shape, dtype and device");
    }
    p.mutable_grad() = maybe(grad);
  });
}

char *rt_zero_grad(rt_handle *t, int n) {
  return guard([&] {
    for (int i = 0; i < n; i++) ref(t[i]).mutable_grad() = Tensor();
  });
}

char *rt_backward(rt_handle t, rt_handle grad, int keep_graph, int create_graph) {
  return guard([&] { ref(t).backward(maybe(grad), keep_graph != 0, create_graph != 0); });
}

char *rt_grad_of(rt_handle out, rt_handle grad, rt_handle *in, int n, rt_handle *result, int keep_graph, int create_graph) {
  return guard([&] {
    std::vector<Tensor> seed;
    if (grad) seed.push_back(ref(grad));
    auto g = torch::autograd::grad({ref(out)}, list(in, n), seed, keep_graph != 0, create_graph != 0, /*allow_unused=*/true);
    for (int i = 0; i < n; i++) result[i] = handle(g[i].defined() ? g[i] : at::zeros_like(ref(in[i])));
  });
}

rt_one rt_with_grad(rt_handle value, rt_handle *in, rt_handle *grad, int n) {
  return make([&] { return WithGrad::apply(ref(value), list(grad, n), at::TensorList(list(in, n))); });
}

int rt_grad_mode(int on) {
  bool before = at::GradMode::is_enabled();
  at::GradMode::set_enabled(on != 0);
  return before;
}

// ---- autocast -------------------------------------------------------------------------------------

rt_autocast_state rt_autocast_get(int device) {
  return {at::autocast::is_autocast_enabled(type_of(device)), static_cast<int>(at::autocast::get_autocast_dtype(type_of(device)))};
}

void rt_autocast_set(int device, rt_autocast_state s) {
  at::autocast::set_autocast_enabled(type_of(device), s.enabled != 0);
  at::autocast::set_autocast_dtype(type_of(device), static_cast<at::ScalarType>(s.dtype));
}

void rt_autocast_enter(void) { at::autocast::increment_nesting(); }

void rt_autocast_leave(void) {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

// ---- devices, threads, random numbers, reproducibility --------------------------------------------

// libtorch_cuda registers the CUDA backend when it is loaded. It lies beside
// libtorch_cpu, and loads only where the nvidia libraries are installed too.
char *rt_load_cuda(void) {
  Dl_info where;
  if (!dladdr(reinterpret_cast<void *>(static_cast<int (*)()>(at::get_num_threads)), &where)) return strdup("libtorch_cpu.so was not found in the process");
  std::string path = where.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + "libtorch_cuda.so";
  return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) ? nullptr : strdup(dlerror());
}

int rt_cuda_count(void) {
  try {
    return at::hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().deviceCount()) : 0;
  } catch (...) {
    return 0;
  }
}

char *rt_synchronize(int device) {
  return guard([&] {
    if (device >= 0) at::accelerator::synchronizeDevice(static_cast<c10::DeviceIndex>(device));
  });
}

char *rt_memory_stats(int device, rt_memory *m) {
  return guard([&] {
    *m = {};
    if (device < 0) {
      pool::Stats host = pool::stats();
      m->allocated = static_cast<int64_t>(host.used);
      m->peak = static_cast<int64_t>(host.most);
      m->reserved = static_cast<int64_t>(host.used + host.idle);
      return;
    }
    auto index = static_cast<c10::DeviceIndex>(device);
    auto stats = at::accelerator::getDeviceStats(index);
    m->allocated = stats.allocated_bytes[0].current;
    m->peak = stats.allocated_bytes[0].peak;
    m->reserved = stats.reserved_bytes[0].current;
    auto info = at::accelerator::getMemoryInfo(index);
    m->free = static_cast<int64_t>(info.first);
    m->total = static_cast<int64_t>(info.second);
  });
}

char *rt_reset_peak(int device) {
  return guard([&] {
    if (device < 0) pool::reset_most();
    else at::accelerator::resetPeakStats(static_cast<c10::DeviceIndex>(device));
  });
}

char *rt_empty_cache(int device) {
  return guard([&] {
    if (device < 0) pool::release();
    else at::accelerator::emptyCache();
  });
}

int rt_threads(void) { return at::get_num_threads(); }
void rt_set_threads(int n) { at::set_num_threads(n); }

static at::Generator generator(int device) {
  if (device < 0) return at::detail::getDefaultCPUGenerator();
  return at::globalContext().defaultGenerator(device_of(device));
}

char *rt_seed(int device, uint64_t seed) {
  return guard([&] {
    at::Generator g = generator(device);
    std::lock_guard<std::mutex> lock(g.mutex());
    g.set_current_seed(seed);
  });
}

rt_one rt_generator_state(int device) {
  return make([&] {
    at::Generator g = generator(device);
    std::lock_guard<std::mutex> lock(g.mutex());
    return g.get_state();
  });
}

char *rt_set_generator_state(int device, rt_handle state) {
  return guard([&] {
    at::Generator g = generator(device);
    std::lock_guard<std::mutex> lock(g.mutex());
    g.set_state(ref(state));
  });
}

void rt_deterministic(int on) {
  at::globalContext().setDeterministicAlgorithms(on != 0, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(false); // empty tensors are written before they are read
  at::globalContext().setDeterministicCuDNN(on != 0);
  at::globalContext().setBenchmarkCuDNN(on == 0);
}

void rt_allow_tf32(int on) {
  at::globalContext().setAllowTF32CuBLAS(on != 0);
  at::globalContext().setAllowTF32CuDNN(on != 0);
}

char *rt_version(void) { return strdup(TORCH_VERSION); }
char *rt_config(void) { return strdup((at::show_config() + "\n" + at::get_parallel_info()).c_str()); }

// ---- optimisers -----------------------------------------------------------------------------------

char *rt_adam_step(rt_handle *p, rt_handle *m, rt_handle *v, rt_handle *vmax, rt_handle *steps, int n, rt_adam o,
                   rt_handle grad_scale, rt_handle found_inf) {
  return guard([&] {
    at::NoGradGuard no_grad;
    Active a(p, n);
    if (a.param.empty()) return;
    std::vector<Tensor> ms = a.pick(m), vs = a.pick(v), xs, ts = a.pick(steps, true);
    if (o.amsgrad) xs = a.pick(vmax);
    at::_foreach_add_(ts, 1);
    auto step = [&](auto op) {
      op(a.param, a.grad, ms, vs, xs, ts, o.lr, o.beta1, o.beta2, o.weight_decay, o.eps, o.amsgrad != 0, false, optional(grad_scale), optional(found_inf));
    };
    if (o.decoupled) step([](auto &&...x) { at::_fused_adamw_(x...); });
    else step([](auto &&...x) { at::_fused_adam_(x...); });
    if (found_inf) at::_foreach_sub_(ts, std::vector<Tensor>(ts.size(), ref(found_inf)));
  });
}

char *rt_sgd_step(rt_handle *p, rt_handle *momentum, int n, rt_sgd o, rt_handle grad_scale, rt_handle found_inf) {
  return guard([&] {
    at::NoGradGuard no_grad;
    Active a(p, n);
    if (a.param.empty()) return;
    std::vector<Tensor> ms;
    if (o.momentum != 0) ms = a.pick(momentum);
    at::_fused_sgd_(a.param, a.grad, ms, o.weight_decay, o.momentum, o.lr, o.dampening, o.nesterov != 0, false, o.first != 0, optional(grad_scale),
                    optional(found_inf));
  });
}

char *rt_grad_norm(rt_handle *p, int n, double *norm) {
  return guard([&] {
    at::NoGradGuard no_grad;
    Active a(p, n);
    *norm = a.grad.empty() ? 0 : at::linalg_vector_norm(at::stack(at::_foreach_norm(a.grad))).item<double>();
  });
}

char *rt_scale_grads(rt_handle *p, int n, double factor) {
  return guard([&] {
    at::NoGradGuard no_grad;
    Active a(p, n);
    if (!a.grad.empty()) at::_foreach_mul_(a.grad, factor);
  });
}

char *rt_unscale_grads(rt_handle *p, int n, rt_handle found_inf, rt_handle inverse_scale) {
  return guard([&] {
    at::NoGradGuard no_grad;
    Active a(p, n);
    if (!a.grad.empty()) at::_amp_foreach_non_finite_check_and_unscale_(a.grad, ref(found_inf), ref(inverse_scale));
  });
}

char *rt_lerp_all(rt_handle *dst, rt_handle *src, int n, double weight) {
  return guard([&] {
    at::NoGradGuard no_grad;
    at::_foreach_lerp_(list(dst, n), list(src, n), weight);
  });
}

} // extern "C"
