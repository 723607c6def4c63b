/* The choices that programs are compiled by, and the words for them: what tu_compile takes, settings hold to, the command
 * lists in its --help, and messages say. */
#ifndef TU__PASS_CHOICES_H
#define TU__PASS_CHOICES_H

#include <stddef.h>

#include <tutti/command.h>

typedef enum tu__precision {
    TU__PRECISION_AS_BUILT,
    TU__PRECISION_TF32, /* the graph as built; a device may round the operands of products */
    TU__PRECISION_BF16,
    TU__PRECISION_F16
} tu__precision;

/* How the pass `replicate` shares a batch: see tu_compile_options. */
typedef enum tu__strategy { TU__SINGLE, TU__CENTRAL, TU__MIRRORED } tu__strategy;

/* By those numbers; they end with NULL. Each source has its own: tables of options in other libraries hold their addresses, which
 * an exported variable has only when they are loaded. */
__attribute__((unused)) static const char *const tu__precision_names[] = {TU_PRECISIONS, NULL};
__attribute__((unused)) static const char *const tu__strategy_names[] = {TU_STRATEGIES, NULL};

#endif
