#include "packed.h"
#include "guard.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

using at::Tensor;
using namespace border;

namespace {

// call runs a registered operation that returns one tensor.
template <class... Args> Tensor call(const char *name, const char *overload, Args... args) {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  torch::jit::Stack stack{c10::IValue(std::move(args))...};
  op.callBoxed(&stack);
  return stack.at(0).toTensor();
}

std::vector<int64_t> pair(const int64_t *v) { return {v[0], v[1]}; }
c10::impl::GenericList no_scalars() { return c10::impl::GenericList(c10::OptionalType::create(c10::NumberType::get())); }

} // namespace

rt_one rt_pack_conv(rt_handle weight, rt_conv c) {
  return make([&] {
    at::NoGradGuard no_grad;
    return call("mkldnn::_reorder_convolution_weight", "", ref(weight), pair(c.padding), pair(c.stride), pair(c.dilation), c.groups, c10::IValue());
  });
}

rt_one rt_packed_conv(rt_handle x, rt_handle weight, rt_handle bias, rt_conv c, int relu) {
  return make([&] {
    at::NoGradGuard no_grad;
    return call("mkldnn::_convolution_pointwise", "", ref(x), ref(weight), ref(bias), pair(c.padding), pair(c.stride), pair(c.dilation), c.groups,
                std::string(relu ? "relu" : "none"), no_scalars(), std::string());
  });
}

char *rt_packed_conv_onto(rt_handle sum, rt_handle x, rt_handle weight, rt_handle bias, rt_conv c) {
  return guard([&] {
    at::NoGradGuard no_grad;
    call("mkldnn::_convolution_pointwise_", "binary", ref(sum), ref(x), ref(weight), ref(bias), pair(c.padding), pair(c.stride), pair(c.dilation), c.groups,
         std::string("add"), at::Scalar(1.0), std::string("relu"), no_scalars(), std::string());
  });
}
