// Convolutions for inference on the CPU: oneDNN's, with the weight laid out for
// it beforehand and sum and ReLU in the same pass. libtorch registers them with
// its dispatcher and declares them in no header.
#ifndef ROADMAP_TORCH_PACKED_H
#define ROADMAP_TORCH_PACKED_H
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int64_t stride[2], padding[2], dilation[2], groups;
} rt_conv;

rt_one rt_pack_conv(rt_handle weight, rt_conv c);
rt_one rt_packed_conv(rt_handle x, rt_handle weight, rt_handle bias, rt_conv c, int relu);
char *rt_packed_conv_onto(rt_handle sum, rt_handle x, rt_handle weight, rt_handle bias, rt_conv c);

#ifdef __cplusplus
}
#endif
#endif
