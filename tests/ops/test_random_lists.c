/* Checks that every order which a command list allows gives the same results.
 *
 * The engine and the devices execute a list in one of many orders, so a missing WAIT may show only on one machine, and
 * rarely. Here random networks are compiled with random strategies and placements. Some steps run with tu_run. Then an
 * interpreter executes the same steps of the same list in a random order that WAITs, POSTs and AWAITs allow: it picks
 * one of the queues that can continue, runs the kernels of a LAUNCH in several parts, and lets queues be in different
 * steps. All results and the state must have the same bits.
 *
 * Arguments: COUNT [FIRST]. Checks the networks with seeds FIRST … FIRST+COUNT-1. */
#include "ops/random_network.h"

#include "comm/comm.h"
#include "run/execution.h"

enum { STEPS = RANDOM_STEPS, MOST_DEVICES = 4, MAX_ROTATED = 3 };

static struct {                           /* printed at the end */
    size_t lists_of[TU__MAX_DEVICES + 1]; /* by number of partitions */
    size_t commands, collectives;         /* executed in a random order */
    size_t overlaps;                      /* commands executed while another queue was in another step */
} summary;

/* ---- Networks ---- */

static tu_value new_variable(model *m) {
    char name[24];
    snprintf(name, sizeof name, "extra%u", m->graph->node_count);
    return tu_variable(m->graph, name, TU_F64, TU_SHAPE(COLUMNS),
                       .init = {.kind = TU_INIT_UNIFORM, .a = -1, .b = 1});
}

/* Variables that exchange their values. */
static void add_swap(model *m) {
    tu_value variables[MAX_ROTATED];
    size_t count = 2 + random_below(&m->random, MAX_ROTATED - 1);
    for (size_t i = 0; i < count; i++) variables[i] = new_variable(m);
    fetch(m, tu_tanh(tu_add(variables[0], any_replicated(m))));
    for (size_t i = 0; i < count; i++) tu_assign(variables[i], variables[(i + 1) % count]);
}

/* A variable that is assigned in another way than by an optimizer. */
static void add_assignment(model *m) {
    tu_value variable = new_variable(m), mean = mean_of_rows(any_samples(m));
    tu_value next = tu_tanh(tu_add(variable, any_replicated(m)));
    switch (random_below(&m->random, 5)) {
    case 0: tu_assign(variable, mean); break; /* nothing reads the variable */
    case 1: tu_assign(variable, tu_add(tu_scale(variable, 0.9), tu_scale(mean, 0.1))); break;
    case 2: tu_assign(variable, m->replicated[0]); break; /* a copy of a variable that may be trained */
    case 3:                                               /* the next value is used in this step, too */
        fetch(m, tu_add(next, mean));
        tu_assign(variable, next);
        break;
    default: /* the next value is fetched */
        fetch(m, next);
        tu_assign(variable, next);
        break;
    }
}

static void add_updates(model *m) {
    static const char *const optimizers[] = {"sgd", "momentum", "nesterov", "adam", "lars"};
    switch (random_below(&m->random, 4)) {
    case 0: break;
    case 1: add_gradient_descent(m); break;
    default:
        tu_add_optimizer(m->loss, NULL, .name = optimizers[random_below(&m->random, 5)], .constant_rate = 0.1,
                         .clip_norm = random_below(&m->random, 2) ? 1 : 0,
                         .average = random_below(&m->random, 3) ? 0 : 0.9);
        break;
    }
    for (uint64_t i = random_below(&m->random, 3); i > 0; i--) add_swap(m);
    for (uint64_t i = random_below(&m->random, 4); i > 0; i--) add_assignment(m);
}

/* ---- Strategies and placements ---- */

typedef struct configuration {
    const char *strategy; /* NULL: placed */
    int devices;
    int invariant;
    char list[24], place[128];
} configuration;

static const char *const device_names[][MOST_DEVICES] = {{"ref:0.0", "ref:0.1", "ref:0.2", "ref:0.3"},
                                                         {"cpu:0.0", "cpu:0.1", "cpu:0.2", "cpu:0.3"}};

