/* Internal declarations of programs. A program does not change once it is compiled, except for what its lock guards
 * and the trace. */
#ifndef TU__RUN_PROGRAM_H
#define TU__RUN_PROGRAM_H

#include <pthread.h>
#include <string.h>

#include <tutti/run.h>

#include "base/shared.h"
#include "compile/command_list.h"

/* Where an input gets its data. Its buffer is in the command list. */
typedef struct tu__feed {
    uint32_t source; /* the input's node in the user's graph */
    uint32_t node;   /* the input's node in the program's graph */
    /* Bytes: offset of the input's rows in the user's data for one run, and size of that data. */
    size_t offset, total_bytes;
} tu__feed;

/* The constants of a partition in device memory. */
typedef struct tu__bound_constants {
    void *block;   /* the data of those that belong to the graph alone; NULL: there are none */
    void **shared; /* per leaf: the address of its shared data; NULL: it has none */
    bool are_bound;
} tu__bound_constants;

typedef struct tu__trace tu__trace; /* trace.h */

struct tu_program {
    tu_graph *source;        /* the user's graph */
    tu_process_group *group; /* the processes that run it together; NULL: this one alone */
    tu__unit unit;
    size_t device_count;
    tu__device *devices[TU__MAX_DEVICES];
    const char *device_names[TU__MAX_DEVICES];
    bool uses_all; /* the device list contained "all": GPUs, and the CPU only if there is no GPU */
    tu__partition *partitions;
    tu__collectives collectives;
    size_t active_count;              /* number of partitions that are not idle */
    const tu__partition *only_active; /* the only partition that is not idle; NULL if there are several */
    tu__feed *feeds;                  /* per input of the command list */
    size_t feed_count;
    tu_slot *feed_slots, *fetch_slots; /* of the command list */
    tu__command_list list;             /* what one step does */
    uint32_t event_count;              /* of a run: those of the list, and two per rank of each collective */
    char submit_notice[256]; /* why the devices cannot execute the list as a whole; "" if they can */
    /* Of a program of several processes whose devices perform its collectives: connect_processes.h. */
    tu_processes processes;
    tu_executable *connection; /* NULL: the host performs them */
    char host_notice
        [320];      /* for the user: that values go through the host although devices might exchange them */
    double timeout; /* maximum seconds of a step */
    uint64_t *sent_bytes; /* per node: bytes of its outputs that are copied to other devices */
    bool plan_only;
    int64_t samples;  /* in a batch; 0 if the program has no input of sample ordinals */
    tu__trace *trace; /* of runs in the default session; NULL if the program is not traced */

    /* What binding creates once for all sessions. */
    pthread_mutex_t lock;                  /* guards the two below */
    struct tu__bound_constants *constants; /* per partition */
    struct tu__execution *executions;      /* the first one created is that of the default session */
};

/* True if the input contains the sample ordinals, which the engine generates if they are not fed. */
static inline bool tu__is_sample_ordinals(const tu__node *input) {
    return strcmp(input->stands_for ? input->stands_for : input->name, "sample_ordinal") == 0;
}

/* True if the program reads a row of a batched input. A program of a process group reads only its own shards. */
TU__SHARED bool tu__program_reads_row(const tu_program *program, tu_value input, int64_t row);

/* memory_limit.c: fails with TU_NO_MEMORY if the program does not fit its devices. The message lists the largest
 * buffers and possible savings. */
tu_status tu__check_memory(const tu_program *program, const tu_compile_options *options);

#endif
