/* What follows a convolution or a product and can be done before its result is stored: adding a bias, a rectifier.
 *
 * A bias alone costs a pass over the result; done on the way from the registers it costs nothing. Every device that
 * fuses asks here what its kernel may take in:
 *
 *     tu__epilogue epilogue = tu__epilogue_of(s, node);
 *     tu__kernel *k = tu__kernel_new(s, node, tu__epilogue_name(&epilogue, names), run);
 *     …                                                // reads of its own
 *     TU_TRY(tu__kernel_end(k, &epilogue));              // the bias is the next entry of k->in
 *     return tu__kernel_write(k, epilogue.result, -1);
 */
#ifndef TU__DEVICE_EPILOGUE_H
#define TU__DEVICE_EPILOGUE_H

#include "base/shared.h"
#include "device/select.h"

typedef struct tu__epilogue {
    const tu__node *add, *relu; /* NULL where there is none */
    tu__edge added;             /* the other value of add */
    tu__edge result;            /* what is stored in the end */
} tu__epilogue;

/* The bias over the last axis that is the only reader of the node's result, and the rectifier that is the only reader
 * of that. */
TU__SHARED tu__epilogue tu__epilogue_of(tu__selection *s, const tu__node *node);

/* The same for kernels that can take in something else. */
typedef struct tu__epilogue_rules {
    const tu__node *(*reader_of)(tu__selection *s, tu__edge value); /* who may be taken in; NULL: nobody */
    bool (*can_add)(tu__selection *s, tu__edge other, tu__edge value);
} tu__epilogue_rules;
tu__epilogue tu__find_epilogue(tu__selection *s, const tu__node *node, const tu__epilogue_rules *rules);

/* Has the kernel cover the epilogue and read what is added, as its next entry of k->in, if there is something. */
TU__SHARED tu_status tu__kernel_end(tu__kernel *k, const tu__epilogue *epilogue);

/* Of "conv2d", "conv2d+bias", "conv2d+relu", "conv2d+bias+relu" the one that says what is done. */
TU__SHARED const char *tu__epilogue_name(const tu__epilogue *epilogue, const char *const names[4]);
#define TU__EPILOGUE_NAMES(name)                                                                             \
    { name, name "+bias", name "+relu", name "+bias+relu" }

#endif
