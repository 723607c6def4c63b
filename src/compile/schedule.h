/* The order of a plan's kernels. */
#ifndef TU__COMPILE_SCHEDULE_H
#define TU__COMPILE_SCHEDULE_H

#include <tutti/device.h>

typedef struct tu__schedule_request {
    const tu_plan *plan;
    const uint32_t *level; /* per kernel */
    const bool *sends;     /* per kernel: other devices wait for what it writes */
    const bool *last;      /* per kernel: it comes at the end, since nobody else reads what it writes */
    const uint32_t
        *made; /* per buffer: its place among the values that other devices make and send; 0: it is none */
} tu__schedule_request;

/* Writes the kernels' order: every buffer is written before it is read; then by level; then those that other devices
 * wait for before those that only this one does; then those that hang on what other devices make early before those
 * that hang on what they make late; then as the graph was built, so that what a user made late (recomputed values among
 * them) runs late. Kernels for which `last` is set come at the end, `*last_count` of them.
 *
 * The level of a kernel is how often a value changed devices on its way to it, at most. A kernel that waits for another
 * device waits for lower levels alone; since every device goes up the levels, no two devices wait for each other. */
tu_status tu__schedule(const tu__schedule_request *request, uint32_t *order, uint32_t *last_count);

#endif
