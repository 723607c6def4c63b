/* The devices of this process, if several processes train together. */
#ifndef TU__TRAIN_RANK_DEVICES_H
#define TU__TRAIN_RANK_DEVICES_H

#include "base/arena.h"

#include <tutti/process_group.h>

/* Returns the part of a device list that this process uses:
 *
 *     all          the host's GPUs are divided among its processes; without GPUs, the CPU's cores are
 *     gpu:0-7      eight devices, eight processes on the host: one each; two processes: four each
 *     cpu:0/2      fewer devices than processes: each process gets so many, of equal parts of the device
 *
 * For CPUs only processes that share cores count (tu_process_info.core_size). */
tu_status tu__rank_devices(const tu_process_group *group, const char *list, tu__arena *arena,
                           const char **devices);

#endif
