// The C side of package torch: handles, results, and the part of gotch's libtch
// that the wrappers share. Only types and declarations; shim.cpp has the code.
#ifndef ROADMAP_TORCH_OPS_H
#define ROADMAP_TORCH_OPS_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#else
// libtch's own names for what it passes around.
typedef void *tensor;
typedef void *scalar;
#endif

// A handle is a libtch tensor (torch::Tensor *) as a number, so that Go neither
// follows it nor checks it as a pointer.
typedef uintptr_t rt_handle;

// Every crossing brings its error text back with it (malloc'ed; NULL when all
// went well), so no other goroutine can read it.
typedef struct {
  rt_handle t;
  char *err;
} rt_one;

typedef struct {
  rt_handle t[5];
  char *err;
} rt_many;

#ifndef __cplusplus
char *get_and_reset_last_err(void);
void at_free(tensor);
int at_scalar_type(tensor);
void ats_free(scalar);
scalar rt_scalar(double value, tensor like);
int rt_sum_dtype(tensor t);
#endif

#ifdef __cplusplus
}
#endif
#endif
