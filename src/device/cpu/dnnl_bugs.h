/* Bugs of oneDNN: operations that it computes wrongly and that are therefore not passed to it. */
#ifndef TU__DEVICE_CPU_DNNL_BUGS_H
#define TU__DEVICE_CPU_DNNL_BUGS_H

#include "device/cpu/dnnl.h"

/* Return the reason why oneDNN must not be used for this operation, or NULL. */
const char *cpu_dnnl_conv_bug(const cpu_convolution *convolution, cpu_conv_result result, tu_dtype dtype);
const char *cpu_dnnl_matmul_bug(const cpu_dnnl_product *product);

#endif
