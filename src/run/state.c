/* State: the variables of a model, separate from the programs that use them.
 *
 * Initializers are graphs, too: a small program of fills and random numbers, keyed by the variable's name, sets
 * all new variables. So initial values do not depend on the order in which the graph was built. */
#include "run/state.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/draw.h"
#include "base/text.h"
#include "graph/graph.h"

/* ---- Initializers as graph operations ---- */

/* Computes fan-in and fan-out. The first axis is outputs, the last inputs, those between are the receptive field. */
static void compute_fans(const struct tu__variable_attrs *a, double *in, double *out) {
    double elements = (double)tu_shape_elements(a->shape);
    double first = a->shape.rank > 0 ? (double)a->shape.dim[0] : 1;
    double last = a->shape.rank > 1 ? (double)a->shape.dim[a->shape.rank - 1] : 1;
    *in = a->fan_in ? (double)a->fan_in : elements / first;
    *out = a->fan_out ? (double)a->fan_out : elements / last;
}

/* Returns the distribution and its two parameters for a variable that is not filled with a constant. */
static tu__distribution distribution_of(const struct tu__variable_attrs *v, double *a, double *b) {
    double in, out;
    compute_fans(v, &in, &out);
    double xavier = sqrt(2 / (in + out)), he = sqrt(2 / in);
    switch ((tu_init_kind)v->init) {
    case TU_INIT_NORMAL: *a = v->a, *b = v->b; return TU__NORMAL;
    case TU_INIT_TRUNCATED_NORMAL: *a = v->a, *b = v->b; return TU__TRUNCATED_NORMAL;
    case TU_INIT_XAVIER_UNIFORM: *a = -sqrt(3) * xavier, *b = -*a; return TU__UNIFORM;
    case TU_INIT_XAVIER_NORMAL: *a = 0, *b = xavier; return TU__NORMAL;
    case TU_INIT_HE_UNIFORM: *a = -sqrt(3) * he, *b = -*a; return TU__UNIFORM;
    case TU_INIT_HE_NORMAL: *a = 0, *b = he; return TU__NORMAL;
    default: *a = v->a, *b = v->b; return TU__UNIFORM;
    }
}

static tu_value initial_value(tu_graph *g, const tu__node *variable) {
    const struct tu__variable_attrs *v = variable->attrs;
    tu_dtype dtype = (tu_dtype)v->dtype;
    if (v->init < TU_INIT_UNIFORM) return tu_fill(g, dtype, v->shape, v->init == TU_INIT_CONSTANT ? v->a : 0);
    double a, b;
    tu__distribution distribution = distribution_of(v, &a, &b);
    tu_value source = tu_fill(g, TU_I64, TU_SCALAR, 0);
    struct tu__random_attrs attrs = {.dtype = v->dtype,
                                     .shape = v->shape,
                                     .distribution = distribution,
                                     .a = a,
                                     .b = b,
                                     .key = (int64_t)tu__name_hash(variable->name)};
    return tu__apply(RANDOM, &attrs, source);
}

/* ---- Memory on the host or on a device ---- */

static void free_data(tu__variable *v) {
    if (v->home) {
        v->home->api->release(v->home->instance, v->data);
        tu__devices_close(1, &v->home);
    } else if (v->reader) {
        tu__device_release_pinned(v->reader, v->data);
    } else {
        tu__free_aligned(v->data);
    }
    v->data = NULL;
    v->home = v->reader = NULL;
}

static tu_status read_data(const tu__variable *v, void *host) {
    size_t bytes = tu_type_bytes(v->type);
    if (v->home) return tu__download(v->home, host, v->data, bytes);
    memcpy(host, v->data, bytes);
    return TU_OK;
}

static tu_status write_data(tu__variable *v, const void *host) {
    size_t bytes = tu_type_bytes(v->type);
    if (v->home) return tu__upload(v->home, v->data, host, bytes);
    memcpy(v->data, host, bytes);
    return TU_OK;
}

