/* What oneDNN computes wrongly, and is therefore not asked for. */
#ifndef TU__DEVICE_CPU_DISTRUSTED_H
#define TU__DEVICE_CPU_DISTRUSTED_H

#include "device/cpu/dnnl.h"

/* NULL, or the reason why oneDNN's primitive is not to be trusted. */
const char *cpu_distrusted_convolution(const cpu_convolution *convolution, cpu_convolution_side side,
                                       tu_dtype dtype);
const char *cpu_distrusted_product(const cpu_dnnl_product *product);

#endif
