/* Regression with functions of the program: rows come from a function instead of a file, the learning rate from a schedule
 * of the program's own, and the program looks at every evaluation.
 *
 * The network learns the height of a wave at (x, y, t). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <tutti/tutti.h>

static double coordinate(long long index, long long step) {
    long long value = (index * 7919 + step * 104729) % 10007;
    return 2.0 * (double)value / 10007 - 1;
}

/* Fills the columns "position" f32 [3] and "height" f32 []. */
static tu_status read_row(void *context, tu_split split, int64_t index, void *const *elements) {
    float *position = elements[0], *height = elements[1];
    double p[3];
    (void)context;
    for (int i = 0; i < 3; i++) {
        p[i] = coordinate(index + (split == TU_TEST ? 5000 : 0), i + 1);
        if (position) position[i] = (float)p[i];
    }
    if (height) *height = (float)(sin(3 * p[0] + 2 * p[2]) * cos(2 * p[1]));
    return TU_OK;
}

/* The learning rate falls with the square root of the steps. */
static tu_value schedule(void *context, tu_graph *graph, double rate, int64_t steps) {
    (void)context;
    (void)steps;
    tu_value step = tu_cast(tu_step(graph), TU_F32);
    return tu_scale(tu_rsqrt(tu_shift(tu_scale(step, 0.02), 1)), rate);
}

static tu_status on_evaluation(void *context, const tu_train_report *report, const tu_state *state) {
    int *count = context;
    (void)state;
    ++*count;
    printf("step %4lld: %s %.4f\n", (long long)report->step, report->metrics[0].name,
           report->metrics[0].value);
    return TU_OK;
}

static tu_status train(const char *out) {
    const tu_column columns[] = {
        {.struct_size = sizeof(tu_column), .name = "position", .type = {TU_F32, TU_SHAPE(3)}},
        {.struct_size = sizeof(tu_column),
         .name = "height",
         .kind = TU_COLUMN_NUMBERS,
         .type = {TU_F32, TU_SCALAR},
         .is_target = true}};
    const tu_source source = {.struct_size = sizeof source,
                              .name = "waves",
                              .count = {4000, 500},
                              .columns = columns,
                              .column_count = 2,
                              .read_columns = read_row};
    int evaluations = 0;
    const tu_train_hooks hooks = {.struct_size = sizeof hooks,
                                  .context = &evaluations,
                                  .on_evaluation = on_evaluation,
                                  .schedule = schedule};
    tu_dataset *set;
    tu_train_result result = TU_SIZED(tu_train_result);
    TU_TRY(tu_dataset_from(&source, &set));
    tu_status status = tu_train("mlp", NULL, &result, .set = set, .base = 32, .epochs = 15, .rate = 0.01,
                                .devices = "cpu", .hooks = &hooks, .out = out);
    tu_dataset_free(set);
    TU_TRY(status);
    for (size_t i = 0; i < result.metric_count; i++)
        printf("test %-5s %.4f\n", result.test_metrics[i].name, result.test_metrics[i].value);
    bool learned = result.test_metrics[2].value > 0.9; /* R2 */
    return evaluations > 1 && learned ? TU_OK : tu_fail(TU_INTERNAL, "the network learned nothing");
}

int main(void) {
    char folder[] = "/tmp/tutti-regression-XXXXXX", out[64], command[64];
    if (!mkdtemp(folder)) return 1;
    snprintf(out, sizeof out, "%s/run", folder);
    tu_status status = train(out);
    if (status != TU_OK) fprintf(stderr, "%s\n", tu_message());
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    if (system(command) != 0) return 1;
    return status != TU_OK;
}
