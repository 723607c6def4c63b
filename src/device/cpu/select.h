/* Selection from inside: what select.c, fusion.c and cpu.c share of a plan in the making. */
#ifndef TU__DEVICE_CPU_SELECT_H
#define TU__DEVICE_CPU_SELECT_H

#include "device/cpu/cpu.h"

#define CPU_NONE UINT32_MAX

typedef enum cpu_node_state {
    CPU_OUTSIDE, /* not of this part: its values are leaves */
    CPU_WAITING, /* not looked at yet */
    CPU_PENDING, /* pointwise, broadcast or fill: computed when somebody asks, together with what surrounds it */
    CPU_BUSY,    /* its maker is at work */
    CPU_DONE,
} cpu_node_state;

typedef struct cpu_value {
    uint32_t dense; /* its buffer; CPU_NONE */
    uint32_t first_reader,
        reader_count; /* in cpu_plan.readers: one entry for each input that is this value */
    bool exported;
    bool exported_buffer; /* its buffer is an export's: no other export may share it */
} cpu_value;

typedef struct cpu_time {
    double start, seconds;
} cpu_time;

typedef struct cpu_plan {
    tu_plan plan; /* what the engine sees; first */
    cpu_selection selection;
    const tu_part *part; /* while selecting */
    tu_buffer *buffers;
    uint32_t buffer_count, buffer_capacity;
    cpu_kernel **kernels;
    uint32_t kernel_count, kernel_capacity;

    /* while selecting: per node of the graph */
    uint8_t *state;
    uint32_t *slot;     /* node -> its first entry in `values` */
    uint32_t *level;    /* tu_part.levels */
    uint32_t *mark;     /* fusion.c: the cluster being gathered that holds the node */
    uint32_t *assigned; /* the variable that its value is assigned to; CPU_NONE */
    uint32_t *beside;   /* a buffer of no value that the node's kernel leaves for another kernel; CPU_NONE */
    uint32_t cluster_count;
    const tu__node
        *asking; /* the node whose input is being required, for cpu_fuse; NULL: somebody else asks */
    cpu_value *values;
    uint32_t *readers;

    /* once bound */
    const uint32_t *order;
    cpu_time *times; /* per place of the order */
} cpu_plan;

tu_status cpu_select(const cpu_device *device, const tu_part *part, tu_plan **plan);
void cpu_plan_bind(cpu_plan *plan, const tu_binding *binding);
void cpu_plan_free(cpu_plan *plan);

cpu_value *cpu_value_of(cpu_selection *s, tu__edge value);
const tu_type *cpu_type_of(const cpu_selection *s, tu__edge value);
/* The value that the given one is a view of, through any number of views; itself otherwise. */
tu__edge cpu_root_of(const cpu_selection *s, tu__edge value);
/* Sees to it that kernels compute the value. */
tu_status cpu_require(cpu_selection *s, tu__edge value);
/* Its dense buffer, made if need be. */
tu_status cpu_dense_buffer(cpu_selection *s, tu__edge value, uint32_t *buffer);

/* A buffer of the device's own that goes from the kernel of `node` to another: the next entry of k->out, and of that
 * one's k->in. For what a kernel has at hand that no value of the graph holds. */
tu_status cpu_kernel_leave(cpu_kernel *k, const tu__node *node, size_t bytes);
tu_status cpu_kernel_find(cpu_kernel *k, const tu__node *node);

/* fusion.c: computes a pending pointwise node together with what it fuses with; and many that only the outside waits
 * for, in one kernel a level. */
tu_status cpu_fuse(cpu_selection *s, const tu__node *node);
tu_status cpu_fuse_exports(cpu_selection *s);

/* move.c: copies a dense value into the buffer of an export. */
tu_status cpu_make_copy(cpu_selection *s, tu__edge from, tu__edge to);

/* The version of oneDNN in use, or NULL: dnnl.c. */
const char *cpu_dnnl_version(void);

#endif
