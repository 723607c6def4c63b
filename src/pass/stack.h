/* State of a stack (stack.c) and of the rules that build its graph (stack_rules.c). run/stack_state.c copies networks into
 * it and out of it. */
#ifndef TU__PASS_STACK_H
#define TU__PASS_STACK_H

#include <tutti/stack.h>

#include "pass/pass.h"

/* A constant that differs between members: a variable of the stack's graph, with one row per member. */
typedef struct tu__stack_constant {
    uint32_t node;    /* of a member's graph */
    uint32_t cell;    /* first 8-byte cell of the attribute; 0 for the data of a constant */
    const char *name; /* of the variable */
    tu_type type;     /* of one row */
} tu__stack_constant;

struct tu_stacked {
    tu__arena arena;
    tu_graph *graph;     /* of all members */
    tu_graph *structure; /* a copy of member 0's graph: all others must agree with it */
    size_t count;
    tu__stack_constant *constants;
    size_t constant_count, constant_capacity;
    const char *seeds; /* name of the variable of the seeds; NULL: nothing is random */
    /* Per node of `structure`: the attributes of each member, if they differ and are compiled in; else NULL. */
    const void *const **own_attrs;
};

/* Fails, naming the first difference, unless `graph` may have place `member`: it has the structure of the stack, and the
 * constants that are compiled in. */
tu_status tu__stack_check(const tu_stacked *stack, size_t member, const tu_graph *graph);
/* Writes one row of the variable of a constant: its value in `graph`. */
void tu__stack_constant_value(const tu__stack_constant *constant, const tu_graph *graph, void *row);

/* What a rule needs to make the nodes that replace one node of the members. */
typedef struct tu__stacker {
    tu_stacked *stack;
    tu__rewrite r; /* from member 0's graph */
    const tu_graph *const *members;
    const char *scope; /* of added variables */
    bool *is_stacked;  /* per output of member 0's graph: its new value has the member axis */
    bool differs;      /* attributes of the present node differ between members */
    tu_value seeds;    /* the variable; invalid until it is needed */
    tu__arena *arena;
} tu__stacker;

/* Makes the nodes that replace `node`, which reads a value with a member axis, or has one for another reason. */
tu_status tu__stack_node(tu__stacker *s, const tu__node *node);

/* Returns the variable [members] of the numbers at `cell` of the attributes, which differ, as `dtype`. */
tu_value tu__stack_number(tu__stacker *s, const tu__node *node, uint32_t cell, tu_dtype dtype);
/* Returns the variable of a constant node whose data differ. */
tu_value tu__stack_data(tu__stacker *s, const tu__node *node);
/* Returns the variable i64[members] of the seeds. */
tu_value tu__stack_seeds(tu__stacker *s);
/* Returns the value that replaces an edge, with the member axis: broadcasts one without. */
tu_value tu__stack_value(tu__stacker *s, const tu__node *node, tu__edge edge);

#endif
