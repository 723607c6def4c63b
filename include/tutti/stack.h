/* Stacks: many networks of one structure as one program.
 *
 * Small networks one after another leave a device idle between and inside kernels. A stack is one graph that computes N
 * graphs with the same operations, shapes, types and names; their constants may differ (rates, decays, dropout, label
 * smoothing), and so may seeds and data.
 *
 *     tu_stacked *stack;
 *     tu_state *all;
 *     tu_stacked_new(3, graphs, &stack);
 *     tu_graph *g = tu_stacked_graph(stack);
 *     tu_state_new(g, &all);
 *     for (size_t i = 0; i < 3; i++) tu_stacked_insert(stack, all, i, graphs[i], states[i]);
 *     tu_value loss = tu_find_output(g, "loss");                            // [3]
 *     tu_compile(g, &program, .fetch = &loss, .fetch_count = 1, .updates = true);
 *     float losses[3];
 *     tu_run(program, all, 0, NULL, (void *[]){losses});                    // one step of all three
 *     tu_stacked_extract(stack, all, 1, states[1]);                           // the variables of one of them
 *
 * Variables have the names of one network and a first axis of N members. A batch input is [N·B, …], member after member;
 * other inputs, and values named with tu_output, are [N, …]. The input "sample_ordinal" must be fed, unless the members'
 * next samples are equal. Values that are the same in all members are computed once.
 *
 * A place may be given to another network at any time between runs: tu_stacked_insert copies its variables, seed and
 * constants. Random numbers, and on the device `ref` all results, have the same bits as those of the network alone; other
 * devices may choose other kernels, so that results agree within rounding. */
#ifndef TUTTI_STACK_H
#define TUTTI_STACK_H

#include <tutti/graph.h>
#include <tutti/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tu_stacked tu_stacked;

typedef struct tu_stacked_options {
    size_t struct_size;
    /* Scope of the variables that the stack adds for the members' seeds and for constants that differ; NULL: "stack".
     * Stacks that share a state but not their constants need different scopes. */
    const char *scope;
} tu_stacked_options;
/* Makes a stack of `count` graphs, which it copies. Constants that differ between them become variables; all others are
 * compiled in. Fails with TU_INVALID, and names the first difference, if the structures differ. */
TU_API tu_status tu_stacked_new_with(size_t count, tu_graph *const *members, tu_stacked **stack,
                                     const tu_stacked_options *options);
#define tu_stacked_new(count, members, stack, ...)                                                           \
    tu_stacked_new_with(count, members, stack, TU_OPTIONS(tu_stacked_options, __VA_ARGS__))
/* Frees the stack and its graph. Programs of the graph must have been freed before. */
TU_API void tu_stacked_free(tu_stacked *stack);

/* Returns the graph, which belongs to the stack. Its variables are zero in a new state: insert all members. */
TU_API tu_graph *tu_stacked_graph(tu_stacked *stack);
/* Returns the number of places. */
TU_API size_t tu_stacked_members(const tu_stacked *stack);

/* Copies a network into place `member`: the variables and the seed of `member_state` and the constants of `graph`. Fails
 * with TU_INVALID, and changes nothing, if its structure or a constant that is compiled in differs. */
TU_API tu_status tu_stacked_insert(const tu_stacked *stack, tu_state *state, size_t member,
                                   const tu_graph *graph, const tu_state *member_state);
/* Copies the variables of place `member` to `member_state`. */
TU_API tu_status tu_stacked_extract(const tu_stacked *stack, const tu_state *state, size_t member,
                                    tu_state *member_state);

#ifdef __cplusplus
}
#endif
#endif
