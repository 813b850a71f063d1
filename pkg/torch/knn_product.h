// The product of rows on any device, in full float32.
#ifndef ROADMAP_TORCH_KNN_PRODUCT_H
#define ROADMAP_TORCH_KNN_PRODUCT_H
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif
rt_one knn_product(rt_handle a, rt_handle b);
#ifdef __cplusplus
}
#endif
#endif
