/* Clusters: pointwise nodes that become one fused kernel. fusion.c builds them; the device's selector generates the
 * code. */
#ifndef TU__DEVICE_KIT_FUSION_H
#define TU__DEVICE_KIT_FUSION_H

#include "device/kit/select.h"

enum { TU__MAX_CLUSTER_NODES = 48, TU__MAX_SUMS = 4 };

/* What a member reads: another member, a constant number, a value in memory, or a value that must be computed by
 * another kernel first. */
typedef enum tu__operand_kind { TU__MEMBER, TU__NUMBER, TU__LOAD, TU__OBSTACLE } tu__operand_kind;

typedef struct tu__operand {
    tu__operand_kind kind;
    tu__edge
        value; /* MEMBER: output 0 of the node; LOAD: the value read; OBSTACLE: the value to compute first */
    tu_type type;  /* LOAD: its shape broadcasts to the space */
    double number; /* NUMBER */
} tu__operand;

typedef struct tu__cluster {
    tu__selection *s;
    uint32_t id;    /* members have it in tu__kernel_plan.mark */
    tu_shape space; /* the shape over whose elements the kernel iterates */
    bool wide;      /* computed in f64, else in f32 */
    uint32_t level;
    uint32_t member_count;
    uint32_t reserved; /* members found so far, including those whose inputs are being visited */
    const tu__node *members[TU__MAX_CLUSTER_NODES]; /* inputs before users; the last is the root */
    bool stored[TU__MAX_CLUSTER_NODES];             /* per member: the kernel stores its result */
    tu__sum_kind sums;
    int64_t sum_row;    /* elements per row, if the space is summed */
    int64_t sum_groups; /* column sums: of so many groups of rows, the networks of a stack */
    bool splits_rows;   /* workers divide the rows; otherwise one worker computes each sum */
    uint32_t sum_count;
    const tu__node *sum_nodes[TU__MAX_SUMS]; /* sum or mean */
    uint32_t sum_members[TU__MAX_SUMS];      /* index of the member that is summed */
    bool summed[TU__MAX_CLUSTER_NODES];      /* per member: not stored, but kept until it is summed */
    bool blocked;                            /* `obstacle` must be computed first */
    tu__edge obstacle;
} tu__cluster;

/* Classifies an input of a member: another member, a constant, a load, or an obstacle. */
tu__operand tu__classify_operand(tu__cluster *c, tu__edge value);

/* tu__fuse adds a kernel for a pending pointwise node and all nodes that are fused with it. tu__fuse_exports does so
 * for all pending exports, with one kernel per level. */
tu_status tu__fuse(tu__selection *s, const tu__node *node);
tu_status tu__fuse_exports(tu__selection *s);

#endif
