/* State from inside: variables by name, and the counters that travel with them. */
#ifndef TU__RUN_STATE_H
#define TU__RUN_STATE_H

#include <tutti/run.h>

#include "device/device.h"
#include "graph/names.h"

typedef struct tu__variable {
    char *name;
    tu_type type;
    tu__device *home; /* the device whose memory holds it; NULL: host memory, which host devices share */
    void *data;       /* dense, in the variable's element type */
} tu__variable;

struct tu_state {
    tu__variable *variables; /* in the order made */
    size_t count, capacity;
    tu__name_table *names;
    uint64_t id;         /* unique in the process: another state at the same address is another state */
    uint64_t generation; /* rises when a variable's memory moves: programs bind anew */
    uint64_t seed;
    int64_t sample; /* ordinal of the next sample */
};

/* The variable that a node of a graph stands for: same name, same type; NULL (message set) when there is none. */
tu__variable *tu__state_bind(const tu_state *state, const char *name, tu_type type);

/* Moves the variable to where `device` can compute on it, if it is not there. */
tu_status tu__state_move(tu_state *state, tu__variable *variable, tu__device *device);

#endif
