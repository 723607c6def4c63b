/* Internal declarations of states: variables by name, seed and next sample. */
#ifndef TU__RUN_STATE_H
#define TU__RUN_STATE_H

#include <tutti/run.h>

#include "device/device.h"
#include "graph/names.h"

/* A copy of a variable in the memory of another device. Programs keep it equal to the variable. */
typedef struct tu__mirror {
    tu__device *device;
    void *data;
    uint64_t version; /* version of the variable that it equals; 0: none */
    struct tu__mirror *next;
} tu__mirror;

typedef struct tu__variable {
    char *name;
    tu_type type;
    /* Device whose memory contains it; NULL: host memory, which all host devices share. */
    tu__device *home;
    void *data; /* dense, in the variable's dtype */
    /* For a variable in host memory: the device that allocated the memory, because it copies it fastest; NULL: none. */
    tu__device *reader;
    uint64_t version;    /* incremented with every change of its value */
    tu__mirror *mirrors; /* may be out of date; refreshed before they are used */
} tu__variable;

struct tu_state {
    tu__variable *variables; /* in the order of creation */
    size_t count, capacity;
    tu__name_table *names;
    uint64_t id;         /* unique in the process, since a new state may get a freed state's address */
    uint64_t generation; /* incremented when the memory of a variable changes; programs then bind again */
    uint64_t seed;
    int64_t next_sample; /* index of the next sample */
    /* A device call has not returned and may still use the variables: they are never freed. */
    bool never_free;
    tu_state *next_kept; /* list of such states that the user has freed */
    /* Runs that update variables, and functions that change the state, are exclusive; others share it. */
    pthread_rwlock_t lock;
    atomic_uintptr_t writer; /* the thread that has it for writing, which may lock it again; 0: none */
    int writer_depth;
};

/* Lock a state, for writing or for reading. A thread that has it for writing may lock it again, in both ways. */
void tu__state_lock(tu_state *state);
void tu__state_lock_shared(const tu_state *state);
void tu__state_unlock(const tu_state *state);

/* Returns the variable of that name and type; NULL, with the message set, if there is none. */
tu__variable *tu__state_find_variable(const tu_state *state, const char *name, tu_type type);

/* Moves the variable to memory that `device` can compute on, if it is elsewhere. */
tu_status tu__state_move(tu_state *state, tu__variable *variable, tu__device *device);

/* Moves a variable in host memory to memory that a device copies fastest, because that reads it in every run; unless it
 * was moved already, is too small, or there is no such memory. */
void tu__state_pin(tu_state *state, tu__variable *variable, tu__device *reader);

/* Returns the variable's mirror on a device; creates it if there is none. It may be out of date. */
tu_status tu__state_mirror(tu_state *state, tu__variable *variable, tu__device *device, tu__mirror **mirror);
/* Copies the variable to the mirror if the mirror is out of date. */
tu_status tu__mirror_refresh(const tu__variable *variable, tu__mirror *mirror);

#endif
