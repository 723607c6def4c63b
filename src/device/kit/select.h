/* Selection: how a device that fuses operations turns its partition of a graph into kernels and buffers. Shared code
 * of such devices.
 *
 * select.c iterates over the nodes of the partition. Pointwise nodes are grouped into clusters, each of which
 * becomes one fused kernel (fusion.h). Every other node is lowered by the device's lowering rule for its operation.
 * A rule looks at the node's types and attributes and adds one kernel (or a few) to the selection. If it returns
 * TU_UNSUPPORTED, the device's fallback rule lowers the node. A kernel reads and writes buffers; a value has at most
 * one buffer, a dense one.
 *
 *     tu_status cpu_lower_lrn(tu__selection *s, const tu__node *node) {
 *         if (node->outputs[0].dtype != TU_F32) return TU_UNSUPPORTED;
 *         tu__kernel *k = tu__kernel_new(s, node, "lrn", run_lrn);          // covers the node
 *         if (!k) return TU_NO_MEMORY;
 *         lrn_data *d = tu__kernel_data(k, sizeof *d);                      // freed with the kernel
 *         …
 *         tu__kernel_read(k, node->inputs[0]);
 *         return tu__kernel_write(k, (tu__edge){node->id, 0}, -1);
 *     }
 */
#ifndef TU__DEVICE_KIT_SELECT_H
#define TU__DEVICE_KIT_SELECT_H

#include <tutti/device.h>

#include "base/arena.h"
#include "graph/graph.h"

#define TU__NONE UINT32_MAX

/* ---- Kernels ---- */

typedef struct tu__selection tu__selection;
typedef struct tu__kernel tu__kernel;

/* How a device may compute some samples at a time: positions along the first axis of a kernel's values, which it
 * computes independently of each other. */
typedef struct tu__kernel_samples {
    int64_t count; /* of the kernel; 0: it has no samples */
    int64_t least; /* the fewest that are computed together as fast, each, as all of them */
    uint32_t
        reads; /* bit r: read r has a part per sample, as all writes have; other reads are the same for all samples */
    /* Plans the kernel anew, for `count` samples and one thread. From then on its `run` must not fail. */
    tu_status (*divide)(tu__kernel *k, int64_t count);
} tu__kernel_samples;

struct tu__kernel {
    const char *name;
    tu_status (*run)(const tu__kernel *k); /* executes it, or enqueues it on the device */
    void *data;                            /* set by the lowering rule, read by `run` */
    /* Optional: frees what `data` points to outside the arena (oneDNN primitives). */
    void (*release)(void *data);
    uint32_t node_count, read_count, write_count;
    uint32_t *nodes, *reads, *writes; /* nodes that it computes; buffers that it reads and writes */
    int32_t *in_place;                /* per write: index of the read whose memory it may reuse; -1: none */
    size_t workspace_bytes;           /* set by the lowering rule; 64-byte aligned */
    size_t resident_bytes;            /* of data that the plan keeps for it, such as packed weights */
    int64_t flops, bytes_moved;
    const void *device;         /* the `device` argument of tu__select */
    tu__kernel_samples samples; /* optional */
    /* Set in the copy of an executable: */
    void **in, **out; /* addresses, one per read and one per write */
    void *workspace;
    const uint64_t *seed;
    void *queue; /* for the device */
    tu__selection *owner;
};

/* The part of a selection that lowering rules may use. */
struct tu__selection {
    const void *device;
    const struct tu__selector *selector;
    const tu_graph *graph;
    tu__arena arena; /* lives as long as the plan */
    struct tu__kernel_plan *plan;
};

/* Makes a kernel that computes `node`; NULL if out of memory. `name` must outlive the plan (a literal). */
tu__kernel *tu__kernel_new(tu__selection *s, const tu__node *node, const char *name,
                           tu_status (*run)(const tu__kernel *k));