static bool has_groups(const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->group) return true;
    return false;
}

/* Assigns a device to most nodes, the same to all nodes of a colocation group. Nodes that follow each other may get
 * the same device, so that there are few copies or many. */
static void assign_devices(model *m, const configuration *c, const char *const *names) {
    uint64_t devices = (uint64_t)c->devices, run = 1 + random_below(&m->random, 12), device = 0;
    for (uint32_t i = 0; i < m->graph->node_count; i++) {
        tu__node *node = m->graph->nodes[i];
        if (!random_below(&m->random, run)) device = random_below(&m->random, devices + 1);
        uint64_t chosen = node->group ? node->group % devices : device;
        node->device = chosen < devices ? names[chosen] : NULL; /* NULL: the engine places it */
    }
}

/* Writes patterns: nodes whose name ends with a certain digit have a device. */
static void write_patterns(model *m, configuration *c, const char *const *names) {
    size_t length = 0;
    for (int i = 0; i < c->devices; i++)
        length += (size_t)snprintf(c->place + length, sizeof c->place - length, "%s*%d=%s", i ? "," : "",
                                   (int)random_below(&m->random, 10), names[i]);
}

static tu_value collective_node(tu__opcode op, tu_value value, int64_t collective, int rank, int ranks,
                                int root, const char *device) {
    /* The attributes of the other operations are the first of these. */
    const struct tu__collective_broadcast_attrs attrs = {
        .collective = collective, .rank = rank, .ranks = ranks, .root = root};
    return tu__make(
        value.graph,
        &(tu__node_request){.op = op, .attrs = &attrs, .inputs = &value, .input_count = 1, .device = device});
}

/* Adds chains of collectives over all devices, with a kernel between two of them on most devices. A chain begins with
 * any values, whose devices are chosen. */
static void add_collectives(model *m, const configuration *c, const char *const *names) {
    int64_t collective = 0;
    for (uint64_t chain = random_below(&m->random, 3); chain > 0; chain--) {
        tu_value values[MOST_DEVICES], first = any_replicated(m);
        for (int r = 0; r < c->devices; r++)
            tu_with_device(m->graph, names[r]) values[r] =
                tu_scale(random_below(&m->random, 2) ? first : any_replicated(m), r + 1);
        for (uint64_t length = 1 + random_below(&m->random, 4); length > 0; length--, collective++) {
            static const tu__opcode ops[] = {TU__OP_ALL_REDUCE, TU__OP_COLLECTIVE_BROADCAST,
                                             TU__OP_ALL_GATHER, TU__OP_REDUCE_SCATTER};
            bool can_scatter = tu_value_shape(values[0]).dim[0] % c->devices == 0;
            tu__opcode op = ops[random_below(&m->random, can_scatter ? 4 : 3)];
            int root = (int)random_below(&m->random, (uint64_t)c->devices);
            for (int r = 0; r < c->devices; r++) {
                values[r] = collective_node(op, values[r], collective, r, c->devices, root, names[r]);
                if (random_below(&m->random, 3))
                    tu_with_device(m->graph, names[r]) values[r] = tu_tanh(values[r]);
            }
        }
        fetch(m, values[random_below(&m->random, (uint64_t)c->devices)]);
    }
}

static configuration pick_configuration(model *m) {
    static const char *const strategies[] = {NULL, NULL, NULL, "mirrored", "mirrored", "central"};
    static const int device_counts[] = {1, 2, 2, 3, 3, 3, MOST_DEVICES, MOST_DEVICES};
    configuration c = {.strategy = strategies[random_below(&m->random, 6)],
                       .devices = device_counts[random_below(&m->random, 8)]};
    size_t kind = random_below(&m->random, 2);
    if (c.strategy && c.devices != 3 && random_below(&m->random, 3) == 0) c.invariant = 4;
    snprintf(c.list, sizeof c.list, kind ? "cpu:0/%d" : "ref:0/%d", c.devices);
    if (c.devices == 1) c.list[strlen("cpu:0")] = 0;
    if (c.strategy || c.devices == 1) return c;
    if (!has_groups(m->graph) && random_below(&m->random, 4) == 0)
        write_patterns(m, &c, device_names[kind]);
    else {
        assign_devices(m, &c, device_names[kind]);
        add_collectives(m, &c, device_names[kind]);
    }
    return c;
}

