#include "function.h"
#include "guard.h"
#include "shim.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

using at::Tensor;
using namespace border;

// Exported by function.go: turns the gradient of the value into those of the n
// inputs, 0 for none, and returns NULL or an error's text. It owns the handles
// that it is given; the caller owns those that it returns.
extern "C" char *rt_function_backward(int64_t ticket, rt_handle grad, rt_handle *inputs, rt_handle *grads, int n);

namespace {

struct Function : torch::autograd::Function<Function> {
  // held is the value and what gives the ticket back, in a list so that autograd
  // does not take them for inputs.
  static Tensor forward(torch::autograd::AutogradContext *ctx, const std::vector<Tensor> &held, int64_t ticket, at::TensorList inputs) {
    std::vector<Tensor> saved(inputs.begin(), inputs.end());
    saved.push_back(held[1]);
    ctx->save_for_backward(saved);
    ctx->saved_data["ticket"] = ticket;
    return held[0];
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *ctx, const torch::autograd::variable_list &grad) {
    auto saved = ctx->get_saved_variables();
    size_t n = saved.size() - 1;
    std::vector<rt_handle> inputs(n), grads(n, 0);
    for (size_t i = 0; i < n; i++) inputs[i] = handle(saved[i].detach().set_requires_grad(saved[i].requires_grad()));
    if (char *err = rt_function_backward(ctx->saved_data["ticket"].toInt(), handle(grad[0]), inputs.data(), grads.data(), int(n))) {
      std::string text = err;
      free(err);
      TORCH_CHECK(false, text);
    }
    torch::autograd::variable_list out(2);
    for (rt_handle g : grads) {
      out.push_back(maybe(g));
      if (g) delete &ref(g);
    }
    return out;
  }
};

} // namespace

rt_one rt_function(rt_handle value, rt_handle *inputs, int n, int always, int64_t ticket) {
  static char nothing;
  rt_one life = rt_wrap(&nothing, nullptr, 0, static_cast<int>(at::kByte), ticket); // dropped with the history
  if (life.err) return life;
  Tensor held = ref(life.t);
  delete &ref(life.t);
  return make([&] {
    std::vector<Tensor> in;
    for (int i = 0; i < n; i++) in.push_back(ref(inputs[i]));
    if (always) in.push_back(at::empty({0}).set_requires_grad(true));
    return Function::apply(std::vector<Tensor>{ref(value), held}, ticket, at::TensorList(in));
  });
}

int rt_grad_enabled(void) { return at::GradMode::is_enabled(); }
