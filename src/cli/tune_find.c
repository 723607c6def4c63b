/* Prints what a finder has found: `tutti tune --find rate|batch`. */
#include "cli/tune_find.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/command.h>

#include "cli/report.h"

enum { BAR = 40 };

static void print_json(const char *what, const tu_tune_found *r) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "find", what);
    if (r->suggestion > 0) tu_json_f64(&json, "suggestion", r->suggestion);
    tu_json_string(&json, "reason", r->reason);
    tu_json_f64(&json, "seconds", r->seconds);
    tu_json_begin_array(&json, "points");
    for (size_t i = 0; i < r->count; i++) {
        tu_json_begin_object(&json, NULL);
        tu_json_f64(&json, what, r->points[i].value);
        if (strcmp(what, "rate") == 0)
            tu_json_f64(&json, "loss", r->points[i].loss);
        else
            tu_json_f64(&json, "images_per_second", r->points[i].images_per_second);
        tu_json_end_object(&json);
    }
    tu_json_end_array(&json);
    tu_json_end_object(&json);
    putchar('\n');
}

static void print_bar(double share) {
    int length = (int)lround(BAR * fmin(fmax(share, 0), 1));
    for (int i = 0; i < length; i++) putchar('#');
    putchar('\n');
}

/* Every fifth point; bars show the loss between the lowest and the first one. */
static void print_rates(const tu_tune_found *r) {
    double low = INFINITY, high = r->count ? r->points[0].loss : 0;
    for (size_t i = 0; i < r->count; i++) low = fmin(low, r->points[i].loss);
    printf("%10s  %8s\n", "rate", "loss");
    for (size_t i = 0; i < r->count; i += 5) {
        printf("%10.3g  %8.4f  ", r->points[i].value, r->points[i].loss);
        print_bar(high > low ? (r->points[i].loss - low) / (high - low) : 1);
    }
}

static void print_batches(const tu_tune_found *r) {
    double best = 0;
    for (size_t i = 0; i < r->count; i++) best = fmax(best, r->points[i].images_per_second);
    printf("%10s  %9s\n", "batch", "images/s");
    for (size_t i = 0; i < r->count; i++) {
        printf("%10.0f  %9.0f  ", r->points[i].value, r->points[i].images_per_second);
        print_bar(best > 0 ? r->points[i].images_per_second / best : 0);
    }
}

int cli_tune_find(const char *what, const char *model, const char *data, const tu_train_options *options,
                  bool json) {
    tu_tune_found found = TU_SIZED(tu_tune_found);
    tu_status status = tu_tune_find(what, model, data, &found, options);
    if (status != TU_OK) return cli_report(status);
    if (json) {
        print_json(what, &found);
    } else {
        (strcmp(what, "rate") == 0 ? print_rates : print_batches)(&found);
        printf("\nended: %s; %.1f s\n", found.reason, found.seconds);
        if (found.suggestion > 0)
            printf("suggestion: --%s %.3g\n", what, found.suggestion);
        else
            printf("no suggestion: %s\n",
                   strcmp(what, "rate") == 0 ? "the loss never falls" : "no batch size was timed");
    }
    tu_tune_found_free(&found);
    return CLI_DONE;
}
