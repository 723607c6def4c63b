/* An ensemble's members are bit-identical to single runs with their seeds, on any device and however often they are
 * interrupted; predictions are the mean of the members'. */
#include "train/fresh_run.h"

enum { MEMBERS = 3, EPOCHS = 2, STEPS = EPOCHS * SMALL_STEPS };

/* The CPU or the device given as argument, and its two logical devices. */
static const char *device = "cpu:0";
static char halves[64] = "cpu:0/2";

/* Returns one of the two logical devices: members have the bits of logical devices, which may differ from those of
 * the whole device. */
static const char *half(int64_t number) {
    static char specs[2][64];
    snprintf(specs[number], sizeof *specs, "%s.%d/2", device, (int)number);
    return specs[number];
}

#define ON_TWO .devices = halves, .threads = 1, .batch = SMALL_BATCH, .base = 8, .epochs = EPOCHS, .seed = 7

#define ON_ONE .devices = device, .threads = 1, .batch = SMALL_BATCH, .base = 8

/* Trains an ensemble; it must succeed. */
#define train_members(folder, result_, ...)                                                                  \
    do {                                                                                                     \
        tu_status ensemble_status_ = tu_train_ensemble("mlp", NULL, MEMBERS, result_, .set = set,            \
                                                       .out = folder, ON_TWO, __VA_ARGS__);                  \
        if (ensemble_status_ != TU_OK) print_message("%s\n", tu_message());                                  \
        assert_int_equal(ensemble_status_, TU_OK);                                                           \
    } while (0)

/* Trains one network; the run must succeed. */
#define train_one(result_, ...)                                                                              \
    do {                                                                                                     \
        tu_status one_status_ = tu_train("mlp", NULL, result_, .set = set, ON_ONE, __VA_ARGS__);             \
        if (one_status_ != TU_OK) print_message("%s\n", tu_message());                                       \
        assert_int_equal(one_status_, TU_OK);                                                                \
    } while (0)

/* ---- Members ---- */

static tu_train_result member_of(const tu_ensemble_result *ensemble, int64_t index) {
    tu_train_result member = TU_SIZED(tu_train_result);
    assert_int_equal(tu_ensemble_result_member(ensemble, index, &member), TU_OK);
    return member;
}

static tu_member_score score_of(const tu_evaluation *evaluation, int64_t index) {
    tu_member_score score = TU_SIZED(tu_member_score);
    assert_int_equal(tu_evaluation_member(evaluation, index, &score), TU_OK);
    return score;
}
static void members_are_identical_to_runs_with_their_seeds(void **state) {
    (void)state;
    tu_ensemble_result ensemble = TU_SIZED(tu_ensemble_result);
    train_members(in_scratch("all").text, &ensemble, .flip = 1);
    assert_int_equal(ensemble.member_count, MEMBERS);
    assert_false(ensemble.stopped);
    for (int64_t i = 0; i < MEMBERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "single-%d", (int)i);
        tu_train_result single = TU_SIZED(tu_train_result);
        assert_int_equal(tu_train("mlp", NULL, &single, .set = set, .out = in_scratch(name).text,
                                  .devices = half(i % 2), .threads = 1, .batch = SMALL_BATCH, .base = 8,
                                  .epochs = EPOCHS, .seed = 7 + i, .flip = 1),
                         TU_OK);
        assert_int_equal(member_of(&ensemble, i).step, STEPS);
        assert_string_equal(member_of(&ensemble, i).digest, single.digest);
        if (i) assert_string_not_equal(member_of(&ensemble, i).digest, member_of(&ensemble, 0).digest);
    }
    tu_ensemble_result_free(&ensemble);
}

