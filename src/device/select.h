/* Selection: how a device that fuses turns its part of a graph into kernels and buffers. What such devices share.
 *
 * select.c walks the part. Pointwise nodes are gathered into clusters and become one fused kernel each (fusion.h); for
 * every other node the device's table of lowering rules is asked. A lowering rule looks at the node's types and attributes and adds
 * one kernel (or a few) to the selection, or answers TU_UNSUPPORTED, and the node goes to the device's lowering rule of last
 * resort. A kernel reads and writes buffers; a value has at most one, dense.
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
#ifndef TU__DEVICE_SELECT_H
#define TU__DEVICE_SELECT_H

#include <tutti/device.h>

#include "base/arena.h"
#include "base/shared.h"
#include "graph/graph.h"

#define TU__NONE UINT32_MAX

/* ---- Kernels ---- */

typedef struct tu__selection tu__selection;
typedef struct tu__kernel tu__kernel;

struct tu__kernel {
    const char *name;
    tu_status (*run)(const tu__kernel *k); /* computes it, or puts it into the device's queue */
    void *data;                            /* the lowering rule's own */
    void (*release)(
        void *data); /* optional: frees what `data` points to outside the arena (oneDNN primitives) */
    uint32_t node_count, read_count, write_count;
    uint32_t *nodes, *reads, *writes;
    int32_t *in_place;
    size_t workspace_bytes; /* set by the lowering rule; 64-byte aligned */
    int64_t flops, bytes_moved;
    /* set by build */
    void **in, **out; /* one address a read, one a write */
    void *workspace;
    const uint64_t *seed;
    const void *device; /* the device's own: what tu__select was given */
    tu__selection *owner;
};

/* What lowering rules may look at. */
struct tu__selection {
    const void *device;
    const struct tu__selector *selector;
    const tu_graph *graph;
    tu__arena arena; /* lives as long as the plan */
    struct tu__kernel_plan *plan;
};

/* A kernel that covers `node`; NULL when memory runs out. `name` must outlive the plan (a literal). */
TU__SHARED tu__kernel *tu__kernel_new(tu__selection *s, const tu__node *node, const char *name,
                                      tu_status (*run)(const tu__kernel *k));
/* Zeroed memory of the lowering rule's own that lives as long as the plan; k->data is set to it. */
TU__SHARED void *tu__kernel_data(tu__kernel *k, size_t bytes);
/* Another node that this kernel computes too (fused). */
TU__SHARED tu_status tu__kernel_cover(tu__kernel *k, const tu__node *node);
/* The value in canonical layout, as the next entry of k->in. */
TU__SHARED tu_status tu__kernel_read(tu__kernel *k, tu__edge value);
/* The value's dense buffer, as the next entry of k->out. `in_place`: which read's memory it may take over, or -1. */
TU__SHARED tu_status tu__kernel_write(tu__kernel *k, tu__edge value, int in_place);
/* A buffer of the device's own that goes from the kernel of `node` to another: the next entry of k->out, and of that
 * one's k->in. For what a kernel has at hand that no value of the graph holds. */
TU__SHARED tu_status tu__kernel_leave(tu__kernel *k, const tu__node *node, size_t bytes);
TU__SHARED tu_status tu__kernel_find(tu__kernel *k, const tu__node *node);

/* The only node of the part that reads a value (NULL if there are several or it is exported). */
TU__SHARED const tu__node *tu__only_reader(tu__selection *s, tu__edge value);
/* Whether a node is of this part and no kernel's yet: where two products are added, one of them takes the sum. */
TU__SHARED bool tu__is_free(const tu__selection *s, const tu__node *node);
/* The only reader of a value, if it is free. */
TU__SHARED const tu__node *tu__free_reader(tu__selection *s, tu__edge value);
/* Whether a value is zero everywhere, by the way it is made. */
TU__SHARED bool tu__is_zero(const tu__selection *s, tu__edge value);
/* Marks a node as computed by an earlier kernel: select passes over it. For lowering rules that fuse what follows. */
TU__SHARED void tu__mark_done(tu__selection *s, const tu__node *node);

/* ---- What a device brings ---- */

/* Sums that a cluster takes in at its end: of the space seen as [rows, row], over its rows or along each row. */
typedef enum tu__sum_kind { TU__NO_SUMS, TU__COLUMN_SUMS, TU__ROW_SUMS } tu__sum_kind;

/* The space around the axes that a sum reduces. */
typedef struct tu__sum_form {
    int64_t outer, reduced, inner;
} tu__sum_form;