/* Allocates memory for the variable on `home` (NULL: on the host). */
static tu_status allocate_data(tu__variable *v, tu__device *home) {
    size_t bytes = tu_type_bytes(v->type);
    if (home) {
        TU_TRY(tu__device_allocate(home, bytes, &v->data));
        tu__device_retain(home);
    } else {
        v->data = tu__alloc_aligned(bytes, v->name);
    }
    v->home = home;
    v->reader = NULL;
    return v->data ? TU_OK : TU_NO_MEMORY;
}

void tu__state_pin(tu_state *state, tu__variable *variable, tu__device *reader) {
    size_t bytes = tu_type_bytes(variable->type);
    if (variable->home || variable->reader) return;
    void *pinned = tu__device_allocate_pinned(reader, bytes);
    if (!pinned) return;
    memcpy(pinned, variable->data, bytes);
    tu__free_aligned(variable->data);
    variable->data = pinned;
    variable->reader = reader;
    state->generation++;
}

tu_status tu__state_move(tu_state *state, tu__variable *variable, tu__device *device) {
    tu__device *home = device->api->host_memory ? NULL : device;
    if (variable->home == home) return TU_OK;
    void *host = tu__alloc_aligned(tu_type_bytes(variable->type), variable->name);
    if (!host) return TU_NO_MEMORY;
    tu__variable moved = *variable;
    tu_status status = read_data(variable, host);
    if (status == TU_OK) status = allocate_data(&moved, home);
    if (status == TU_OK) {
        status = write_data(&moved, host);
        free_data(status == TU_OK ? variable : &moved);
        if (status == TU_OK) *variable = moved;
        state->generation++;
    }
    tu__free_aligned(host);
    return status;
}

/* ---- Mirrors ---- */

static void free_mirrors(tu__variable *v) {
    while (v->mirrors) {
        tu__mirror *m = v->mirrors;
        v->mirrors = m->next;
        if (m->data) m->device->api->release(m->device->instance, m->data);
        tu__devices_close(1, &m->device);
        tu__free(m);
    }
}

tu_status tu__state_mirror(tu_state *state, tu__variable *variable, tu__device *device, tu__mirror **mirror) {
    for (*mirror = variable->mirrors; *mirror; *mirror = (*mirror)->next)
        if ((*mirror)->device == device) return TU_OK;
    tu__mirror *created = tu__alloc(sizeof *created, variable->name);
    if (!created) return TU_NO_MEMORY;
    tu_status status = tu__device_allocate(device, tu_type_bytes(variable->type), &created->data);
    if (status != TU_OK) {
        tu__free(created);
        return status;
    }
    tu__device_retain(device);
    created->device = device;
    created->next = variable->mirrors;
    *mirror = variable->mirrors = created;
    state->generation++;
    return TU_OK;
}

tu_status tu__mirror_refresh(const tu__variable *variable, tu__mirror *mirror) {
    if (mirror->version == variable->version) return TU_OK;
    size_t bytes = tu_type_bytes(variable->type);
    tu_status status =
        variable->home ? tu__device_copy(mirror->device, mirror->data, variable->home, variable->data, bytes)
                       : tu__upload(mirror->device, mirror->data, variable->data, bytes);
    if (status == TU_OK) mirror->version = variable->version;
    return status;
}

/* ---- Creating and freeing ---- */

static tu_status add_variable(tu_state *state, const tu__node *node) {
    if (state->count == state->capacity) {
        size_t capacity = state->capacity ? state->capacity * 2 : 16;
        tu__variable *variables =
            tu__realloc(state->variables, capacity * sizeof *variables, "a state's variables");
        if (!variables) return TU_NO_MEMORY;
        state->variables = variables;
        state->capacity = capacity;
    }
    tu__variable v = {.type = node->outputs[0], .version = 1};
    size_t length = strlen(node->name);
    v.name = tu__alloc(length + 1, "a variable's name");
    v.data = tu__alloc_aligned(tu_type_bytes(v.type), node->name);
    if (v.name) memcpy(v.name, node->name, length);
    if (!v.name || !v.data || tu__names_add(state->names, v.name, (uint32_t)state->count) != TU_OK) {
        tu__free(v.name);
        tu__free_aligned(v.data);
        return TU_NO_MEMORY;
    }
    memset(v.data, 0, tu_type_bytes(v.type));
    state->variables[state->count++] = v;
    state->generation++;
    return TU_OK;
}