static void with_bootstrap_each_member_has_a_different_sample(void **state) {
    (void)state;
    tu_ensemble_result plain = TU_SIZED(tu_ensemble_result), bootstrapped = TU_SIZED(tu_ensemble_result),
                       again = TU_SIZED(tu_ensemble_result);
    train_members(in_scratch("plain").text, &plain, .bootstrap = -1);
    train_members(in_scratch("bootstrapped").text, &bootstrapped, .bootstrap = 1);
    train_members(in_scratch("again").text, &again, .bootstrap = 1);
    for (int64_t i = 0; i < MEMBERS; i++) {
        assert_string_not_equal(member_of(&plain, i).digest, member_of(&bootstrapped, i).digest);
        assert_string_equal(member_of(&bootstrapped, i).digest, member_of(&again, i).digest);
    }
    tu_ensemble_result_free(&plain);
    tu_ensemble_result_free(&bootstrapped);
    tu_ensemble_result_free(&again);
}

/* ---- Stopping and resuming ---- */

static volatile sig_atomic_t ensemble_stop;
static int64_t stop_after; /* total steps of all members */

static void stop_all_there(void *context, const tu_train_report *report) {
    (void)context;
    assert_int_equal(report->members, MEMBERS);
    if (report->event == TU_TRAIN_STEPPED && report->step >= stop_after) ensemble_stop = 1;
}

static void a_resumed_ensemble_is_bit_identical(void **state) {
    (void)state;
    tu_ensemble_result whole = TU_SIZED(tu_ensemble_result), part = TU_SIZED(tu_ensemble_result);
    train_members(in_scratch("whole").text, &whole, .keep = 2);
    for (stop_after = 1; stop_after < MEMBERS * STEPS; stop_after += 5) {
        char name[32];
        snprintf(name, sizeof name, "part-%d", (int)stop_after);
        struct scratch_path folder = in_scratch(name);
        ensemble_stop = 0;
        train_members(folder.text, &part, .stop = &ensemble_stop, .on_report = stop_all_there);
        assert_true(part.stopped);
        tu_ensemble_result_free(&part);
        assert_int_equal(tu_train_ensemble(folder.text, NULL, 0, &part, .set = set, .resume = true), TU_OK);
        assert_false(part.stopped);
        for (int64_t i = 0; i < MEMBERS; i++)
            assert_string_equal(member_of(&part, i).digest, member_of(&whole, i).digest);
        tu_ensemble_result_free(&part);
    }
    tu_ensemble_result_free(&whole);
}

static void an_ensemble_can_be_resumed_on_other_devices(void **state) {
    (void)state;
    tu_ensemble_result whole = TU_SIZED(tu_ensemble_result), part = TU_SIZED(tu_ensemble_result);
    struct scratch_path folder = in_scratch("moved");
    train_members(in_scratch("whole").text, &whole, .keep = 2);
    ensemble_stop = 0;
    stop_after = 4;
    train_members(folder.text, &part, .stop = &ensemble_stop, .on_report = stop_all_there);
    tu_ensemble_result_free(&part);
    assert_int_equal(
        tu_train_ensemble(folder.text, NULL, 0, &part, .set = set, .resume = true, .devices = half(0)),
        TU_OK);
    for (int64_t i = 0; i < MEMBERS; i++)
        assert_string_equal(member_of(&part, i).digest, member_of(&whole, i).digest);
    char changed[96];
    snprintf(changed, sizeof changed, "\"devices\":\"%s\"", half(0));
    assert_int_equal(count_lines(folder.text, "config.json", changed), 1);
    tu_ensemble_result_free(&whole);
    tu_ensemble_result_free(&part);
}

/* The other members may be on another device or later on the same one. */
static void a_failed_member_does_not_stop_the_others(void **state) {
    (void)state;
    const char *const lists[] = {NULL, device};
    for (int i = 0; i < 2; i++) {
        struct scratch_path folder = in_scratch(i ? "one-fails-of-a-queue" : "one-fails");
        tu_ensemble_result result = TU_SIZED(tu_ensemble_result);
        ensemble_stop = 1; /* no member starts */
        train_members(folder.text, &result, .stop = &ensemble_stop);
        tu_ensemble_result_free(&result);
        command("mkdir -p '%s/members/1' && touch '%s/members/1/somebody-elses'", folder.text, folder.text);
        expect_error(
            tu_train_ensemble(folder.text, NULL, 0, &result, .set = set, .resume = true, .devices = lists[i]),
            TU_INVALID, "member 1: ");
        assert_true(exists(folder.text, "members/0/checkpoints/step-8.safetensors"));
        assert_true(exists(folder.text, "members/2/checkpoints/step-8.safetensors"));
        command("rm -r '%s/members/1'", folder.text);
        assert_int_equal(tu_train_ensemble(folder.text, NULL, 0, &result, .set = set, .resume = true), TU_OK);
        assert_int_equal(member_of(&result, 1).step, STEPS);
        tu_ensemble_result_free(&result);
    }
}

