/* Copies networks into the places of a stack, and out of them (tutti/stack.h). A variable of the stack has one row per
 * member, which is that variable of the single network. */
#include <string.h>

#include "base/alloc.h"
#include "pass/stack.h"
#include "run/state.h"

/* ---- One row of a variable ---- */

static char *row_of(const tu__variable *stacked, size_t member, size_t bytes) {
    return (char *)stacked->data + member * bytes;
}

static tu_status write_row(tu__variable *stacked, size_t member, const void *host, size_t bytes) {
    char *row = row_of(stacked, member, bytes);
    stacked->version++;
    if (stacked->home) return tu__upload(stacked->home, row, host, bytes);
    memcpy(row, host, bytes);
    return TU_OK;
}

static tu_status read_row(const tu__variable *stacked, size_t member, void *host, size_t bytes) {
    const char *row = row_of(stacked, member, bytes);
    if (stacked->home) return tu__download(stacked->home, host, row, bytes);
    memcpy(host, row, bytes);
    return TU_OK;
}

static tu_type stacked_type(const tu_stacked *stack, tu_type type) {
    tu_type stacked = {.dtype = type.dtype, .shape = {.rank = type.shape.rank + 1}};
    stacked.shape.dim[0] = (int64_t)stack->count;
    for (int64_t i = 0; i < type.shape.rank && i + 1 < TU_MAX_RANK; i++)
        stacked.shape.dim[i + 1] = type.shape.dim[i];
    return stacked;
}

static tu__variable *find_stacked(const tu_stacked *stack, const tu_state *state, const char *name,
                                  tu_type type) {
    return tu__state_find_variable(state, name, stacked_type(stack, type));
}

static bool is_variable(const tu__node *node) {
    return node->op->code == TU__OP_VARIABLE;
}

/* Returns the size of the largest row, for one buffer of all copies. */
static size_t largest_row(const tu_stacked *stack) {
    size_t largest = sizeof(int64_t);
    for (uint32_t i = 0; i < stack->structure->node_count; i++) {
        const tu__node *node = stack->structure->nodes[i];
        if (is_variable(node) && tu_type_bytes(node->outputs[0]) > largest)
            largest = tu_type_bytes(node->outputs[0]);
    }
    for (size_t i = 0; i < stack->constant_count; i++)
        if (tu_type_bytes(stack->constants[i].type) > largest)
            largest = tu_type_bytes(stack->constants[i].type);
    return largest;
}

static tu_status check_member(const tu_stacked *stack, size_t member) {
    if (member < stack->count) return TU_OK;
    return tu_fail(TU_INVALID, "place %zu is out of range: the stack has %zu places, counted from 0", member,
                   stack->count);
}

/* ---- Inserting ---- */

/* Checks that both states have all variables, so that a copy cannot stop half-way. */
static tu_status check_states(const tu_stacked *stack, const tu_state *state, const tu_state *member_state) {
    for (uint32_t i = 0; i < stack->structure->node_count; i++) {
        const tu__node *node = stack->structure->nodes[i];
        if (!is_variable(node)) continue;
        if (!find_stacked(stack, state, node->name, node->outputs[0])) return TU_INVALID;
        if (!tu__state_find_variable(member_state, node->name, node->outputs[0])) return TU_INVALID;
    }
    for (size_t i = 0; i < stack->constant_count; i++)
        if (!find_stacked(stack, state, stack->constants[i].name, stack->constants[i].type))
            return TU_INVALID;
    bool has_seeds = !stack->seeds || find_stacked(stack, state, stack->seeds, (tu_type){TU_I64, TU_SCALAR});
    return has_seeds ? TU_OK : TU_INVALID;
}

static tu_status insert_variables(const tu_stacked *stack, tu_state *state, size_t member,
                                  const tu_state *member_state, void *row) {
    for (uint32_t i = 0; i < stack->structure->node_count; i++) {
        const tu__node *node = stack->structure->nodes[i];
        if (!is_variable(node)) continue;
        tu__variable *stacked = find_stacked(stack, state, node->name, node->outputs[0]);
        size_t bytes = tu_type_bytes(node->outputs[0]);
        TU_TRY(tu_state_get(member_state, node->name, row, bytes));
        TU_TRY(write_row(stacked, member, row, bytes));
    }
    return TU_OK;
}

static tu_status insert_constants(const tu_stacked *stack, tu_state *state, size_t member,
                                  const tu_graph *graph, uint64_t seed, void *row) {
    for (size_t i = 0; i < stack->constant_count; i++) {
        const tu__stack_constant *c = &stack->constants[i];
        tu__stack_constant_value(c, graph, row);
        TU_TRY(write_row(find_stacked(stack, state, c->name, c->type), member, row, tu_type_bytes(c->type)));
    }
    if (!stack->seeds) return TU_OK;
    tu__variable *seeds = find_stacked(stack, state, stack->seeds, (tu_type){TU_I64, TU_SCALAR});
    return write_row(seeds, member, &seed, sizeof seed);
}

static tu_status insert_all(const tu_stacked *stack, tu_state *state, size_t member, const tu_graph *graph,
                            const tu_state *member_state) {
    TU_TRY(check_states(stack, state, member_state));
    void *row = tu__alloc(largest_row(stack), "a network of a stack");
    if (!row) return TU_NO_MEMORY;
    tu_status status = insert_variables(stack, state, member, member_state, row);
    if (status == TU_OK) status = insert_constants(stack, state, member, graph, member_state->seed, row);
    tu__free(row);
    return status;
}

tu_status tu_stacked_insert(const tu_stacked *stack, tu_state *state, size_t member, const tu_graph *graph,
                            const tu_state *member_state) {
    TU_TRY(check_member(stack, member));
    TU_TRY(tu__stack_check(stack, member, graph));
    tu__state_lock(state);
    tu_status status = insert_all(stack, state, member, graph, member_state);
    tu__state_unlock(state);
    return status;
}

/* ---- Extracting ---- */

static tu_status extract_variables(const tu_stacked *stack, const tu_state *state, size_t member,
                                   tu_state *member_state, void *row) {
    for (uint32_t i = 0; i < stack->structure->node_count; i++) {
        const tu__node *node = stack->structure->nodes[i];
        if (!is_variable(node)) continue;
        size_t bytes = tu_type_bytes(node->outputs[0]);
        TU_TRY(read_row(find_stacked(stack, state, node->name, node->outputs[0]), member, row, bytes));
        TU_TRY(tu_state_set(member_state, node->name, row, bytes));
    }
    return TU_OK;
}

static tu_status extract_all(const tu_stacked *stack, const tu_state *state, size_t member,
                             tu_state *member_state) {
    TU_TRY(check_states(stack, state, member_state));
    void *row = tu__alloc(largest_row(stack), "a network of a stack");
    if (!row) return TU_NO_MEMORY;
    tu_status status = extract_variables(stack, state, member, member_state, row);
    tu__free(row);
    return status;
}

tu_status tu_stacked_extract(const tu_stacked *stack, const tu_state *state, size_t member,
                             tu_state *member_state) {
    TU_TRY(check_member(stack, member));
    tu__state_lock_shared(state);
    tu_status status = extract_all(stack, state, member, member_state);
    tu__state_unlock(state);
    return status;
}
