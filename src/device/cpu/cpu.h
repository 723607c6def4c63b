/* The CPU device from inside: how a part of a graph becomes kernels.
 *
 * select.c walks the part. Pointwise nodes are gathered into clusters and become one fused kernel each (fusion.c);
 * for every other node the maker listed in makers.def is asked. A maker looks at the node's types and attributes and
 * adds one kernel (or a few) to the selection, or answers TU_UNSUPPORTED, and the node then runs by its reference
 * meaning (reference.c): every operation and type works, and the common ones are fast.
 *
 * A kernel reads and writes buffers; a value has at most one, dense. What oneDNN wants in another layout (filters) it
 * reorders in its own workspace.
 *
 *     tu_status cpu_make_lrn(cpu_selection *s, const tu__node *node) {
 *         if (node->outputs[0].dtype != TU_F32) return TU_UNSUPPORTED;
 *         cpu_kernel *k = cpu_kernel_new(s, node, "lrn", run_lrn);          // covers the node
 *         if (!k) return TU_NO_MEMORY;
 *         lrn_data *d = cpu_kernel_data(k, sizeof *d);                      // freed with the kernel
 *         …
 *         cpu_kernel_read(k, node->inputs[0]);
 *         return cpu_kernel_write(k, (tu__edge){node->id, 0}, -1);
 *     }
 */
#ifndef TU__DEVICE_CPU_H
#define TU__DEVICE_CPU_H

#include <tutti/device.h>

#include "base/arena.h"
#include "base/parallel.h"
#include "graph/graph.h"

typedef struct cpu_device {
    int index, part, parts;
    int threads;
    int first_core; /* of the part, in the process's affinity mask */
    uint64_t memory_limit;
    const struct cpu_loops *loops; /* inner loops for this machine's instruction set: isa/loops.h */
} cpu_device;

typedef struct cpu_selection cpu_selection;
typedef struct cpu_kernel cpu_kernel;

struct cpu_kernel {
    const char *name;
    tu_status (*run)(const cpu_kernel *k);
    void *data; /* the maker's own */
    void (*release)(
        void *data); /* optional: frees what `data` points to outside the arena (oneDNN primitives) */
    uint32_t node_count, read_count, write_count;
    uint32_t *nodes, *reads, *writes;
    int32_t *in_place;
    size_t workspace_bytes; /* set by the maker; 64-byte aligned */
    int64_t flops, bytes_moved;
    /* set by build */
    void **in, **out; /* one address a read, one a write */
    void *workspace;
    const uint64_t *seed;
    const cpu_device *device;
    cpu_selection *owner;
};

/* What makers may look at. */
struct cpu_selection {
    const cpu_device *device;
    const tu_graph *graph;
    tu__arena arena; /* lives as long as the plan */
    struct cpu_plan *plan;
};

/* A kernel that covers `node`; NULL when memory runs out. `name` must outlive the plan (a literal). */
cpu_kernel *cpu_kernel_new(cpu_selection *s, const tu__node *node, const char *name,
                           tu_status (*run)(const cpu_kernel *k));
/* Zeroed memory of the maker's own that lives as long as the plan; k->data is set to it. */
void *cpu_kernel_data(cpu_kernel *k, size_t bytes);
/* Another node that this kernel computes too (fused). */
tu_status cpu_kernel_cover(cpu_kernel *k, const tu__node *node);
/* The value in canonical layout, as the next entry of k->in. */
tu_status cpu_kernel_read(cpu_kernel *k, tu__edge value);
/* The value's dense buffer, as the next entry of k->out. `in_place`: which read's memory it may take over, or -1. */
tu_status cpu_kernel_write(cpu_kernel *k, tu__edge value, int in_place);

/* How many nodes of the part read a value, the only reader (NULL if there are several or it is exported). */
const tu__node *cpu_only_reader(cpu_selection *s, tu__edge value);
/* Marks a node as computed by an earlier kernel: select passes over it. For makers that fuse what follows. */
void cpu_mark_done(cpu_selection *s, const tu__node *node);

/* Makers, from makers.def. */
typedef tu_status (*cpu_maker)(cpu_selection *s, const tu__node *node);
#define MAKER(op, maker) tu_status maker(cpu_selection *s, const tu__node *node);
#include "device/cpu/makers.def"
tu_status cpu_make_reference(cpu_selection *s, const tu__node *node);

#endif
