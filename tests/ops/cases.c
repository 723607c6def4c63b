/* The case list: registration, random shapes and numbers, and pairwise coverage of options. */
#include "ops/cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/driver.h"

/* ---- List of cases ---- */

static op_case *cases;

void case_register(op_case *entry) {
    op_case **link = &cases;
    while (*link && strcmp((*link)->name, entry->name) < 0) link = &(*link)->next;
    entry->next = *link;
    *link = entry;
}

const op_case *case_first(void) {
    return cases;
}

/* ---- Random numbers (splitmix64) ---- */

static uint64_t next_random(case_run *c) {
    uint64_t x = c->random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

double case_uniform(case_run *c, double low, double high) {
    return low + (high - low) * ((double)(next_random(c) >> 11) * 0x1p-53);
}

int64_t case_size(case_run *c, int64_t low, int64_t high) {
    int64_t size = low + (int64_t)(next_random(c) % (uint64_t)(high - low + 1));
    if (low <= 1 && high >= 1 && next_random(c) % 6 == 0) return 1;
    if (size % 2 == 0 && size + 1 <= high && next_random(c) % 3 == 0) return size + 1;
    return size;
}

tu_shape case_shape(case_run *c, int64_t rank, int64_t low, int64_t high) {
    tu_shape shape = {.rank = rank};
    for (int64_t i = 0; i < rank; i++) shape.dim[i] = case_size(c, low, high);
    return shape;
}

tu_axes case_permutation(case_run *c, int64_t rank) {
    tu_axes axes = {.count = (uint32_t)rank};
    for (int64_t i = 0; i < rank; i++) axes.axis[i] = (int32_t)i;
    for (int64_t i = rank - 1; i > 0; i--) {
        int64_t j = case_size(c, 0, i);
        int32_t swapped = axes.axis[i];
        axes.axis[i] = axes.axis[j];
        axes.axis[j] = swapped;
    }
    return axes;
}

tu_shape case_broadcastable(case_run *c, tu_shape shape) {
    int64_t drop = next_random(c) % 3 == 0 ? case_size(c, 0, shape.rank) : 0;
    tu_shape out = {.rank = shape.rank - drop};
    for (int64_t i = 0; i < out.rank; i++) out.dim[i] = next_random(c) % 3 == 0 ? 1 : shape.dim[i + drop];
    return out;
}

/* ---- Options ---- */

static case_option *find_or_add_option(case_run *c, const char *name, int count) {
    for (int i = 0; i < c->option_count; i++)
        if (strcmp(c->options[i].name, name) == 0) return &c->options[i];
    if (c->option_count == CASE_MAX_OPTIONS || count > CASE_MAX_VALUES) abort();
    c->options[c->option_count] = (case_option){.name = name, .count = count, .value = -1};
    return &c->options[c->option_count++];
}

/* Returns the number of new pairs that picking `value` would cover, given the options already
 * picked in this instance. */
static int count_new_pairs(const case_run *c, int option, int value) {
    int new_pairs = c->seen[option][value][option][value] ? 0 : 1;
    for (int j = 0; j < c->option_count; j++)
        if (j != option && c->options[j].value >= 0)
            new_pairs += !c->seen[option][value][j][c->options[j].value];
    return new_pairs;
}

static void mark_pairs_seen(case_run *c, int option, int value) {
    c->seen[option][value][option][value] = true;
    for (int j = 0; j < c->option_count; j++) {
        int other = c->options[j].value;
        if (j == option || other < 0) continue;
        c->seen[option][value][j][other] = c->seen[j][other][option][value] = true;
    }
}

int case_pick(case_run *c, const char *name, int count) {
    case_option *o = find_or_add_option(c, name, count);
    int option = (int)(o - c->options), best = 0, best_gain = -1;
    int start = (int)(next_random(c) % (uint64_t)count);
    for (int i = 0; i < count; i++) {
        int value = (start + i) % count, gain = count_new_pairs(c, option, value);
        if (gain > best_gain) best = value, best_gain = gain;
    }
    o->value = best;
    mark_pairs_seen(c, option, best);
    return best;
}

const char *case_missing_pair(const case_run *c) {
    static char text[256];
    for (int i = 0; i < c->option_count; i++)
        for (int a = 0; a < c->options[i].count; a++)
            for (int j = 0; j < c->option_count; j++)
                for (int b = 0; b < c->options[j].count; b++) {
                    if (c->seen[i][a][j][b] || (i == j && a != b)) continue;
                    snprintf(text, sizeof text, "%s=%d with %s=%d", c->options[i].name, a, c->options[j].name,
                             b);
                    return text;
                }
    return NULL;
}

/* ---- Inputs and outputs ---- */

static case_tensor *add_input(case_run *c, tu_dtype dtype, tu_shape shape, bool differentiable) {
    if (c->input_count == CASE_MAX_INPUTS) abort();
    char name[16];
    snprintf(name, sizeof name, "in%d", c->input_count);
    case_tensor *t = &c->inputs[c->input_count++];
    t->value = tu_input(c->graph, name, dtype, shape);
    t->data = calloc((size_t)tu_shape_elements(shape) + 1, sizeof *t->data);
    t->differentiable = differentiable;
    return t;
}

static void fill_uniform(case_run *c, case_tensor *t, double low, double high) {
    int64_t count = tu_shape_elements(tu_value_shape(t->value));
    for (int64_t i = 0; i < count; i++) t->data[i] = case_uniform(c, low, high);
}

tu_value case_input(case_run *c, tu_shape shape, double low, double high) {
    case_tensor *t = add_input(c, c->dtype, shape, true);
    fill_uniform(c, t, low, high);
    return t->value;
}

tu_value case_fixed(case_run *c, tu_shape shape, double low, double high) {
    case_tensor *t = add_input(c, c->dtype, shape, false);
    fill_uniform(c, t, low, high);
    return t->value;
}

/* Multiples of 1/8 plus a constant, in random order. Small counts of them are exact in every float type. */
tu_value case_input_apart(case_run *c, tu_shape shape) {
    case_tensor *t = add_input(c, c->dtype, shape, true);
    int64_t count = tu_shape_elements(shape);
    for (int64_t i = 0; i < count; i++) t->data[i] = 0.125 * (double)i - 0.0625 * (double)count + 0.03125;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = (int64_t)(next_random(c) % (uint64_t)(i + 1));
        double swap = t->data[i];
        t->data[i] = t->data[j];
        t->data[j] = swap;
    }
    return t->value;
}

