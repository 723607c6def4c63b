/* The devices of a program as the pass `place` sees them. */
#ifndef TU__COMPILE_PLACEMENT_H
#define TU__COMPILE_PLACEMENT_H

#include <tutti/run.h>

#include "base/shared.h"
#include "device/device.h"
#include "pass/pass.h"

/* Opened devices, which placing may add one to. */
typedef struct tu__open_list {
    tu__device **devices; /* room for TU__MAX_DEVICES, the owner's; so have the names */
    const char **names;
    size_t *count;
    tu_open_options options; /* that they were opened with */
} tu__open_list;

/* Whether "all" is one of the names of a list; NULL is "all". */
TU__SHARED bool tu__asks_for_all(const char *devices);

/* Opens the devices of a list into `list`, and lets the unit be placed on them: by what the graph says, `rules` (its fields of those
 * names: place, place_by, place_context, strict_placement; and those of tu__replication_begin), and what the devices take. With "all" in the list, a CPU is
 * added when there is something that no GPU takes. The devices stay open until tu__devices_close; `how` and the list must
 * stay where they are while passes run. */
tu_status tu__placing_begin(tu__open_list *list, tu__placing *how, tu__unit *unit, const char *devices,
                            const tu_open_options *options, const tu_compile_options *rules);
/* Opens one more device, and shows it to the unit. */
tu_status tu__open_list_add(tu__open_list *list, tu__unit *unit, const char *name);

/* replication.c: how the unit's devices share a batch, by the fields of `rules` of those names: strategy, central,
 * invariant, bf16_gradients. A central device that is not in the list is opened. */
tu_status tu__replication_begin(tu__open_list *list, tu__unit *unit, const tu_compile_options *rules);

#endif
