// The product of rows on any device, in full float32.
#ifndef ROADMAP_TORCH_PRODUCT_H
#define ROADMAP_TORCH_PRODUCT_H
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif
rt_one rt_product_float32(rt_handle a, rt_handle b);
#ifdef __cplusplus
}
#endif
#endif
