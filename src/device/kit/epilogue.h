/* Epilogues: a bias and a relu after a convolution or matmul, applied before the result is stored.
 *
 * A separate bias kernel reads and writes the whole result; applied to the registers it costs nothing. Devices that
 * fuse use it like this:
 *
 *     tu__epilogue epilogue = tu__epilogue_of(s, node);
 *     tu__kernel *k = tu__kernel_new(s, node, tu__epilogue_name(&epilogue, names), run);
 *     …                                                // the kernel's other reads
 *     TU_TRY(tu__kernel_add_epilogue(k, &epilogue));              // the bias is the next entry of k->in
 *     return tu__kernel_write(k, epilogue.result, -1);
 */
#ifndef TU__DEVICE_KIT_EPILOGUE_H
#define TU__DEVICE_KIT_EPILOGUE_H

#include "device/kit/select.h"

typedef struct tu__epilogue {
    const tu__node *add, *relu; /* NULL: none */
    tu__edge added;             /* the operand of `add` that is not the node's result */
    tu__edge result;            /* the value that is stored */
    /* Only of tu__epilogue_with_residual_of: an addition after `add` and before `relu`, and its other operand. */
    const tu__node *add_residual;
    tu__edge residual;
} tu__epilogue;

/* Finds a bias over the last axis that is the only reader of the node's result, and a relu that is the only reader
 * after that. */
tu__epilogue tu__epilogue_of(tu__selection *s, const tu__node *node);

/* The same for a node with the attribute `members`, whose result [members * n, …] is read as [members, n, …]: the bias is
 * [members, 1, …, channels]. With `members` 0 as tu__epilogue_of. */
tu__epilogue tu__epilogue_of_members(tu__selection *s, const tu__node *node, int64_t members);

/* The same for kernels that also add a residual: a value of the result's type, whose addition is the only reader of
 * what is before it. */
tu__epilogue tu__epilogue_with_residual_of(tu__selection *s, const tu__node *node);

/* Finds an epilogue like tu__epilogue_of, with other conditions. */
typedef struct tu__epilogue_rules {
    /* Returns the node that reads `value` and may be fused; NULL: none. */
    const tu__node *(*reader_of)(tu__selection *s, tu__edge value);
    /* True if a fused addition may add `other` to `value`. */
    bool (*can_add)(tu__selection *s, tu__edge other, tu__edge value);
} tu__epilogue_rules;
tu__epilogue tu__find_epilogue(tu__selection *s, const tu__node *node, const tu__epilogue_rules *rules);

/* Adds the epilogue to the kernel, and reads of the added value and of the residual, if there are any, as the next
 * entries of k->in. */
tu_status tu__kernel_add_epilogue(tu__kernel *k, const tu__epilogue *epilogue);

/* Returns "conv2d", "conv2d+bias", "conv2d+relu" or "conv2d+bias+relu", depending on the epilogue, from a list of 4; a
 * kernel that adds a residual has a list of 8. */
const char *tu__epilogue_name(const tu__epilogue *epilogue, const char *const *names);
#define TU__EPILOGUE_NAMES(name)                                                                             \
    { name, name "+bias", name "+relu", name "+bias+relu" }
#define TU__EPILOGUE_NAMES_WITH_RESIDUAL(name)                                                               \
    {                                                                                                        \
        name, name "+bias", name "+relu", name "+bias+relu", name "+add", name "+bias+add",                  \
            name "+add+relu", name "+bias+add+relu"                                                          \
    }

#endif
