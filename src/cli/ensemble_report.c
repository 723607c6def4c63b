/* Prints the results of training an ensemble. See ensemble_report.h. Training evaluates each member separately;
 * `tutti eval` evaluates the ensemble. */
#include "cli/ensemble_report.h"

#include <inttypes.h>
#include <stdio.h>

#include <tutti/command.h>

static void print_member(const tu_train_result *m, int64_t number) {
    char validation[64] = "-", test[64] = "-", digest[16] = "-";
    if (m->validation_step >= 0)
        snprintf(validation, sizeof validation, "%.2f%%", 100 * m->validation_accuracy);
    if (m->test_step >= 0) snprintf(test, sizeof test, "%.2f%%", 100 * m->test_accuracy);
    if (*m->digest) snprintf(digest, sizeof digest, "%.12s", m->digest);
    printf("%-10" PRId64 "  %9" PRId64 "  %8.4f  %10s  %13s  %s\n", number, m->step, m->loss, validation,
           test, digest);
}

void cli_print_ensemble(const tu_ensemble_result *r, bool pipe_closed) {
    printf("%-10s  %s\n%-10s  %.1f s\n\n", "run", r->folder, "time", r->seconds);
    printf("%-10s  %9s  %8s  %10s  %13s  %s\n", "member", "steps", "loss", "validation", "test accuracy",
           "digest");
    double largest = 0;
    tu_train_result member = TU_SIZED(tu_train_result);
    for (int64_t i = 0; i < r->member_count && tu_ensemble_result_member(r, i, &member) == TU_OK; i++) {
        print_member(&member, i);
        if (member.test_largest_class > 0) largest = member.test_largest_class;
    }
    if (largest > 0)
        printf("%-10s  the largest class has %.2f%% of the test images\n", "baseline", 100 * largest);
    putchar('\n');
    if (r->stopped) {
        if (pipe_closed) printf("%-10s  the reader of standard error closed the pipe\n", "stopped");
        printf("%-10s  tutti train %s --resume\n", "resume", r->folder);
        return;
    }
    printf("%-10s  tutti eval %s\n", "evaluate", r->folder);
    printf("%-10s  tutti predict %s IMAGE...\n", "predict", r->folder);
}

static void put_member(tu_json *json, const tu_train_result *m) {
    tu_json_begin_object(json, NULL);
    tu_json_string(json, "run", m->folder);
    tu_json_i64(json, "step", m->step);
    tu_json_i64(json, "steps", m->steps);
    tu_json_f64(json, "loss", m->loss);
    tu_json_f64(json, "accuracy", m->accuracy);
    if (m->test_step >= 0) {
        tu_json_i64(json, "test_step", m->test_step);
        tu_json_f64(json, "test_accuracy", m->test_accuracy);
    }
    if (m->validation_step >= 0) {
        tu_json_i64(json, "validation_step", m->validation_step);
        tu_json_f64(json, "validation_accuracy", m->validation_accuracy);
    }
    if (m->best_step >= 0) tu_json_f64(json, "best_accuracy", m->best_accuracy);
    tu_json_string(json, "digest", m->digest);
    tu_json_end_object(json);
}

void cli_print_ensemble_json(const tu_ensemble_result *r) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "run", r->folder);
    tu_json_bool(&json, "stopped", r->stopped);
    tu_json_f64(&json, "seconds", r->seconds);
    tu_json_begin_array(&json, "members");
    tu_train_result member = TU_SIZED(tu_train_result);
    for (int64_t i = 0; i < r->member_count && tu_ensemble_result_member(r, i, &member) == TU_OK; i++)
        put_member(&json, &member);
    tu_json_end_array(&json);
    tu_json_end_object(&json);
    putchar('\n');
}
