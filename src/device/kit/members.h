/* Kernels of operations with the attribute `members`: the kernel of one network, run once for each (decision 45).
 *
 * tu__run_members runs them one after another, and each uses all threads: a convolution of one network has enough images for
 * them. They share one workspace. A device that runs several at once uses tu__bind_member. */
#ifndef TU__DEVICE_KIT_MEMBERS_H
#define TU__DEVICE_KIT_MEMBERS_H

#include "device/kit/select.h"

enum { TU__MEMBER_OPERANDS = 8 };

typedef struct tu__members {
    int64_t count; /* 0: the operation belongs to one network */
    /* Bytes of one member's block of each operand; 0: all read the same. */
    size_t in[TU__MEMBER_OPERANDS], out[TU__MEMBER_OPERANDS];
} tu__members;

/* Sets the blocks of the node's own operands, which all have blocks along their first axis. */
void tu__members_of(tu__members *members, tu__selection *s, const tu__node *node, int64_t count);
/* Sets the block of another input, at `index` of k->in: 0 bytes for all but a bias per member (epilogue.h). */
void tu__members_add_bias(tu__members *members, tu__selection *s, tu__edge bias, int64_t channels, int index);
/* The kernel of one member. */
typedef struct tu__member_kernel {
    tu__kernel kernel;
    void *in[TU__MEMBER_OPERANDS], *out[TU__MEMBER_OPERANDS];
} tu__member_kernel;
/* Makes a copy of the kernel whose operands are that member's. It points to itself, so it must not be moved. */
void tu__bind_member(const tu__kernel *k, const tu__members *members, int64_t member,
                     tu__member_kernel *bound);
/* Calls `run` for every member, with a copy of the kernel whose operands are that member's. */
tu_status tu__run_members(const tu__kernel *k, const tu__members *members,
                          tu_status (*run)(const tu__kernel *k));

#endif
