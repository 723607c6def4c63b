/* A study in a folder of its own, for tests of studies: each test gets an empty folder, opens a study, claims trials, reports and
 * ends them. */
#ifndef TUTTI_STUDY_FIXTURE_H
#define TUTTI_STUDY_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>

#include "test.h"
#include "tune/study.h"

static char folder[256], database[300];

static inline int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tutti-study-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(database, sizeof database, "%s/study.db", folder);
    return 0;
}

static inline int remove_folder(void **state) {
    (void)state;
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static inline tu__study_plan plan_of(const char *pruner, int64_t trials) {
    return (tu__study_plan){.name = "study",
                            .model = "mlp",
                            .model_digest = "a",
                            .data = "mnist",
                            .data_digest = "b",
                            .space = "rate=log:0.001:1\nkind=x|y\n",
                            .settings = "{}",
                            .objective = "loss",
                            .sampler = "random",
                            .pruner = pruner,
                            .folder = folder,
                            .seed = 3,
                            .trials = trials,
                            .attempts = 2};
}

static inline void open_study(tu__study *study, const tu__study_plan *plan) {
    if (tu__study_connect(database, true, study) != TU_OK || tu__study_create(study, plan) != TU_OK)
        fail_msg("%s", tu_message());
}

static inline tu__claim claim(tu__study *study, tu__claimed expected) {
    tu__claim c = {0};
    tu__claimed claimed;
    tu__claim_text(c.text);
    if (tu__study_claim(study, "worker", &c, &claimed) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(claimed, expected);
    return c;
}

static inline bool report(tu__study *study, const tu__claim *c, int64_t step, double cost) {
    bool prune;
    tu__report r = {step, 64, cost, cost, 0};
    if (tu__study_report(study, c, &r, &prune) != TU_OK) fail_msg("%s", tu_message());
    return prune;
}

static inline void end(tu__study *study, const tu__claim *c, tu__trial_state state) {
    if (tu__study_end(study, c, state, 64, 1, NULL) != TU_OK) fail_msg("%s", tu_message());
}

#define STUDY_TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

#endif
