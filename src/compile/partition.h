/* A partition: the nodes of a program that run on one device, with their kernels, memory, and copies from other
 * devices. It does not change once the program is compiled: what runs change is in run/execution.h. */
#ifndef TU__COMPILE_PARTITION_H
#define TU__COMPILE_PARTITION_H

#include "compile/plan_memory.h"
#include "device/device.h"
#include "pass/pass.h"

/* A value that the engine writes into a buffer of the partition; no kernel computes it. */
typedef struct tu__leaf {
    uint32_t node; /* an INPUT, CONSTANT, VARIABLE, COPY or collective */
    uint32_t buffer;
} tu__leaf;

/* A copy from another partition to this one. It begins when the other partition has produced the value. */
typedef struct tu__receive {
    uint32_t node;   /* the COPY node */
    tu__edge source; /* the value copied */
    uint32_t source_partition, source_buffer;
    uint32_t partition, buffer;  /* the destination */
    uint32_t copied_by;          /* the partition whose thread performs the copy: source or destination */
    uint32_t produced, received; /* events of the command list */
    bool is_persistent;          /* a variable or a constant, which exists before the run begins */
    bool is_early;               /* persistent, or produced before the source partition waits for anything */
} tu__receive;

/* An assignment: after the run, the contents of `buffer` become the variable's value. */
typedef struct tu__update {
    uint32_t variable, assign; /* nodes */
    uint32_t buffer;
    bool in_place; /* `buffer` has the variable's address */
    /* The variable's buffer, and that of the staging copy of a value that is itself a variable, so that two variables
     * can be swapped (TU_NO_NODE: none needed). Indices from the plan's buffer_count on are not in the plan. */
    uint32_t target_buffer, staging_buffer;
} tu__update;

/* A control dependency on a receive: the wait comes before the kernel at `position`, which does not read the
 * value. */
typedef struct tu__wait {
    uint32_t buffer, position;
    uint32_t next; /* next wait before the same kernel; TU_NO_NODE: none */
} tu__wait;

typedef struct tu__collective tu__collective; /* collectives.h */
typedef struct tu__collectives tu__collectives;

/* A collective that the partition takes part in. */
typedef struct tu__membership {
    tu__collective *collective;
    uint32_t rank;
} tu__membership;

typedef struct tu__partition {
    tu__device *device;
    uint64_t memory_limit; /* maximum number of bytes that the program may use on the device; 0: no limit */
    uint32_t *nodes, node_count;
    tu__edge
        *exports; /* values that need a buffer: sent, fetched, assigned, in a collective or depended on */
    uint32_t export_count;
    uint32_t *first_output; /* node of the graph -> index of its first output in buffer_of */
    uint32_t *buffer_of;    /* output of a node -> its dense buffer in the plan, or TU_NO_NODE */
    uint32_t output_count;
    tu_plan *plan;
    uint32_t *order;              /* kernel indices in execution order */
    uint32_t update_kernel_count; /* number of kernels at the end of the order that may write variables */
    tu__memory_plan memory;
    tu__leaf *leaves;
    uint32_t leaf_count;
    tu__receive *receives;
    uint32_t receive_count;
    /* Copies that its threads perform, to this device or from it to the host: command_list.c. */
    tu__receive **copies;
    uint32_t copy_count;
    tu__update *updates;
    uint32_t update_count;
    tu__wait *waits; /* control dependencies: tu_after */
    uint32_t wait_count;
    tu__membership *collectives; /* in the order in which they run */
    uint32_t collective_count;
    /* Its compute queue (command_list.h). The commands from `tail` on come after the last LAUNCH and COMMIT. */
    const tu_command *commands;
    uint32_t command_count, tail;
    uint32_t buffer_count; /* of the plan, and of updates */
    /* Bit p: kernels of this partition can access the memory of partition p on another device: peer_access.c. */
    uint64_t peer_access;
    bool is_idle; /* it has no kernels, copies and collectives, so it needs no thread */
} tu__partition;

/* Builds the partitions of a unit whose nodes are placed and whose copies are inserted: selects kernels, schedules
 * them and plans memory. command_list.h then writes what a step does. */
tu_status tu__partitions_build(const tu__unit *unit, size_t count, tu__device **devices,
                               tu__partition *partitions, tu__collectives *collectives);
void tu__partitions_free(size_t count, tu__partition *partitions);

/* peer_access.c: enables peer access between the devices that exchange values, if they support it. */
tu_status tu__partitions_enable_peer_access(const tu__collectives *collectives, tu__partition *partitions,
                                            size_t count);
/* peer_access.c: how a value is copied from one partition to another. */
typedef enum tu__copy_path {
    /* Source or destination is host memory, or both are on one physical device. */
    TU__COPY_DIRECT,
    TU__COPY_PEER_TO_PEER, /* from device to device */
    TU__COPY_THROUGH_HOST  /* without peer access */
} tu__copy_path;
/* peer_access.c: true if both partitions are on logical devices of one physical device, which share its memory. */
bool tu__on_same_physical_device(const tu__partition *partition, const tu__partition *other);
tu__copy_path tu__partitions_copy_path(const tu__partition *partitions, uint32_t from, uint32_t to);

/* True if the next value is the memory of another variable, and must be copied to staging before variables change. */
bool tu__update_needs_staging(const tu__partition *partition, const tu__update *update);

/* Returns the index of the partition that a node is placed on. */
uint32_t tu__partition_of(const tu__unit *unit, uint32_t node);
/* Returns the dense buffer of a value in a partition; TU_NO_NODE if it has none. */
uint32_t tu__partition_buffer(const tu__partition *partition, tu__edge value);

#endif
