/* Generic access to attributes, for code that prints, compares, hashes and stores nodes of any operation.
 *
 *     for (tu__field f = tu__first_field(op, attrs); f.attr; f = tu__next_field(f))
 *         for (uint32_t i = 0; i < f.attr->count; i++) use(f.attr->name, tu__field_i64(f, i));
 */
#ifndef TU__GRAPH_ATTRS_H
#define TU__GRAPH_ATTRS_H

#include "graph/op.h"

typedef struct tu__field {
    const tu__attr *attr;       /* NULL past the last one */
    const unsigned char *cells; /* the value: attr->count elements */
    const tu__op *op;
} tu__field;

tu__field tu__first_field(const tu__op *op, const void *attrs);
tu__field tu__next_field(tu__field field);

/* Return a field's size in bytes, and whether it is all zero (the default, which files and printed graphs omit). */
size_t tu__field_bytes(tu__field field);
bool tu__field_is_zero(tu__field field);

/* Return element `index` of a field. tu__field_i64 is for all integer kinds: I64, BOOL, DTYPE and AXES. */
int64_t tu__field_i64(tu__field field, uint32_t index);
double tu__field_f64(tu__field field, uint32_t index);
tu_shape tu__field_shape(tu__field field, uint32_t index);

/* Returns the name of an enumeration value ("he_normal" for an initialiser); NULL for a plain number. */
const char *tu__field_choice(tu__field field, uint32_t index);

/* Checks that the values are valid for the attribute's kind: a known element type, 0 or 1, a shape. The operation's
 * shape rule checks the rest. The error message contains the attribute's name. */
tu_status tu__check_field(tu__field field);

#endif
