/* Makes one graph of several that classify the same input: it averages their probabilities. */
#ifndef TU__INFER_AVERAGE_MEMBERS_H
#define TU__INFER_AVERAGE_MEMBERS_H

#include <tutti/graph.h>

#include "base/shared.h"

/* The scope of member `number` in the graph: "member0". */
typedef struct tu__member_scope {
    char text[32];
} tu__member_scope;
TU__SHARED tu__member_scope tu__member_scope_of(size_t number);

/* Copies each member into a scope of its own, member0, member1, …, except inputs: members share those of equal names. The
 * output "probability" is the mean of those of the members, added in their order. Fails if a member has no such output, or
 * an input of another type than the first one's. */
TU__SHARED tu_status tu__average_members(size_t count, tu_graph *const *members, tu_graph **average);

#endif
