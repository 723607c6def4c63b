/* Named compile options (precision, strategy) and their names, as used by tu_compile, settings files, --help and
 * messages. */
#ifndef TU__PASS_CHOICES_H
#define TU__PASS_CHOICES_H

#include <stddef.h>

#include <tutti/command.h>

typedef enum tu__precision {
    TU__PRECISION_AS_BUILT,
    TU__PRECISION_TF32, /* the graph as built; a device may round matmul and convolution operands to tf32 */
    TU__PRECISION_BF16,
    TU__PRECISION_F16
} tu__precision;

/* How the pass `replicate` divides a batch: see tu_compile_options. */
typedef enum tu__strategy { TU__SINGLE, TU__CENTRAL, TU__MIRRORED } tu__strategy;

/* Names indexed by those values; the last is NULL. Each source file has its own copy: tables of options in other
 * libraries contain its address, and the address of an exported variable is not a constant expression. */
__attribute__((unused)) static const char *const tu__precision_names[] = {TU_PRECISIONS, NULL};
__attribute__((unused)) static const char *const tu__strategy_names[] = {TU_STRATEGIES, NULL};

#endif
