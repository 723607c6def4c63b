/* Tables alone, so that the command can compile them in for its own options. */
#include "pass/choices.h"

#include <stddef.h>

const char *const tu__precision_names[] = {
    [TU__PRECISION_AS_BUILT] = "f32",
    [TU__PRECISION_TF32] = "tf32",
    [TU__PRECISION_BF16] = "bf16",
    [TU__PRECISION_F16] = "f16",
    NULL,
};

const char *const tu__strategy_names[] = {
    [TU__SINGLE] = "single",
    [TU__CENTRAL] = "central",
    [TU__MIRRORED] = "mirrored",
    NULL,
};
