// Differentiable functions whose backward is written in Go.
#ifndef ROADMAP_TORCH_FUNCTION_H
#define ROADMAP_TORCH_FUNCTION_H
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

// value becomes a function of the n inputs: its gradient asks Go
// (rt_function_backward) for theirs. Once that is no longer possible the ticket
// is given back; see rt_released. With always the result requires a gradient
// even where no input does.
rt_one rt_function(rt_handle value, rt_handle *inputs, int n, int always, int64_t ticket);
int rt_grad_enabled(void);

#ifdef __cplusplus
}
#endif
#endif