static tu_status compile(const model *m, const configuration *c, tu_program **program) {
    return tu_compile(m->graph, program, .devices = c->list, .strategy = c->strategy,
                      .invariant = c->invariant, .place = c->place[0] ? c->place : NULL, .fetch = m->fetches,
                      .fetch_count = (size_t)m->fetch_count, .updates = true, .threads = 1, .timeout = 20);
}

/* ---- The data of all steps ---- */

typedef struct steps_data {
    double values[2][STEPS * MAX_ROWS * COLUMNS];
    int32_t classes[STEPS * MAX_ROWS];
    char *results[2][MAX_FETCHES]; /* of tu_run, and of the random order: those of all steps */
    size_t bytes[MAX_FETCHES];     /* of one step */
} steps_data;

static void prepare_data(const model *m, steps_data *d) {
    double values[2][MAX_ROWS * COLUMNS];
    int32_t classes[MAX_ROWS];
    size_t rows = (size_t)m->rows;
    for (size_t step = 0; step < STEPS; step++) {
        fill_inputs(77 + step, values, classes);
        for (int k = 0; k < 2; k++)
            memcpy(d->values[k] + step * rows * COLUMNS, values[k], rows * COLUMNS * sizeof(double));
        memcpy(d->classes + step * rows, classes, rows * sizeof *classes);
    }
    for (int i = 0; i < m->fetch_count; i++) {
        d->bytes[i] = tu_type_bytes(tu_value_type(m->fetches[i]));
        for (int k = 0; k < 2; k++) d->results[k][i] = calloc(STEPS, d->bytes[i]);
    }
}

static void free_data(steps_data *d) {
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < MAX_FETCHES; i++) free(d->results[k][i]);
}

static tu_status run_with_engine(const model *m, const steps_data *d, tu_program *program, tu_state *state) {
    size_t rows = (size_t)m->rows;
    for (size_t step = 0; step < STEPS; step++) {
        void *results[MAX_FETCHES];
        for (int i = 0; i < m->fetch_count; i++) results[i] = d->results[0][i] + step * d->bytes[i];
        const tu_feed feeds[] = {{m->samples[0], d->values[0] + step * rows * COLUMNS},
                                 {m->samples[1], d->values[1] + step * rows * COLUMNS},
                                 {m->classes, d->classes + step * rows}};
        TU_TRY(tu_run(program, state, 3, feeds, results));
    }
    return TU_OK;
}

/* ---- The parts that depend on src/run ---- */

/* Does what a call with several steps does before the first: sets the addresses of all buffers, and the data of all
 * inputs. */
static tu_status begin_steps(const model *m, const steps_data *d, tu__execution *e, tu_state *state) {
    const tu_feed_many feeds[] = {{.input = m->samples[0], .data = d->values[0]},
                                  {.input = m->samples[1], .data = d->values[1]},
                                  {.input = m->classes, .data = d->classes}};
    const tu__feed_list list = {.count = 3, .many = feeds};
    size_t chunk;
    e->seed = state->seed;
    e->inputs.are_submitted = true; /* so that the data of all steps is prepared at once */
    TU_TRY(tu__inputs_check(e->program, &list, STEPS));
    TU_TRY(tu__bind(e, state));
    TU_TRY(tu__inputs_begin(e, &list, STEPS, &chunk));
    tu__inputs_fill(e, state, 0, STEPS);
    tu__begin_updates(e);
    return chunk == STEPS ? TU_OK : tu_fail(TU_INTERNAL, "the inputs of %d steps are too large", STEPS);
}

static void end_steps(tu__execution *e, tu_state *state) {
    tu__end_updates(e, state, STEPS);
}

