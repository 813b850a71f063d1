// Operations that return a list.
#ifndef ROADMAP_TORCH_UNBIND_H
#define ROADMAP_TORCH_UNBIND_H
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

// n must be t's size along dim, which is how many handles are written.
char *rt_unbind(rt_handle t, int64_t dim, rt_handle *out, int n);

#ifdef __cplusplus
}
#endif
#endif
