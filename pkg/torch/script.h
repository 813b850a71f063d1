// TorchScript modules. A module is held by a tensor without meaning of its own,
// so that it lives exactly as long as the scope that holds that.
#ifndef ROADMAP_TORCH_SCRIPT_H
#define ROADMAP_TORCH_SCRIPT_H
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

rt_one rt_script_load(const char *path, int device);
char *rt_script_train(rt_handle module, int on);
rt_one rt_script_forward(rt_handle module, rt_handle x);
// Parameters, then buffers: count is that of both.
void rt_script_count(rt_handle module, int *parameters, int *count);
char *rt_script_name(rt_handle module, int i);
rt_one rt_script_tensor(rt_handle module, int i);
// The first place of the same tensor: i itself unless the module ties it to another name.
int rt_script_twin(rt_handle module, int i);

#ifdef __cplusplus
}
#endif
#endif