struct tu__cluster;
typedef tu_status (*tu__lowering_rule)(tu__selection *s, const tu__node *node);

typedef struct tu__selector {
    const tu__lowering_rule *rules; /* [TU__OP_COUNT]; NULL entries go to `otherwise` */
    tu__lowering_rule otherwise;    /* takes any node, or refuses it for good */
    /* Copies a dense value into the buffer of an export. */
    tu_status (*make_copy)(tu__selection *s, tu__edge from, tu__edge to);
    /* optional: input `index` as the lowering rule of `node` will read it: what it is computed from, where its kernel does
     * that itself */
    tu__edge (*read_by_rule)(tu__selection *s, const tu__node *node, uint32_t index);

    /* Clusters: fusion.h. A kernel has one piece, or many that do not depend on each other. */
    size_t piece_bytes;
    tu_status (*run_pointwise)(const tu__kernel *k);
    tu_status (*make_piece)(tu__kernel *k, struct tu__cluster *c, void *piece);
    tu_status (*finish_pieces)(tu__kernel *k, uint32_t count, void *pieces);
    bool joins_casts; /* casts of leaves, such as parameters made half, are one kernel at the beginning */
    /* optional: how a cluster can take in a sum of one of its members, of type `dtype`, at its end; `cut` is told to
     * make_piece */
    tu__sum_kind (*sum_kind_of)(const struct tu__cluster *c, tu_dtype dtype, tu__sum_form form, bool *cut);
} tu__selector;

/* ---- A plan in the making ---- */

typedef enum tu__node_state {
    TU__OUTSIDE, /* not of this part: its values are leaves */
    TU__WAITING, /* not looked at yet */
    TU__PENDING, /* pointwise, broadcast or fill: computed when somebody asks, together with what surrounds it */
    TU__BUSY,    /* its lowering rule is at work */
    TU__DONE,
} tu__node_state;

typedef struct tu__plan_value {
    uint32_t dense; /* its buffer; TU__NONE */
    uint32_t first_reader,
        reader_count; /* in tu__kernel_plan.readers: one entry for each input that is this value */
    bool exported;
    bool exported_buffer; /* its buffer is an export's: no other export may share it */
} tu__plan_value;

typedef struct tu__kernel_time {
    double start, seconds;
} tu__kernel_time;

typedef struct tu__kernel_plan {
    tu_plan plan; /* what the engine sees; first */
    tu__selection selection;
    const tu_partition *part; /* while selecting */
    tu_buffer *buffers;
    uint32_t buffer_count, buffer_capacity;
    tu__kernel **kernels;
    uint32_t kernel_count, kernel_capacity;

    /* while selecting: per node of the graph */
    uint8_t *state;
    uint32_t *slot;     /* node -> its first entry in `values` */
    uint32_t *level;    /* tu_partition.levels */
    uint32_t *mark;     /* fusion.c: the cluster being gathered that holds the node */
    uint32_t *assigned; /* the variable that its value is assigned to; TU__NONE */
    uint32_t *beside;   /* a buffer of no value that the node's kernel leaves for another kernel; TU__NONE */
    uint32_t cluster_count;
    const tu__node
        *asking; /* the node whose input is being required, for tu__fuse; NULL: somebody else asks */
    tu__plan_value *values;
    uint32_t *readers;

    /* once bound */
    const uint32_t *order;
    tu__kernel_time *times; /* per place of the order */
    void *runtime;          /* the device's own */
} tu__kernel_plan;

TU__SHARED tu_status tu__select(const void *device, const tu__selector *selector, const tu_partition *part,
                                tu_plan **plan);
TU__SHARED void tu__kernel_plan_bind(tu__kernel_plan *plan, const tu_binding *binding);
TU__SHARED void tu__kernel_plan_free(tu__kernel_plan *plan);

TU__SHARED tu__plan_value *tu__plan_value_of(tu__selection *s, tu__edge value);
TU__SHARED const tu_type *tu__type_of(const tu__selection *s, tu__edge value);
/* The value that the given one is a view of, through any number of views; itself otherwise. */
TU__SHARED tu__edge tu__root_of(const tu__selection *s, tu__edge value);
/* Sees to it that kernels compute the value. */
TU__SHARED tu_status tu__require(tu__selection *s, tu__edge value);
/* Its dense buffer, made if need be. */
TU__SHARED tu_status tu__dense_buffer(tu__selection *s, tu__edge value, uint32_t *buffer);

#endif
