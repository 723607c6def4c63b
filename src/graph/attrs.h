/* Attributes seen without knowing the operation: what printing, comparing, hashing and storing share.
 *
 *     for (tu__field f = tu__first_field(op, attrs); f.attr; f = tu__next_field(f))
 *         for (uint32_t i = 0; i < f.attr->count; i++) use(f.attr->name, tu__field_i64(f, i));
 */
#ifndef TU__GRAPH_ATTRS_H
#define TU__GRAPH_ATTRS_H

#include "graph/op.h"

typedef struct tu__field {
    const tu__attr *attr; /* NULL past the last one */
    const unsigned char *cells;
    const tu__op *op;
} tu__field;

tu__field tu__first_field(const tu__op *op, const void *attrs);
tu__field tu__next_field(tu__field field);

/* The bytes of a field's cells, and whether they are all zero: the default, which files and prints leave out. */
size_t tu__field_bytes(tu__field field);
bool tu__field_is_zero(tu__field field);

/* Element `index` of a field. The first serves every kind that is one whole number. */
int64_t tu__field_i64(tu__field field, uint32_t index);
double tu__field_f64(tu__field field, uint32_t index);
tu_shape tu__field_shape(tu__field field, uint32_t index);

/* The name of an element that is one of a list ("he_normal" for an initialiser); NULL for a plain number. */
const char *tu__field_choice(tu__field field, uint32_t index);

/* The cells are what their kind allows: a known element type, 0 or 1, a shape. Whether the operation can use them
 * is for its shape rule to say. Fails with a message that names the attribute. */
tu_status tu__check_field(tu__field field);

#endif