/* Runs the initializers of the new variables; the graph contains one assignment for each. Always uses the device
 * `ref`, so that a seed gives the same bits on every machine. */
static tu_status run_initializers(tu_state *state, tu_graph *init) {
    tu_program *program = NULL;
    tu_session *session =
        NULL; /* of its own: runs lock devices before states, and the state is locked here */
    TU_TRY(tu_compile(init, &program, .devices = "ref", .updates = true));
    int64_t sample = state->next_sample;
    tu_status status = tu_session_new(state, &session);
    if (status == TU_OK) status = tu_session_run(session, program, 0, NULL, NULL);
    state->next_sample = sample;
    tu_session_free(session);
    tu_program_free(program);
    return status;
}

/* Adds the new variables of `graph` to the state, and their initializers to `init`. */
static tu_status add_new_variables(tu_state *state, const tu_graph *graph, tu_graph *init) {
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tu__node *node = graph->nodes[i];
        /* Mirrors are not variables of the state. */
        if (node->op->code != TU__OP_VARIABLE || node->stands_for) continue;
        uint32_t index;
        if (tu__names_find(state->names, node->name, &index)) {
            if (!tu__state_find_variable(state, node->name, node->outputs[0])) return TU_INVALID;
            continue;
        }
        TU_TRY(add_variable(state, node));
        tu_value variable = tu__make(
            init, &(tu__node_request){
                      .op = TU__OP_VARIABLE, .name = node->name, .exact_name = true, .attrs = node->attrs});
        tu_value initial = {0};
        tu_scope(init, "init") initial = initial_value(init, node);
        tu_assign(variable, initial);
    }
    return tu_graph_status(init);
}

tu_status tu_state_extend(tu_state *state, const tu_graph *graph) {
    TU_TRY(tu_graph_status(graph));
    tu_graph *init;
    TU_TRY(tu_graph_new(&init));
    tu__state_lock(state);
    size_t before = state->count;
    tu_status status = add_new_variables(state, graph, init);
    if (status == TU_OK && state->count > before) status = run_initializers(state, init);
    tu_graph_free(init);
    while (status != TU_OK && state->count > before) { /* undo: all variables are added, or none */
        tu__variable *last = &state->variables[--state->count];
        tu__names_remove(state->names, last->name);
        tu__free(last->name);
        free_mirrors(last);
        free_data(last);
    }
    tu__state_unlock(state);
    return status;
}

tu_status tu_state_new_with(const tu_graph *graph, tu_state **state, const tu_state_options *options) {
    TU__OPTIONS(tu_state_options, o, options);
    *state = NULL;
    TU_TRY(tu_graph_status(graph));
    tu_state *s = tu__alloc(sizeof *s, "a state");
    if (!s) return TU_NO_MEMORY;
    static atomic_uint_least64_t next_id;
    s->id = atomic_fetch_add(&next_id, 1) + 1;
    s->seed = o.seed;
    pthread_rwlock_init(&s->lock, NULL);
    s->names = tu__names_new();
    tu_status status = s->names ? tu_state_extend(s, graph) : TU_NO_MEMORY;
    if (status != TU_OK) {
        tu_state_free(s);
        return status;
    }
    *state = s;
    return TU_OK;
}

/* Adds the state to a global list, so that leak checkers do not report it. */
static void add_to_kept_states(tu_state *state) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static tu_state *kept_states;
    pthread_mutex_lock(&lock);
    state->next_kept = kept_states;
    kept_states = state;
    pthread_mutex_unlock(&lock);
}

void tu_state_free(tu_state *state) {
    if (!state) return;
    if (state->never_free) {
        add_to_kept_states(state);
        return;
    }
    for (size_t i = 0; i < state->count; i++) {
        tu__free(state->variables[i].name);
        free_mirrors(&state->variables[i]);
        free_data(&state->variables[i]);
    }
    tu__free(state->variables);
    tu__names_free(state->names);
    pthread_rwlock_destroy(&state->lock);
    tu__free(state);
}

