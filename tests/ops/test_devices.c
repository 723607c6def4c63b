/* Every case on a device against the reference: the whole list, every float type, at least 50 random shapes each.
 *
 * test_devices DEVICES THREADS [CASE,CASE…|all [DRAWS]]      test_devices cpu 2 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "ops/run_case.h"

enum { DRAWS = 50 };

typedef struct where {
    const char *devices;
    int threads, draws;
} where;

/* Roundings a result may be away: sums in another order, and functions good to a few units themselves. Half types
 * round once at the end as the reference does, but from f32. */
static double units_for(const op_case *entry) {
    return entry->flags & CASE_LOOSE ? 2000 : 64;
}

static bool check_draw(case_run *c, const where *w) {
    double *expected[CASE_MAX_OUTPUTS] = {0}, *got[CASE_MAX_OUTPUTS] = {0};
    bool good = case_evaluate(c, "ref", 1, expected) && case_evaluate(c, w->devices, w->threads, got);
    for (int i = 0; i < c->output_count; i++) {
        good = good && results_agree(c, i, expected[i], got[i], units_for(c->entry));
        free(expected[i]);
        free(got[i]);
    }
    return good;
}

/* The gradients of the case's float outputs take part as results of their own. */
static void add_gradients(case_run *c) {
    tu_value wrt[CASE_MAX_INPUTS], gradients[CASE_MAX_INPUTS], total = {0};
    size_t count = 0;
    for (int i = 0; i < c->input_count; i++)
        if (c->inputs[i].differentiable) wrt[count++] = c->inputs[i].value;
    for (int i = 0; i < c->output_count; i++) {
        if (tu_value_dtype(c->outputs[i]) != c->dtype) continue;
        tu_value term = tu_sum(tu_square(c->outputs[i]));
        total = total.graph ? tu_add(total, term) : term;
    }
    if (!total.graph || tu_gradients(total, count, wrt, gradients) != TU_OK) return;
    for (size_t i = 0; i < count && c->output_count < CASE_MAX_OUTPUTS; i++) case_output(c, gradients[i]);
}

static bool check_type(const op_case *entry, tu_dtype dtype, const where *w) {
    case_run *c = case_begin(entry, dtype, 21);
    bool good = true, narrow = dtype == TU_BF16 || dtype == TU_F16;
    for (int draw = 0; draw < w->draws && good; draw++) {
        if (c->draws >= CASE_DRAWS) c->draws = 1; /* beyond what covers the options: more shapes */
        case_draw(c);
        for (int i = 0; i < c->input_count; i++) {
            tu_type type = tu_value_type(c->inputs[i].value);
            tu__round_array(type.dtype, c->inputs[i].data, tu_shape_elements(type.shape));
        }
        if (!narrow && !(entry->flags & CASE_NO_GRADIENT)) add_gradients(c);
        good = tu_graph_status(c->graph) == TU_OK && check_draw(c, w);
    }
    case_end(c);
    return good;
}

/* Functions of the user's own run in the host's memory: a GPU refuses them, and programs place them elsewhere. */
static bool is_offered(const op_case *entry, const where *w) {
    return !(entry->flags & CASE_ON_HOST) || strncmp(w->devices, "gpu", 3) != 0;
}

/* Whether a name is one of a list with commas between. */
static bool is_listed(const char *list, const char *name) {
    for (size_t length = strlen(name); list; list = strchr(list, ',')) {
        list += *list == ',';
        if (strncmp(list, name, length) == 0 && (list[length] == ',' || !list[length])) return true;
    }
    return false;
}

int main(int argc, char **argv) {
    static const tu_dtype types[] = {TU_F32, TU_F64, TU_BF16, TU_F16};
    if (argc < 3) return 2;
    const where w = {argv[1], atoi(argv[2]), argc > 4 ? atoi(argv[4]) : DRAWS};
    const char *only = argc > 3 && strcmp(argv[3], "all") != 0 ? argv[3] : NULL;
    int passed = 0, failed = 0;
    for (const op_case *e = case_first(); e; e = e->next) {
        if ((only && !is_listed(only, e->name)) || !is_offered(e, &w)) continue;
        for (int i = 0; i < 4; i++) {
            if (types[i] != TU_F32 && types[i] != TU_F64 && e->flags & CASE_NO_HALF) continue;
            if (check_type(e, types[i], &w))
                passed++;
            else
                failed++;
        }
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
