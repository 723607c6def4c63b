/* F1, AUC and calibration against their definitions. */
#include "test.h"

#include <math.h>

#include "train/classification_report.h"

static tu__classification_report report_of(int64_t samples, int64_t classes, const float *probabilities,
                                           const int32_t *labels) {
    int64_t confusion[9] = {0};
    for (int64_t i = 0; i < samples; i++) {
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            if (probabilities[i * classes + c] > probabilities[i * classes + best]) best = c;
        confusion[labels[i] * classes + best]++;
    }
    tu__classification_report report;
    assert_int_equal(tu__report_classification(samples, classes, confusion, probabilities, labels, &report),
                     TU_OK);
    return report;
}

/* Of 2 x 3 pairs, 3 are in order and 1 has equal scores. */
static void equal_scores_count_half(void **state) {
    (void)state;
    static const float p[] = {0.75f, 0.25f, 0.25f, 0.75f, 0.5f, 0.5f, 0.5f, 0.5f, 0.125f, 0.875f};
    static const int32_t labels[] = {0, 0, 0, 1, 1};
    assert_true(fabs(report_of(5, 2, p, labels).auc - (1 + 0 + 0.5 + 1 + 1 + 1) / 6) < 1e-12);
    static const int32_t same[] = {1, 1, 1, 1, 1};
    assert_true(isnan(report_of(5, 2, p, same).auc));
}

/* Class 0: 2 of 3 found, 1 wrong: F1 2/3. Class 1: 1 of 2 found, 1 wrong: F1 1/2. Class 2 has no samples and no
 * predictions. */
static void f1_is_the_mean_of_the_classes(void **state) {
    (void)state;
    static const float p[] = {0.8f, 0.2f, 0, 0.6f, 0.4f, 0, 0.3f, 0.7f, 0, 0.1f, 0.9f, 0, 0.9f, 0.1f, 0};
    static const int32_t labels[] = {0, 0, 0, 1, 1};
    assert_true(fabs(report_of(5, 3, p, labels).f1 - (2.0 / 3 + 1.0 / 2) / 2) < 1e-12);
}

/* A class that is predicted but has no samples has F1 0, which counts, as in scikit-learn. */
static void a_class_that_is_only_predicted_counts(void **state) {
    (void)state;
    static const float p[] = {0.8f, 0.2f, 0, 0.1f, 0.9f, 0, 0.1f, 0.2f, 0.7f};
    static const int32_t labels[] = {0, 1, 1};
    assert_true(fabs(report_of(3, 3, p, labels).f1 - (1 + 2.0 / 3 + 0) / 3) < 1e-12);
}

/* Confidence 0.7 and 0.9 in two intervals: one of two right, both right. */
static void calibration_is_the_difference_of_confidence_and_accuracy(void **state) {
    (void)state;
    static const float p[] = {0.7f, 0.3f, 0.3f, 0.7f, 0.9f, 0.1f, 0.1f, 0.9f};
    static const int32_t labels[] = {0, 0, 0, 1};
    assert_true(fabs(report_of(4, 2, p, labels).calibration_error - (0.4 + 0.2) / 4) < 1e-6);
}

/* A network whose outputs are not finite has no AUC; computing it must end. */
static void probabilities_that_are_nan_have_no_auc(void **state) {
    (void)state;
    static const float p[] = {NAN, NAN, 0.25f, 0.75f, NAN, NAN, 0.5f, 0.5f};
    static const int32_t labels[] = {0, 1, 1, 0};
    tu__classification_report report = report_of(4, 2, p, labels);
    assert_true(isnan(report.auc));
    assert_true(isnan(report.calibration_error));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_scores_count_half),
        cmocka_unit_test(f1_is_the_mean_of_the_classes),
        cmocka_unit_test(a_class_that_is_only_predicted_counts),
        cmocka_unit_test(calibration_is_the_difference_of_confidence_and_accuracy),
        cmocka_unit_test(probabilities_that_are_nan_have_no_auc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