/* ---- Evaluation and prediction ---- */

static void an_evaluation_reports_the_members_and_their_average(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("judged");
    tu_evaluation average = TU_SIZED(tu_evaluation), single = TU_SIZED(tu_evaluation);
    train_members(folder.text, NULL, .average = 0.5);
    assert_int_equal(tu_evaluate(folder.text, &average, .set = set), TU_OK);
    assert_int_equal(average.member_count, MEMBERS);
    assert_int_equal(average.images, SMALL_TEST);
    double losses = 0;
    for (int64_t i = 0; i < MEMBERS; i++) {
        char member[600];
        snprintf(member, sizeof member, "%s/members/%d", folder.text, (int)i);
        assert_int_equal(tu_evaluate(member, &single, .set = set), TU_OK);
        assert_true(score_of(&average, i).accuracy == single.accuracy &&
                    score_of(&average, i).top5 == single.top5);
        assert_true(score_of(&average, i).loss == single.loss && score_of(&average, i).step == STEPS);
        losses += single.loss / MEMBERS;
        tu_evaluation_free(&single);
    }
    assert_true(average.loss < losses); /* by concavity of the logarithm, unless all members agree */
    int64_t counted = 0;
    for (int i = 0; i < SMALL_CLASSES * SMALL_CLASSES; i++) counted += average.confusion[i];
    assert_int_equal(counted, SMALL_TEST);
    tu_evaluation_free(&average);
}

static void an_ensemble_of_one_equals_its_member(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("one");
    assert_int_equal(
        tu_train_ensemble("mlp", NULL, 1, NULL, .set = set, .out = folder.text, ON_ONE, .epochs = 2), TU_OK);
    tu_evaluation one = TU_SIZED(tu_evaluation);
    assert_int_equal(tu_evaluate(folder.text, &one, .set = set), TU_OK);
    assert_int_equal(one.member_count, 1);
    assert_true(one.accuracy == score_of(&one, 0).accuracy && one.top5 == score_of(&one, 0).top5);
    assert_true(fabs(one.loss - score_of(&one, 0).loss) < 1e-6);
    tu_evaluation_free(&one);
}

static void predict_one(const char *folder, const char *image, float probabilities[SMALL_CLASSES]) {
    tu_predictor *predictor;
    assert_int_equal(tu_predictor_new(folder, &predictor), TU_OK);
    assert_int_equal(tu_predictor_classes(predictor, NULL), SMALL_CLASSES);
    assert_int_equal(tu_predict(predictor, image, probabilities), TU_OK);
    tu_predictor_free(predictor);
}

static void a_prediction_is_the_mean_of_the_members(void **state) {
    (void)state;
    struct scratch_path folder = in_scratch("predicted"), image = in_scratch("picture.png");
    train_members(folder.text, NULL, .keep = 1);
    if (tu_dataset_save_image(set, TU_TEST, 3, image.text) == TU_UNSUPPORTED) skip(); /* built without PNG */
    float average[SMALL_CLASSES], one[SMALL_CLASSES], mean[SMALL_CLASSES] = {0};
    predict_one(folder.text, image.text, average);
    for (int i = 0; i < MEMBERS; i++) {
        char member[600];
        snprintf(member, sizeof member, "%s/members/%d", folder.text, i);
        predict_one(member, image.text, one);
        for (int k = 0; k < SMALL_CLASSES; k++) mean[k] += one[k] / MEMBERS;
    }
    for (int k = 0; k < SMALL_CLASSES; k++) assert_true(fabsf(average[k] - mean[k]) < 1e-6f);
}

