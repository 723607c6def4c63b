/* Trains a classifier on a table, evaluates it and predicts rows: what
 *
 *     tutti train mlp --data pipes.csv --target state
 *     tutti eval RUN
 *     tutti predict RUN new.csv --out predictions.csv
 *
 * do. The table has numbers, a category and missing cells; docs/tables.md says how they become inputs of the network. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

/* Returns a number in [0, 1): the same for the same seed on every machine. */
static double uniform(unsigned *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) / 16777216.0;
}

/* Writes a table of water pipes, which leak if they are old, and more so if they are of iron. */
static int write_table(const char *path, int rows, unsigned seed, int with_state) {
    static const char *const materials[] = {"iron", "steel", "plastic"};
    static const double risk[] = {30, 10, -10};
    FILE *file = fopen(path, "w");
    if (!file) return 1;
    fprintf(file, "age,pressure,material%s\n", with_state ? ",state" : "");
    for (int i = 0; i < rows; i++) {
        double age = 100 * uniform(&seed), pressure = 2 + 6 * uniform(&seed);
        int material = (int)(3 * uniform(&seed));
        const char *state = age + 8 * pressure + risk[material] > 100 ? "leaks" : "sound";
        fprintf(file, "%.1f,", age);
        if (uniform(&seed) < 0.05)
            fprintf(file, "NA"); /* nobody measured it */
        else
            fprintf(file, "%.2f", pressure);
        fprintf(file, ",%s", materials[material]);
        if (with_state) fprintf(file, ",%s", state);
        fprintf(file, "\n");
    }
    return fclose(file) != 0;
}

static tu_status run(const char *folder) {
    char table[256], new_rows[256], out[256], predictions[256];
    snprintf(table, sizeof table, "%s/pipes.csv", folder);
    snprintf(new_rows, sizeof new_rows, "%s/new.csv", folder);
    snprintf(out, sizeof out, "%s/run", folder);
    snprintf(predictions, sizeof predictions, "%s/predictions.csv", folder);
    if (write_table(table, 2000, 1, 1) || write_table(new_rows, 5, 2, 0))
        return tu_fail(TU_IO, "cannot write the tables in '%s'", folder);

    tu_train_result result = TU_SIZED(tu_train_result);
    TU_TRY(tu_train("mlp", table, &result, .target = "state", .base = 32, .epochs = 20, .devices = "cpu",
                    .out = out));
    printf("test accuracy %.3f\n", result.test_accuracy);

    tu_evaluation evaluation = TU_SIZED(tu_evaluation);
    TU_TRY(tu_evaluate(out, &evaluation));
    for (size_t i = 0; i < evaluation.metric_count; i++)
        printf("%-18s %.4f\n", evaluation.metrics[i].name, evaluation.metrics[i].value);
    tu_evaluation_free(&evaluation);

    tu_table_prediction prediction = TU_SIZED(tu_table_prediction);
    TU_TRY(tu_predict_table(out, new_rows, predictions, &prediction));
    printf("%lld rows are predicted in %s\n", (long long)prediction.rows, predictions);
    return result.test_accuracy > 0.9 ? TU_OK : tu_fail(TU_INTERNAL, "the network learned nothing");
}

int main(void) {
    char folder[] = "/tmp/tutti-table-XXXXXX", command[64];
    if (!mkdtemp(folder)) return 1;
    setenv("TUTTI_DATA", folder, 0); /* converted tables go there, unless the user has another cache */
    tu_status status = run(folder);
    if (status != TU_OK) fprintf(stderr, "%s\n", tu_message());
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    if (system(command) != 0) return 1;
    return status != TU_OK;
}