/* ---- Locking ---- */

static uintptr_t this_thread(void) {
    static _Thread_local char id; /* its address differs from thread to thread */
    return (uintptr_t)&id;
}

static tu_state *mutable_state(const tu_state *state) {
    union { /* locking does not change what the state contains */
        const tu_state *constant;
        tu_state *state;
    } cast = {state};
    return cast.state;
}

static bool is_writer(const tu_state *state) {
    return atomic_load(&mutable_state(state)->writer) == this_thread();
}

void tu__state_lock(tu_state *state) {
    if (!is_writer(state)) {
        pthread_rwlock_wrlock(&state->lock);
        atomic_store(&state->writer, this_thread());
    }
    state->writer_depth++;
}

void tu__state_lock_shared(const tu_state *state) {
    tu_state *s = mutable_state(state);
    if (is_writer(state))
        s->writer_depth++;
    else
        pthread_rwlock_rdlock(&s->lock);
}

void tu__state_unlock(const tu_state *state) {
    tu_state *s = mutable_state(state);
    if (is_writer(state)) {
        if (--s->writer_depth) return;
        atomic_store(&s->writer, 0);
    }
    pthread_rwlock_unlock(&s->lock);
}

/* ---- Access ---- */

static tu__variable *find_variable(const tu_state *state, const char *name) {
    uint32_t index;
    if (tu__names_find(state->names, name, &index)) return &state->variables[index];
    tu_fail(TU_NOT_FOUND, "the state has no variable '%s' (it has %zu variables)", name, state->count);
    return NULL;
}

tu__variable *tu__state_find_variable(const tu_state *state, const char *name, tu_type type) {
    tu__variable *v = find_variable(state, name);
    if (v && (v->type.dtype != type.dtype || !tu_shape_equal(v->type.shape, type.shape))) {
        tu_fail(TU_INVALID, "variable '%s' is %s in the state, %s in the graph: they must agree", name,
                tu__type_string(v->type), tu__type_string(type));
        return NULL;
    }
    return v;
}

size_t tu_state_variable_count(const tu_state *state) {
    return state->count;
}

tu_status tu_state_variable(const tu_state *state, size_t index, const char **name, tu_type *type) {
    if (index >= state->count)
        return tu_fail(TU_NOT_FOUND,
                       "variable index %zu is out of range: the state has %zu variables, counted from 0",
                       index, state->count);
    if (name) *name = state->variables[index].name;
    if (type) *type = state->variables[index].type;
    return TU_OK;
}

/* Finds the variable; fails if `bytes` is not its size. */
static tu_status find_variable_of_size(const tu_state *state, const char *name, size_t bytes,
                                       tu__variable **variable) {
    *variable = find_variable(state, name);
    if (!*variable) return TU_NOT_FOUND;
    tu_type type = (*variable)->type;
    if (tu_type_bytes(type) == bytes) return TU_OK;
    return tu_fail(TU_INVALID, "variable '%s' %s has %zu bytes, but %zu were passed", name,
                   tu__type_string(type), tu_type_bytes(type), bytes);
}

tu_status tu_state_get(const tu_state *state, const char *name, void *data, size_t bytes) {
    tu__variable *v;
    tu__state_lock_shared(state);
    tu_status status = find_variable_of_size(state, name, bytes, &v);
    if (status == TU_OK) status = read_data(v, data);
    tu__state_unlock(state);
    return status;
}

tu_status tu_state_set(tu_state *state, const char *name, const void *data, size_t bytes) {
    tu__variable *v;
    tu__state_lock(state);
    tu_status status = find_variable_of_size(state, name, bytes, &v);
    if (status == TU_OK) v->version++;
    if (status == TU_OK) status = write_data(v, data);
    tu__state_unlock(state);
    return status;
}

int64_t tu_state_sample(const tu_state *state) {
    return state->next_sample;
}

void tu_state_set_sample(tu_state *state, int64_t ordinal) {
    state->next_sample = ordinal;
}
