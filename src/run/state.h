/* State from inside: variables by name, and the counters that travel with them. */
#ifndef TU__RUN_STATE_H
#define TU__RUN_STATE_H

#include <tutti/run.h>

#include "device/device.h"
#include "graph/names.h"

/* What a device other than the variable's own computes on: another piece of memory that a program keeps equal. */
typedef struct tu__mirror {
    tu__device *device;
    void *data;
    uint64_t version; /* of the variable that it is equal to; 0: of none */
    struct tu__mirror *next;
} tu__mirror;

typedef struct tu__variable {
    char *name;
    tu_type type;
    tu__device *home;    /* the device whose memory holds it; NULL: host memory, which host devices share */
    void *data;          /* dense, in the variable's element type */
    tu__device *reader;  /* in host memory: the device that they are pinned for; NULL: for none */
    uint64_t version;    /* rises with every change of its value */
    tu__mirror *mirrors; /* of any version: filled from the variable when they are next wanted */
} tu__variable;

struct tu_state {
    tu__variable *variables; /* in the order made */
    size_t count, capacity;
    tu__name_table *names;
    uint64_t id;         /* unique in the process: another state at the same address is another state */
    uint64_t generation; /* rises when a variable's memory moves: programs bind anew */
    uint64_t seed;
    int64_t sample; /* ordinal of the next sample */
    /* With a device that did not come back: it may still use the variables, so they are never freed. */
    bool left_behind;
    tu_state *next_kept; /* of those that were to be freed all the same */
};

/* The variable that a node of a graph stands for: same name, same type; NULL (message set) when there is none. */
tu__variable *tu__state_bind(const tu_state *state, const char *name, tu_type type);

/* Moves the variable to where `device` can compute on it, if it is not there. */
tu_status tu__state_move(tu_state *state, tu__variable *variable, tu__device *device);

/* Pins a variable in host memory for a device that reads it there in every run, if that is worth while and not done yet. */
void tu__state_pin(tu__variable *variable, tu__device *reader);

/* The variable's mirror on a device, made if there is none. It may be stale. */
tu_status tu__state_mirror(tu_state *state, tu__variable *variable, tu__device *device, tu__mirror **mirror);
/* Makes a mirror equal to its variable, if it is not. */
tu_status tu__mirror_refresh(const tu__variable *variable, tu__mirror *mirror);

#endif
