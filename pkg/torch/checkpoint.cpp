#include "checkpoint.h"
#include "guard.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

using at::Tensor;
using namespace border;

// Exported by checkpoint.go: runs f on x once more and passes grad back through
// it. It returns the gradient of x, or an error's text.
extern "C" rt_one rt_checkpoint_again(int64_t ticket, rt_handle x, rt_handle grad);

namespace {

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  // start requires a gradient, so that the result does even where x does not.
  // held is the value and life, in a list so that autograd does not take them for inputs.
  static Tensor forward(torch::autograd::AutogradContext *ctx, const Tensor &x, const Tensor &start, const std::vector<Tensor> &held, int64_t ticket) {
    (void)start;
    ctx->save_for_backward({x, held[1]});
    ctx->saved_data["ticket"] = ticket;
    ctx->saved_data["wanted"] = x.requires_grad();
    return held[0];
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *ctx, const torch::autograd::variable_list &grad) {
    bool wanted = ctx->saved_data["wanted"].toBool();
    Tensor x = ctx->get_saved_variables()[0].detach();
    if (wanted) x.set_requires_grad(true);
    Tensor upstream = grad[0];
    at::AutoGradMode record(true);
    rt_one r = rt_checkpoint_again(ctx->saved_data["ticket"].toInt(), handle(x), handle(upstream));
    if (r.err) {
      std::string text = r.err;
      free(r.err);
      TORCH_CHECK(false, text);
    }
    Tensor of_x;
    if (r.t) {
      of_x = ref(r.t);
      delete &ref(r.t);
    }
    return {of_x, Tensor(), Tensor(), Tensor()};
  }
};

} // namespace

rt_one rt_checkpoint(rt_handle value, rt_handle x, rt_handle life, int64_t ticket) {
  return make([&] {
    Tensor start = at::empty({0}).set_requires_grad(true);
    return Checkpoint::apply(ref(x), start, std::vector<Tensor>{ref(value), ref(life)}, ticket);
  });
}

int rt_grad_enabled(void) { return at::GradMode::is_enabled(); }

char *rt_set_data(rt_handle t, rt_handle data) {
  return guard([&] { ref(t).set_data(ref(data)); });
}
