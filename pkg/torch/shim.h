// What package torch needs of libtorch beyond gotch's table. Every function
// returns its error text (NULL when all went well) or an rt_one that holds it.
#ifndef ROADMAP_TORCH_SHIM_H
#define ROADMAP_TORCH_SHIM_H
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RT_MAX_DIMS 16
typedef struct {
  int dims, dtype, device; // device: -1 CPU, else the CUDA index
  int64_t size[RT_MAX_DIMS];
} rt_meta;

typedef struct {
  int64_t allocated, reserved, peak, free, total;
} rt_memory;

// tensors and memory
void rt_free_all(rt_handle *t, int n);
rt_meta rt_describe(rt_handle t);           // sizes beyond RT_MAX_DIMS are left out
void rt_sizes(rt_handle t, int64_t *size); // all of them
rt_one rt_from(const void *data, const int64_t *size, int dims, int dtype);
rt_one rt_wrap(void *data, const int64_t *size, int dims, int dtype, int64_t ticket);
int rt_released(int64_t *tickets, int n);
char *rt_read(rt_handle t, void *dst, int64_t bytes, int dtype);
char *rt_copy(rt_handle dst, rt_handle src);
rt_one rt_to(rt_handle t, int device, int dtype, int channels_last);
rt_one rt_alias(rt_handle t);
rt_one rt_clone(rt_handle t);
void *rt_data(rt_handle t);
int rt_is_contiguous(rt_handle t, int channels_last);
rt_one rt_index(rt_handle t, rt_handle *indices, int n);
char *rt_index_put(rt_handle t, rt_handle *indices, int n, rt_handle values, int accumulate);
rt_one rt_slice(rt_handle t, int64_t dim, int64_t start, int64_t end, int64_t step);

// autograd
char *rt_require_grad(rt_handle t, int on);
int rt_requires_grad(rt_handle t);
rt_one rt_grad(rt_handle t);
char *rt_set_grad(rt_handle t, rt_handle grad);
char *rt_zero_grad(rt_handle *t, int n);
char *rt_backward(rt_handle t, rt_handle grad, int keep_graph, int create_graph);
char *rt_grad_of(rt_handle out, rt_handle grad, rt_handle *in, int n, rt_handle *result, int keep_graph, int create_graph);
char *rt_set_data(rt_handle t, rt_handle data);
char *rt_mm_into(rt_handle out, rt_handle a, rt_handle b);
rt_one rt_with_grad(rt_handle value, rt_handle *in, rt_handle *grad, int n);
int rt_grad_mode(int on); // returns the previous mode

// autocast
typedef struct {
  int enabled, dtype;
} rt_autocast_state;
rt_autocast_state rt_autocast_get(int device);
void rt_autocast_set(int device, rt_autocast_state s);
void rt_autocast_enter(void);
void rt_autocast_leave(void);

// devices, threads, random numbers, reproducibility
char *rt_load_cuda(void);
int rt_cuda_count(void);
char *rt_synchronize(int device);
char *rt_memory_stats(int device, rt_memory *m);
char *rt_reset_peak(int device);
char *rt_empty_cache(int device);
int rt_threads(void);
void rt_set_threads(int n);
char *rt_seed(int device, uint64_t seed);
rt_one rt_generator_state(int device);
char *rt_set_generator_state(int device, rt_handle state);
void rt_deterministic(int on);
void rt_allow_tf32(int on);
char *rt_version(void);
char *rt_config(void);

// optimisers, over the gradients that the parameters carry
typedef struct {
  double lr, beta1, beta2, weight_decay, eps;
  int amsgrad, decoupled;
} rt_adam;
char *rt_adam_step(rt_handle *p, rt_handle *m, rt_handle *v, rt_handle *vmax, rt_handle *steps, int n, rt_adam o,
                   rt_handle grad_scale, rt_handle found_inf);
typedef struct {
  double lr, momentum, dampening, weight_decay;
  int nesterov, first;
} rt_sgd;
char *rt_sgd_step(rt_handle *p, rt_handle *momentum, int n, rt_sgd o, rt_handle grad_scale, rt_handle found_inf);
char *rt_grad_norm(rt_handle *p, int n, double *norm);
char *rt_scale_grads(rt_handle *p, int n, double factor);
char *rt_unscale_grads(rt_handle *p, int n, rt_handle found_inf, rt_handle inverse_scale);
char *rt_lerp_all(rt_handle *dst, rt_handle *src, int n, double weight);

#ifdef __cplusplus
}
#endif
#endif
