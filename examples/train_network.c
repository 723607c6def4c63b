/* Trains a built-in network on a data set with one call, prints the progress, and evaluates the result.
 *
 *     train_network [SET [STEPS]]
 *
 * Writes a new run folder under runs/; use_network.c shows how to use it. */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/tutti.h>

static void print_progress(void *context, const tu_train_report *report) {
    (void)context;
    if (report->event == TU_TRAIN_NOTICE) printf("%s\n", report->message);
    if (report->event == TU_TRAIN_MEASURED && report->step % 10 == 0)
        printf("step %4lld of %lld   loss %.3f   accuracy %4.1f%%   %.0f images/s\n", (long long)report->step,
               (long long)report->steps, report->loss, 100 * report->accuracy, report->images_per_second);
}

static int print_error(void) {
    fprintf(stderr, "%s\n", tu_message());
    return 2;
}

/* Prints the number of correctly classified images of each class. */
static void print_classes(const tu_evaluation *e) {
    for (int64_t i = 0; i < e->classes; i++) {
        int64_t images = 0, correct = e->confusion[i * e->classes + i];
        for (int64_t k = 0; k < e->classes; k++) images += e->confusion[i * e->classes + k];
        printf("  %-10s %4lld of %lld\n", e->class_names[i], (long long)correct, (long long)images);
    }
}

int main(int argc, char **argv) {
    const char *set = argc > 1 ? argv[1] : "generated";
    int64_t steps = argc > 2 ? atoll(argv[2]) : 200;
    tu_train_result result = TU_SIZED(tu_train_result);
    tu_evaluation evaluation = TU_SIZED(tu_evaluation);
    if (tu_train("mlp", set, &result, .steps = steps, .batch = 64, .base = 64, .on_report = print_progress) !=
        TU_OK)
        return print_error();
    printf("%lld parameters, %.1f s, run folder %s\n", (long long)result.parameters, result.seconds,
           result.folder);
    if (tu_evaluate(result.folder, &evaluation) != TU_OK) return print_error();
    printf("test accuracy on %lld images: %.1f%%\n", (long long)evaluation.images, 100 * evaluation.accuracy);
    print_classes(&evaluation);
    tu_evaluation_free(&evaluation);
    return 0;
}