/* ---- Errors ---- */

#define begin_bad(model, members, ...)                                                                       \
    tu_train_ensemble(model, NULL, members, NULL, .set = set, .threads = 1, .base = 8, __VA_ARGS__)

static void invalid_calls_fail_and_leave_no_files(void **state) {
    (void)state;
    struct scratch_path bad = in_scratch("bad");
    expect_error(begin_bad("mlp", 0, .out = bad.text), TU_INVALID, "expected 1 to 10000 members");
    expect_error(begin_bad("mpl", 2, .out = bad.text), TU_NOT_FOUND, "did you mean 'mlp'?");
    expect_error(begin_bad("mlp", 2, .out = bad.text, .trace = "t.json"), TU_INVALID,
                 "--trace cannot be combined with --ensemble");
    expect_error(begin_bad("mlp", 2, .out = bad.text, .devices = device, .memory_limit = 1), TU_NO_MEMORY,
                 "would need");
    expect_error(begin_bad("mlp", 2, .out = bad.text, .optimizer = "sdg"), TU_INVALID, "sdg");
    expect_error(begin_bad("mlp", 2, .out = bad.text, .seed = INT64_MAX), TU_INVALID,
                 "the seed of the last member overflows");
    assert_int_equal(access(bad.text, F_OK), -1);
}

static void ensembles_and_runs_are_not_confused(void **state) {
    (void)state;
    struct scratch_path ensemble = in_scratch("ensemble"), run = in_scratch("run");
    train_members(ensemble.text, NULL, .keep = 1);
    train_one(NULL, .out = run.text, .steps = 2);
    assert_int_equal(tu_ensemble_members(ensemble.text), MEMBERS);
    assert_int_equal(tu_ensemble_members(run.text), 0);
    assert_int_equal(tu_ensemble_members(in_scratch("nothing").text), 0);
    expect_error(tu_train(ensemble.text, NULL, NULL, .set = set, .resume = true), TU_INVALID,
                 "is an ensemble of 3 members");
    expect_error(tu_train("mlp", NULL, NULL, .set = set, ON_ONE, .init = ensemble.text), TU_INVALID,
                 "expected one of its members");
    expect_error(tu_train_ensemble(run.text, NULL, 2, NULL, .set = set, .resume = true), TU_INVALID,
                 "contains a run of one network");
    expect_error(tu_train_ensemble(ensemble.text, NULL, 2, NULL, .set = set, .resume = true), TU_INVALID,
                 "has 3 members");
    expect_error(tu_train_ensemble(ensemble.text, NULL, 0, NULL, .set = set, .resume = true, .rate = 0.5),
                 TU_INVALID, "--resume cannot change --rate to 0.5");
    expect_error(tu_train_ensemble("mlp", NULL, 2, NULL, .set = set, .out = ensemble.text), TU_INVALID,
                 "already contains a run");
    command("rm -r '%s/members/2/checkpoints'", ensemble.text);
    tu_evaluation evaluation = TU_SIZED(tu_evaluation);
    expect_error(tu_evaluate(ensemble.text, &evaluation, .set = set), TU_NOT_FOUND, "member 2: ");
}

/* Runs on the device given as argument: test_ensemble gpu:0 */
int main(int argc, char **argv) {
    if (argc > 1) {
        device = argv[1];
        snprintf(halves, sizeof halves, "%s/2", device);
    }
    const struct CMUnitTest tests[] = {
        fresh(members_are_identical_to_runs_with_their_seeds),
        fresh(with_bootstrap_each_member_has_a_different_sample),
        fresh(a_resumed_ensemble_is_bit_identical),
        fresh(an_ensemble_can_be_resumed_on_other_devices),
        fresh(a_failed_member_does_not_stop_the_others),
        fresh(an_evaluation_reports_the_members_and_their_average),
        fresh(an_ensemble_of_one_equals_its_member),
        fresh(a_prediction_is_the_mean_of_the_members),
        fresh(invalid_calls_fail_and_leave_no_files),
        fresh(ensembles_and_runs_are_not_confused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