/* Allocates zeroed memory for the lowering rule, valid as long as the plan, and stores it in k->data. */
void *tu__kernel_data(tu__kernel *k, size_t bytes);
/* Adds another node that this kernel computes (fused). */
tu_status tu__kernel_add_node(tu__kernel *k, const tu__node *node);
/* Adds a read of the value's dense buffer, as the next entry of k->in. */
tu_status tu__kernel_read(tu__kernel *k, tu__edge value);
/* Adds a write of the value's dense buffer, as the next entry of k->out. `in_place`: the read whose memory it may
 * reuse, or -1. */
tu_status tu__kernel_write(tu__kernel *k, tu__edge value, int in_place);
/* The same for a buffer that the plan has. */
tu_status tu__kernel_read_buffer(tu__kernel *k, uint32_t buffer);
tu_status tu__kernel_write_buffer(tu__kernel *k, uint32_t buffer);
/* Passes data that is no value of the graph from one kernel to another, in a buffer of its own. tu__kernel_save: the
 * kernel of `node` writes it, as the next entry of k->out. tu__kernel_read_saved: another kernel reads it, as the
 * next entry of k->in. */
tu_status tu__kernel_save(tu__kernel *k, const tu__node *node, size_t bytes);
tu_status tu__kernel_read_saved(tu__kernel *k, const tu__node *node);

/* Returns the only node of the partition that reads a value; NULL if there are several or it is exported. */
const tu__node *tu__only_reader(tu__selection *s, tu__edge value);
/* True if a node is in this partition and no kernel computes it yet. (If two products are added, only one of them
 * can fuse the addition.) */
bool tu__can_fuse(const tu__selection *s, const tu__node *node);
/* Returns tu__only_reader of a value if tu__can_fuse is true for it; otherwise NULL. */
const tu__node *tu__fusible_reader(tu__selection *s, tu__edge value);
/* Returns the squared norm that contains the node; NULL: none. */
const tu_squared_norm *tu__squared_norm_of(const tu__selection *s, const tu__node *node);
/* Marks a node as computed by an earlier kernel, so that select skips it. For lowering rules that fuse later
 * nodes. */
void tu__mark_done(tu__selection *s, const tu__node *node);

/* ---- The interface of a device that fuses ---- */

/* Sums that can be fused at the end of a cluster, whose space is viewed as [rows, row]: over the rows, or along each
 * row. In a stack the rows have a group for each network, and are summed per group: [groups, rows, row]. */
typedef enum tu__sum_kind { TU__NO_SUMS, TU__COLUMN_SUMS, TU__ROW_SUMS } tu__sum_kind;

/* The sizes before, of and after the axes that a sum reduces. */
typedef struct tu__sum_form {
    int64_t outer, reduced, inner;
} tu__sum_form;

struct tu__cluster;
typedef tu_status (*tu__lowering_rule)(tu__selection *s, const tu__node *node);

typedef struct tu__selector {
    const tu__lowering_rule *rules; /* [TU__OP_COUNT]; NULL: use `fallback` */
    tu__lowering_rule fallback;     /* lowers any node, or fails */
    /* Adds a kernel that copies a dense value into the buffer of an export. */
    tu_status (*make_copy)(tu__selection *s, tu__edge from, tu__edge to);
    /* Optional: returns the value that the kernel of `node` reads for input `index`. It differs from the input if the
     * kernel also computes the input (fusion). */
    tu__edge (*input_after_fusion)(tu__selection *s, const tu__node *node, uint32_t index);

    /* Fused kernels of clusters (fusion.h). A kernel has one subkernel, or several that are independent of each
     * other. */
    size_t subkernel_bytes;
    tu_status (*run_pointwise)(const tu__kernel *k);
    tu_status (*make_subkernel)(tu__kernel *k, struct tu__cluster *c, void *subkernel);
    tu_status (*finish_subkernels)(tu__kernel *k, uint32_t count, void *subkernels);
    /* Optional: the kernel of another operation, which computes `operand`, also computes the cluster, the only reader of the
     * operand, and stores its results instead of the operand. Sets `*fused`, or changes nothing. */
    tu_status (*fuse_into_kernel)(tu__kernel *k, struct tu__cluster *c, tu__edge operand, bool *fused);
    bool fuses_leaf_casts; /* fuses casts of leaves, e.g. of parameters to bf16, into one kernel */
    /* Optional: returns how a sum of a cluster member of type `dtype` can be fused at the end of the cluster.
     * `splits_rows` is passed on to make_subkernel in the cluster. */
    tu__sum_kind (*sum_kind_of)(const struct tu__cluster *c, tu_dtype dtype, tu__sum_form form,
                                bool *splits_rows);
    /* Optional: changes the kernels of the plan, which are sorted, before the engine sees them. */
    tu_status (*finish)(tu__selection *s);
} tu__selector;

