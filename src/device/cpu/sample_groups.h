/* Groups of kernels that compute a few samples at a time. See sample_groups.c. */
#ifndef TU__DEVICE_CPU_SAMPLE_GROUPS_H
#define TU__DEVICE_CPU_SAMPLE_GROUPS_H

#include "device/kit/select.h"

/* Replaces runs of kernels by groups, if that saves memory traffic. For frozen graphs. */
tu_status cpu_group_samples(tu__selection *s);

#endif
