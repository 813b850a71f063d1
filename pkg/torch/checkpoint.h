// Values that Backward computes a second time, and tensors replaced in place.
#ifndef ROADMAP_TORCH_CHECKPOINT_H
#define ROADMAP_TORCH_CHECKPOINT_H
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

// value is f(x), computed without a history. The result has one: its gradient
// asks Go (rt_checkpoint_again) for f's. life is kept until that is no longer possible.
rt_one rt_checkpoint(rt_handle value, rt_handle x, rt_handle life, int64_t ticket);
int rt_grad_enabled(void);
char *rt_set_data(rt_handle t, rt_handle data);

#ifdef __cplusplus
}
#endif
#endif