tu_value case_input_around(case_run *c, tu_shape shape, double kink, double high) {
    case_tensor *t = add_input(c, c->dtype, shape, true);
    int64_t count = tu_shape_elements(shape);
    for (int64_t i = 0; i < count; i++) {
        do t->data[i] = case_uniform(c, -high, high);
        while (fabs(t->data[i] - kink) < 0.1);
    }
    return t->value;
}

tu_value case_input_filled(case_run *c, tu_shape shape,
                           void (*fill)(case_run *c, double *data, tu_shape shape)) {
    case_tensor *t = add_input(c, c->dtype, shape, true);
    fill(c, t->data, shape);
    return t->value;
}

tu_value case_integers(case_run *c, tu_dtype dtype, tu_shape shape, int64_t low, int64_t high) {
    case_tensor *t = add_input(c, dtype, shape, false);
    int64_t count = tu_shape_elements(shape);
    for (int64_t i = 0; i < count; i++)
        t->data[i] = (double)(low + (int64_t)(next_random(c) % (uint64_t)(high - low)));
    return t->value;
}

tu_value case_bools(case_run *c, tu_shape shape) {
    return case_integers(c, TU_BOOL, shape, 0, 2);
}

void case_output(case_run *c, tu_value value) {
    if (c->output_count == CASE_MAX_OUTPUTS) abort();
    c->outputs[c->output_count++] = value;
}

tu_graph *case_graph(case_run *c) {
    return c->graph;
}

tu_dtype case_dtype(case_run *c) {
    return c->dtype;
}

/* ---- Instances ---- */

case_run *case_begin(const op_case *entry, tu_dtype dtype, uint64_t seed) {
    case_run *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->entry = entry;
    c->dtype = dtype;
    c->random = seed;
    for (const char *character = entry->name; *character; character++)
        c->random = c->random * 31 + (unsigned char)*character;
    return c;
}

static void free_instance(case_run *c) {
    for (int i = 0; i < c->input_count; i++) free(c->inputs[i].data);
    tu_graph_free(c->graph);
    c->graph = NULL;
    c->input_count = c->output_count = 0;
}

bool case_next_instance(case_run *c) {
    free_instance(c);
    if (c->instance >= CASE_INSTANCES && (c->instance >= 20 * CASE_INSTANCES || !case_missing_pair(c)))
        return false;
    c->instance++;
    for (int i = 0; i < c->option_count; i++) c->options[i].value = -1;
    if (tu_graph_new(&c->graph) != TU_OK) abort();
    c->entry->build(c);
    return true;
}

void case_add_gradients(case_run *c) {
    tu_value wrt[CASE_MAX_INPUTS], gradients[CASE_MAX_INPUTS], sum = {0};
    size_t count = 0;
    for (int i = 0; i < c->input_count; i++)
        if (c->inputs[i].differentiable) wrt[count++] = c->inputs[i].value;
    for (int i = 0; i < c->output_count; i++) {
        if (!tu_dtype_is_float(tu_value_dtype(c->outputs[i]))) continue;
        tu_value term = tu_cast(tu_sum(c->outputs[i]), c->dtype);
        sum = sum.graph ? tu_add(sum, term) : term;
    }
    if (count && sum.graph && !(c->entry->flags & CASE_NO_GRADIENT)) tu_gradients(sum, count, wrt, gradients);
}

void case_end(case_run *c) {
    free_instance(c);
    free(c);
}