static tu_status launch(const tu__execution *e, uint32_t partition, uint32_t first, uint32_t count) {
    const tu__part *part = &e->parts[partition];
    return part->device->api->launch(part->device->instance, part->executable, first, count);
}

/* All devices of this test use host memory. */
static void *address_of(const tu__execution *e, tu_place place) {
    return e->parts[place.partition].addresses[place.buffer];
}

static void feed(const tu__execution *e, uint32_t index, uint32_t step) {
    const tu_slot *slot = &e->program->list.list.feeds[index];
    const tu_submit_feed *f = &e->inputs.feeds[index];
    memcpy(address_of(e, slot->place), (const char *)f->host + (f->same ? 0 : step * f->stride), slot->bytes);
}

static uint32_t rank_count(const tu__execution *e, uint32_t collective) {
    return e->program->collectives.list[collective].ranks;
}

static void reduce(const tu__execution *e, uint32_t collective) {
    const tu__communicator *c = &e->communicators[collective];
    for (uint32_t r = 0; r < rank_count(e, collective); r++) {
        const tu_combination *combinations = tu__communicator_of_rank(c, r);
        for (uint32_t i = 0; i < c->combination_count; i++) tu__local_combine(&combinations[i]);
    }
}

/* ---- Executing a list in a random order ---- */

/* Actors are the queues, and after them the collectives, which a POST of every rank makes ready. */
typedef struct execution {
    const tu__execution *bound;
    const tu_command_list *list;
    const steps_data *data;
    uint64_t random;
    uint32_t actor_count;
    uint32_t *done;     /* per actor: commands executed, or reductions, of all steps */
    uint32_t *launched; /* per queue: kernels of its current LAUNCH that have run */
    uint32_t *priority; /* per actor */
    uint32_t *signals;  /* per event */
    uint32_t *posts;    /* per collective */
    bool by_priority;   /* run the actor with the highest priority, so that some queues get far ahead */
} execution;

static uint32_t *new_counters(uint32_t count) {
    return calloc((size_t)count + 1, sizeof(uint32_t));
}

static execution begin_execution(const tu__execution *bound, const steps_data *data, uint64_t seed) {
    const tu_command_list *list = &bound->program->list.list;
    uint32_t actors = list->queue_count + list->collective_count;
    execution e = {.bound = bound,
                   .list = list,
                   .data = data,
                   .random = seed,
                   .actor_count = actors,
                   .done = new_counters(actors),
                   .launched = new_counters(list->queue_count),
                   .priority = new_counters(actors),
                   .signals = new_counters(list->event_count),
                   .posts = new_counters(list->collective_count)};
    e.by_priority = random_below(&e.random, 3) > 0;
    for (uint32_t i = 0; i < actors; i++) e.priority[i] = (uint32_t)random_below(&e.random, 1 << 20);
    return e;
}

static void free_execution(execution *e) {
    free(e->done);
    free(e->launched);
    free(e->priority);
    free(e->signals);
    free(e->posts);
}

static uint32_t step_of(const execution *e, uint32_t queue) {
    return e->done[queue] / e->list->queues[queue].count;
}

static const tu_command *next_command(const execution *e, uint32_t queue) {
    const tu_command_queue *q = &e->list->queues[queue];
    return &q->commands[e->done[queue] % q->count];
}

static bool is_done(const execution *e, uint32_t actor) {
    return actor < e->list->queue_count ? step_of(e, actor) == STEPS : e->done[actor] == STEPS;
}

static bool can_run(const execution *e, uint32_t actor) {
    uint32_t queues = e->list->queue_count;
    if (is_done(e, actor)) return false;
    if (actor >= queues) /* no rank posts again before this reduction */
        return e->posts[actor - queues] == rank_count(e->bound, actor - queues) * (e->done[actor] + 1);
    const tu_command *c = next_command(e, actor);
    switch (c->kind) {
    case TU_COMMAND_WAIT: return e->signals[c->index] > step_of(e, actor);
    case TU_COMMAND_WAIT_PREVIOUS: return e->signals[c->index] >= step_of(e, actor);
    case TU_COMMAND_AWAIT: return e->done[queues + c->index] > step_of(e, actor);
    default: return true;
    }
}

