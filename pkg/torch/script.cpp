#include "script.h"
#include "guard.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

using at::Tensor;
using namespace border;

namespace {

struct Script {
  torch::jit::Module module;
  std::vector<std::pair<std::string, Tensor>> tensors;
  int parameters = 0;
};

Script &script(rt_handle h) { return *static_cast<Script *>(ref(h).data_ptr()); }

} // namespace

rt_one rt_script_load(const char *path, int device) {
  return make([&] {
    at::Device where = device < 0 ? at::Device(at::kCPU) : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    auto s = std::make_unique<Script>();
    s->module = torch::jit::load(path, where);
    for (const auto &p : s->module.named_parameters()) s->tensors.emplace_back(p.name, p.value);
    s->parameters = static_cast<int>(s->tensors.size());
    for (const auto &b : s->module.named_buffers()) s->tensors.emplace_back(b.name, b.value);
    Script *raw = s.release();
    return at::from_blob(
        raw, {1}, [](void *p) { delete static_cast<Script *>(p); }, at::TensorOptions(at::kByte));
  });
}

char *rt_script_train(rt_handle module, int on) {
  return guard([&] { script(module).module.train(on != 0); });
}

rt_one rt_script_forward(rt_handle module, rt_handle x) {
  return make([&] {
    torch::jit::IValue y = script(module).module.forward({ref(x)});
    TORCH_CHECK(y.isTensor(), "the module returns ", y.tagKind(), ", not one tensor");
    return y.toTensor();
  });
}

void rt_script_count(rt_handle module, int *parameters, int *count) {
  *parameters = script(module).parameters;
  *count = static_cast<int>(script(module).tensors.size());
}

char *rt_script_name(rt_handle module, int i) { return strdup(script(module).tensors[static_cast<size_t>(i)].first.c_str()); }

rt_one rt_script_tensor(rt_handle module, int i) {
  return make([&] { return script(module).tensors[static_cast<size_t>(i)].second; });
}

int rt_script_twin(rt_handle module, int i) {
  const auto &all = script(module).tensors;
  int first = 0;
  while (!all[static_cast<size_t>(first)].second.is_same(all[static_cast<size_t>(i)].second)) first++;
  return first;
}