/* ---- A plan while it is built ---- */

typedef enum tu__node_state {
    TU__OUTSIDE, /* not in this partition: its values are leaves */
    TU__WAITING, /* not visited yet */
    TU__PENDING, /* pointwise, broadcast or fill: computed when its value is needed, fused with its neighbours */
    TU__BUSY,    /* its lowering rule is running */
    TU__DONE,    /* a kernel computes it */
} tu__node_state;

typedef struct tu__plan_value {
    uint32_t dense; /* its buffer; TU__NONE: none */
    /* In tu__kernel_plan.readers: one entry per input that is this value. */
    uint32_t first_reader, reader_count;
    bool exported;
    bool exported_buffer; /* its buffer is that of an export, which no other export may share */
} tu__plan_value;

typedef struct tu__kernel_time {
    double start, seconds;
} tu__kernel_time;

typedef struct tu__kernel_plan {
    tu_plan plan; /* the part that the engine sees; must be first */
    tu__selection selection;
    const tu_partition *partition; /* set while selecting */
    tu_buffer *buffers;
    uint32_t buffer_count, buffer_capacity;
    tu__kernel **kernels;
    uint32_t kernel_count, kernel_capacity;

    /* while selecting: per node of the graph */
    uint8_t *state;
    uint32_t *slot;     /* node -> its first entry in `values` */
    uint32_t *level;    /* tu_partition.levels */
    uint32_t *mark;     /* fusion.c: id of the cluster being built that contains the node */
    uint32_t *assigned; /* the variable that its value is assigned to; TU__NONE: none */
    uint32_t *norm;     /* index in tu_partition.norms of the norm that contains the node; TU__NONE: none */
    uint32_t *saved;    /* the buffer of tu__kernel_save for the node's kernel; TU__NONE: none */
    uint32_t cluster_count;
    const tu__node *required_by; /* tu__fuse: the node whose input is being computed; NULL: none */
    tu__plan_value *values;
    uint32_t *readers;

    void *runtime; /* for the device */
} tu__kernel_plan;

/* The kernels of a plan, bound to addresses: what `build` of the device makes. The plan is shared, so `run` functions
 * must not change the kernels' data. */
typedef struct tu__bound_kernels {
    const tu__kernel_plan *plan;
    uint32_t count;
    tu__kernel *kernels;    /* copies, in the order of launches */
    tu__kernel_time *times; /* of the latest launch */
    const uint64_t *seed;
    void **addresses; /* of all kernels */
} tu__bound_kernels;

tu_status tu__select(const void *device, const tu__selector *selector, const tu_partition *partition,
                     tu_plan **plan);
tu_status tu__kernels_bind(const tu__kernel_plan *plan, const tu_binding *binding, void *queue,
                           tu__bound_kernels *bound);
void tu__kernels_unbind(tu__bound_kernels *bound);
void tu__kernel_plan_free(tu__kernel_plan *plan);

tu__plan_value *tu__plan_value_of(tu__selection *s, tu__edge value);
const tu_type *tu__type_of(const tu__selection *s, tu__edge value);
/* Follows views to the value whose buffer they share; returns `value` itself if it is no view. */
tu__edge tu__root_of(const tu__selection *s, tu__edge value);
/* Makes sure that kernels compute the value. */
tu_status tu__require(tu__selection *s, tu__edge value);
/* Returns the value's dense buffer; adds it, and the kernels that compute it, if necessary. */
tu_status tu__dense_buffer(tu__selection *s, tu__edge value, uint32_t *buffer);

#endif