/* Runs some of the kernels of a LAUNCH that are left. Sets `*ended` if those were the last. */
static tu_status run_part(execution *e, uint32_t queue, const tu_command *c, bool *ended) {
    uint32_t first = c->first + e->launched[queue], left = c->count - e->launched[queue];
    uint32_t count = random_below(&e->random, 4) ? 1 + (uint32_t)random_below(&e->random, left) : left;
    TU_TRY(launch(e->bound, e->list->queues[queue].partition, first, count));
    *ended = count == left;
    e->launched[queue] = *ended ? 0 : e->launched[queue] + count;
    return TU_OK;
}

static tu_status run_command(execution *e, uint32_t queue) {
    const tu_command *c = next_command(e, queue);
    uint32_t step = step_of(e, queue);
    bool ended = true;
    switch (c->kind) {
    case TU_COMMAND_FEED: feed(e->bound, c->index, step); break;
    case TU_COMMAND_LAUNCH: TU_TRY(run_part(e, queue, c, &ended)); break;
    case TU_COMMAND_COPY: memcpy(address_of(e->bound, c->to), address_of(e->bound, c->from), c->bytes); break;
    case TU_COMMAND_FETCH:
        memcpy(e->data->results[1][c->index] + step * e->data->bytes[c->index],
               address_of(e->bound, e->list->fetches[c->index].place), e->data->bytes[c->index]);
        break;
    case TU_COMMAND_SIGNAL: e->signals[c->index]++; break;
    case TU_COMMAND_POST: e->posts[c->index]++; break;
    case TU_COMMAND_AWAIT:
    case TU_COMMAND_WAIT:
    case TU_COMMAND_WAIT_PREVIOUS:
    case TU_COMMAND_COMMIT: break;
    }
    if (ended) e->done[queue]++;
    return TU_OK;
}

static void count_command(const execution *e, uint32_t actor) {
    summary.commands++;
    for (uint32_t q = 0; q < e->list->queue_count; q++)
        if (!is_done(e, q) && step_of(e, q) != step_of(e, actor)) {
            summary.overlaps++;
            return;
        }
}

static tu_status run_actor(execution *e, uint32_t actor) {
    if (actor < e->list->queue_count) {
        count_command(e, actor);
        return run_command(e, actor);
    }
    reduce(e->bound, actor - e->list->queue_count);
    e->done[actor]++;
    summary.collectives++;
    return TU_OK;
}

/* Returns a random actor that can continue; the number of actors if there is none. */
static uint32_t pick_actor(execution *e) {
    uint32_t picked = e->actor_count, ready = 0;
    if (random_below(&e->random, 16) == 0)
        e->priority[random_below(&e->random, e->actor_count)] = (uint32_t)random_below(&e->random, 1 << 20);
    for (uint32_t i = 0; i < e->actor_count; i++) {
        if (!can_run(e, i)) continue;
        ready++;
        bool is_picked = e->by_priority
                             ? picked == e->actor_count || e->priority[i] > e->priority[picked]
                             : random_below(&e->random, ready) == 0; /* all with the same probability */
        if (is_picked) picked = i;
    }
    return picked;
}

static tu_status execute_in_random_order(execution *e) {
    uint32_t actor;
    while ((actor = pick_actor(e)) < e->actor_count) TU_TRY(run_actor(e, actor));
    for (uint32_t i = 0; i < e->actor_count; i++)
        if (!is_done(e, i)) return tu_fail(TU_INTERNAL, "deadlock: actor %u cannot continue", i);
    return TU_OK;
}

static tu_status run_in_random_order(const model *m, const steps_data *d, tu_program *program,
                                     tu_state *state, uint64_t seed) {
    tu__execution *bound;
    TU_TRY(tu__execution_of(program, NULL, &bound));
    TU_TRY(begin_steps(m, d, bound, state));
    execution e = begin_execution(bound, d, seed);
    tu_status status = execute_in_random_order(&e);
    free_execution(&e);
    if (status == TU_OK) end_steps(bound, state);
    return status;
}

