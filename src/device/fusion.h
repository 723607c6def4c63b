/* Clusters: pointwise nodes that become one kernel. fusion.c gathers them, the device's selector makes kernels of them. */
#ifndef TU__DEVICE_FUSION_H
#define TU__DEVICE_FUSION_H

#include "base/shared.h"
#include "device/select.h"

enum { TU__MAX_CLUSTER_NODES = 48, TU__MAX_SUMS = 4 };

typedef enum tu__operand_kind { TU__MEMBER, TU__NUMBER, TU__LOAD, TU__OBSTACLE } tu__operand_kind;

typedef struct tu__operand {
    tu__operand_kind kind;
    tu__edge
        value; /* MEMBER: output 0 of the node; LOAD: what is read; OBSTACLE: what must be computed first */
    tu_type type;  /* LOAD: its shape broadcasts to the space */
    double number; /* NUMBER */
} tu__operand;

typedef struct tu__cluster {
    tu__selection *s;
    uint32_t id; /* its members are marked with it in tu__kernel_plan.mark */
    tu_shape space;
    bool wide; /* computed in f64 */
    uint32_t level;
    uint32_t member_count, reserved;
    const tu__node *members[TU__MAX_CLUSTER_NODES]; /* inputs before users; the last is the root */
    bool stored[TU__MAX_CLUSTER_NODES];
    tu__sum_kind sums;
    int64_t sum_row; /* elements of a row */
    bool sum_cut;    /* rows are dealt out to the workers; otherwise sums over them are made by one */
    uint32_t sum_count;
    const tu__node *sum_nodes[TU__MAX_SUMS]; /* sum or mean */
    uint32_t sum_members[TU__MAX_SUMS];      /* of which member */
    bool summed[TU__MAX_CLUSTER_NODES];      /* not stored, but kept for as long as it takes to be summed */
    bool blocked;
    tu__edge obstacle;
} tu__cluster;

/* What an input of a member is, to this cluster. */
TU__SHARED tu__operand tu__resolve(tu__cluster *c, tu__edge value);

/* Computes a pending pointwise node together with what it fuses with; and many that only the outside waits for, in one
 * kernel a level. */
TU__SHARED tu_status tu__fuse(tu__selection *s, const tu__node *node);
TU__SHARED tu_status tu__fuse_exports(tu__selection *s);

#endif
