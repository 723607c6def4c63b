/* Generic access to attributes through the field descriptions of the operation table. */
#include "graph/attrs.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "graph/walk.h"

tu__field tu__first_field(const tu__op *op, const void *attrs) {
    return (tu__field){.attr = op->attr_count ? op->attrs : NULL, .cells = attrs, .op = op};
}

tu__field tu__next_field(tu__field field) {
    field.cells += tu__field_bytes(field);
    field.attr++;
    if (field.attr == field.op->attrs + field.op->attr_count) field.attr = NULL;
    return field;
}

size_t tu__field_bytes(tu__field field) {
    return (size_t)tu__attr_cells(field.attr) * 8;
}

bool tu__field_is_zero(tu__field field) {
    size_t bytes = tu__field_bytes(field);
    for (size_t i = 0; i < bytes; i++)
        if (field.cells[i]) return false;
    return true;
}

int64_t tu__field_i64(tu__field field, uint32_t index) {
    int64_t value;
    memcpy(&value, field.cells + 8 * (size_t)index, sizeof value);
    return value;
}

double tu__field_f64(tu__field field, uint32_t index) {
    double value;
    memcpy(&value, field.cells + 8 * (size_t)index, sizeof value);
    return value;
}

tu_shape tu__field_shape(tu__field field, uint32_t index) {
    tu_shape value;
    memcpy(&value, field.cells + sizeof value * (size_t)index, sizeof value);
    return value;
}

/* ---- Names of enumeration values ---- */

static const char *const inits[] = {
    [TU_INIT_DEFAULT] = "default",
    [TU_INIT_ZEROS] = "zeros",
    [TU_INIT_CONSTANT] = "constant",
    [TU_INIT_UNIFORM] = "uniform",
    [TU_INIT_NORMAL] = "normal",
    [TU_INIT_TRUNCATED_NORMAL] = "truncated_normal",
    [TU_INIT_XAVIER_UNIFORM] = "xavier_uniform",
    [TU_INIT_XAVIER_NORMAL] = "xavier_normal",
    [TU_INIT_HE_UNIFORM] = "he_uniform",
    [TU_INIT_HE_NORMAL] = "he_normal",
};
static const char *const scopes[] = {"global", "replica", "shard"}; /* tu_batch_scope */
static const char *const methods[] = {"bilinear", "nearest"};       /* tu_resize_method */
static const char *const distributions[] = {"uniform", "normal", "bernoulli"};

#define CHOICE(code, name, list)                                                                             \
    { TU__OP_##code, name, sizeof list / sizeof *list, list }
static const struct {
    tu__opcode code;
    const char *attr;
    int64_t count;
    const char *const *names;
} choices[] = {
    CHOICE(VARIABLE, "init", inits),          CHOICE(BATCH_NORM, "scope", scopes),
    CHOICE(BATCH_NORM_GRAD, "scope", scopes), CHOICE(RESIZE, "method", methods),
    CHOICE(RESIZE_GRAD, "method", methods),   CHOICE(RANDOM, "distribution", distributions),
};

const char *tu__field_choice(tu__field field, uint32_t index) {
    if (field.attr->kind != TU__ATTR_I64) return NULL;
    int64_t value = tu__field_i64(field, index);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (choices[i].code == field.op->code && strcmp(choices[i].attr, field.attr->name) == 0)
            return value >= 0 && value < choices[i].count ? choices[i].names[value] : NULL;
    return NULL;
}

/* ---- Validity ---- */

static tu_status check_shape(const char *name, tu_shape shape) {
    if (shape.rank < 0 || shape.rank > TU_MAX_RANK)
        return tu_fail(TU_INVALID,
                       "attribute '%s' is a shape of rank %" PRId64 ": expected a rank of 0 to %d", name,
                       shape.rank, TU_MAX_RANK);
    for (int64_t i = shape.rank; i < TU_MAX_RANK; i++)
        if (shape.dim[i] != 0)
            return tu_fail(TU_INVALID, "attribute '%s' has a non-zero dimension beyond its rank of %" PRId64,
                           name, shape.rank);
    if (!tu__shape_valid(shape))
        return tu_fail(
            TU_INVALID,
            "attribute '%s' is %s: expected dimensions of at least 1, at most 2^48 elements in total", name,
            tu__shape_string(shape));
    return TU_OK;
}

tu_status tu__check_field(tu__field field) {
    const char *name = field.attr->name;
    for (uint32_t i = 0; i < field.attr->count; i++) {
        if (field.attr->kind == TU__ATTR_SHAPE) {
            TU_TRY(check_shape(name, tu__field_shape(field, i)));
            continue;
        }
        int64_t value = tu__field_i64(field, i);
        if (field.attr->kind == TU__ATTR_BOOL && value != 0 && value != 1)
            return tu_fail(TU_INVALID, "attribute '%s' is %" PRId64 ": expected 0 or 1", name, value);
        if (field.attr->kind == TU__ATTR_DTYPE && (value < 0 || value >= TU_DTYPE_COUNT))
            return tu_fail(TU_INVALID, "attribute '%s' is %" PRId64 ", which is not an element type", name,
                           value);
        if (field.attr->kind == TU__ATTR_AXES && (value < 0 || value >= 1 << TU_MAX_RANK))
            return tu_fail(TU_INVALID, "attribute '%s' is %" PRId64 ": expected a bit mask of axes 0 to %d",
                           name, value, TU_MAX_RANK - 1);
    }
    return TU_OK;
}