/* ---- Comparing ---- */

static bool results_agree(const model *m, const steps_data *d) {
    for (int i = 0; i < m->fetch_count; i++)
        for (size_t step = 0; step < STEPS; step++) {
            size_t offset = step * d->bytes[i];
            if (memcmp(d->results[0][i] + offset, d->results[1][i] + offset, d->bytes[i]) == 0) continue;
            printf("     '%s' differs in step %zu\n", tu_value_name(m->fetches[i]), step);
            return false;
        }
    return true;
}

static bool variable_agrees(const tu_state *a, const tu_state *b, size_t index) {
    const char *name;
    tu_type type;
    tu_state_variable(a, index, &name, &type);
    size_t bytes = tu_type_bytes(type);
    char *left = malloc(bytes), *right = malloc(bytes);
    bool agrees = tu_state_get(a, name, left, bytes) == TU_OK &&
                  tu_state_get(b, name, right, bytes) == TU_OK && memcmp(left, right, bytes) == 0;
    if (!agrees) printf("     variable '%s' differs\n", name);
    free(left);
    free(right);
    return agrees;
}

static bool states_agree(const tu_state *a, const tu_state *b) {
    if (tu_state_sample(a) != tu_state_sample(b)) {
        printf("     the next sample differs\n");
        return false;
    }
    for (size_t i = 0; i < tu_state_variable_count(a); i++)
        if (!variable_agrees(a, b, i)) return false;
    return true;
}

/* ---- One network ---- */

static bool compare_runs(const model *m, const configuration *c, steps_data *d, uint64_t seed) {
    tu_program *programs[2] = {NULL};
    tu_state *states[2] = {NULL};
    tu_status status = TU_OK;
    for (int i = 0; i < 2 && status == TU_OK; i++) {
        status = compile(m, c, &programs[i]);
        if (status == TU_OK) status = tu_state_new(m->graph, &states[i], .seed = 4);
    }
    if (status == TU_OK) status = run_with_engine(m, d, programs[0], states[0]);
    if (status == TU_OK) status = run_in_random_order(m, d, programs[1], states[1], seed);
    if (status != TU_OK) printf("     %s\n", tu_message());
    bool ok = status == TU_OK && results_agree(m, d) && states_agree(states[0], states[1]);
    if (programs[0]) summary.lists_of[programs[0]->list.list.partition_count]++;
    for (int i = 0; i < 2; i++) {
        tu_program_free(programs[i]);
        tu_state_free(states[i]);
    }
    return ok;
}

static bool check_network(uint64_t seed) {
    model m = {0};
    steps_data data = {0};
    configuration c = {0};
    bool ok = tu_graph_new(&m.graph) == TU_OK;
    if (ok) {
        build_network(&m, seed);
        add_updates(&m);
        ok = tu_graph_status(m.graph) == TU_OK;
        if (!ok) printf("     %s\n", tu_message());
    }
    if (ok) {
        c = pick_configuration(&m);
        prepare_data(&m, &data);
        ok = compare_runs(&m, &c, &data, seed);
    }
    if (!ok)
        printf("FAIL network %llu, %s, on %s; repeat: test_random_lists 1 %llu\n", (unsigned long long)seed,
               c.strategy ? c.strategy : "placed", c.list, (unsigned long long)seed);
    free_data(&data);
    tu_graph_free(m.graph);
    return ok;
}

int main(int argc, char **argv) {
    int result = check_graphs(argc, argv, check_network);
    printf("lists by number of partitions:");
    for (int i = 0; i <= TU__MAX_DEVICES; i++)
        if (summary.lists_of[i]) printf(" %d: %zu", i, summary.lists_of[i]);
    printf("; %zu commands, %zu of them while another queue was in another step; %zu collectives\n",
           summary.commands, summary.overlaps, summary.collectives);
    return result;
}
