/* The operation table, generated from ops.def. */
#include "graph/op.h"

#include <string.h>

#include "graph/rules.h"

/* Field descriptions: one array per operation, with an empty row at the end so that no array is empty. */
#define ATTR(kind, name, count) {#name, TU__ATTR_##kind, count},
#define OP(id, name, inputs, outputs, traits, attrs, ...) static const tu__attr name##_fields[] = {attrs{0}};
#define POINTWISE(id, name, inputs, types, result, traits, attrs, ...)                                       \
    static const tu__attr name##_fields[] = {attrs{0}};
#include "graph/ops.def"

#define GRADIENT_RULE(name) tu__##name##_gradient
#define GRADIENT_ZERO(name) NULL
#define GRADIENT_EXPAND(name) NULL
#define GRADIENT_NONE(name) NULL
#define EXPAND_OWN(name) tu__##name##_expand
#define EXPAND_NONE(name) NULL
#define FLOPS_OWN(name) tu__##name##_flops
#define FLOPS_NONE(name) NULL
#define FIELDS(name_)                                                                                        \
    .attrs = name_##_fields, .attr_count = sizeof name_##_fields / sizeof *name_##_fields - 1,               \
    .attr_bytes = sizeof(struct tu__##name_##_attrs)

static const tu__op table[TU__OP_COUNT] = {
#define OP(id_, name_, inputs_, outputs_, traits_, attrs_, gradient_, expand_, flops_)                       \
    [TU__OP_##id_] = {.name = #name_,                                                                        \
                      .code = TU__OP_##id_,                                                                  \
                      .inputs = inputs_,                                                                     \
                      .outputs = outputs_,                                                                   \
                      .traits = traits_,                                                                     \
                      FIELDS(name_),                                                                         \
                      .gradient_kind = TU__GRADIENT_##gradient_,                                             \
                      .shape = tu__##name_##_shape,                                                          \
                      .gradient = GRADIENT_##gradient_(name_),                                               \
                      .reference = tu__##name_##_reference,                                                  \
                      .expand = EXPAND_##expand_(name_),                                                     \
                      .flops = FLOPS_##flops_(name_)},
#define POINTWISE(id_, name_, inputs_, types_, result_, traits_, attrs_, gradient_, ...)                     \
    [TU__OP_##id_] = {.name = #name_,                                                                        \
                      .code = TU__OP_##id_,                                                                  \
                      .inputs = inputs_,                                                                     \
                      .outputs = 1,                                                                          \
                      .traits = (traits_) | TU__POINTWISE,                                                   \
                      FIELDS(name_),                                                                         \
                      .gradient_kind = TU__GRADIENT_##gradient_,                                             \
                      .expression = #__VA_ARGS__,                                                            \
                      .shape = tu__##name_##_shape,                                                          \
                      .gradient = GRADIENT_##gradient_(name_),                                               \
                      .reference = tu__##name_##_reference},
#include "graph/ops.def"
};

uint32_t tu__attr_cells(const tu__attr *attr) {
    uint32_t cells = attr->kind == TU__ATTR_SHAPE ? sizeof(tu_shape) / 8 : 1;
    return cells * attr->count;
}

const tu__op *tu__op_get(tu__opcode code) {
    return &table[code];
}

const tu__op *tu__op_find(const char *name) {
    for (int i = 0; i < TU__OP_COUNT; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}
