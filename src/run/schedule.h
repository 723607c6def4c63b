/* The order of a plan's kernels. */
#ifndef TU__RUN_SCHEDULE_H
#define TU__RUN_SCHEDULE_H

#include <tutti/device.h>

/* Writes the kernels' order: every buffer is written before it is read; then by level; then those that other devices
 * wait for (`sends`) before those that only this one does; then as the graph was built, so that what a user made late
 * (recomputed values among them) runs late. Kernels for which `last` is set come at the end, `*last_count` of them: nobody
 * else reads what they write.
 *
 * The level of a kernel is how often a value changed devices on its way to it, at most. A kernel that waits for another
 * device waits for lower levels alone; since every device goes up the levels, no two devices wait for each other. */
tu_status tu__schedule(const tu_plan *plan, const uint32_t *level, const bool *sends, const bool *last,
                       uint32_t *order, uint32_t *last_count);

#endif
