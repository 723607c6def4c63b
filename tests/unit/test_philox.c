/* Philox4x32-10 gives the published numbers (the known-answer vectors of the Random123 distribution). */
#include "test.h"

#include "base/philox.h"

static void assert_philox(const uint32_t counter[4], const uint32_t key[2], const uint32_t expected[4]) {
    uint32_t out[4];
    tu__philox4x32(counter, key, out);
    for (int i = 0; i < 4; i++) assert_int_equal(out[i], expected[i]);
}

static void zero_counter_and_key_give_the_published_words(void **state) {
    (void)state;
    assert_philox((const uint32_t[4]){0}, (const uint32_t[2]){0},
                  (const uint32_t[4]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
}

static void counter_and_key_of_all_ones(void **state) {
    (void)state;
    assert_philox((const uint32_t[4]){UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
                  (const uint32_t[2]){UINT32_MAX, UINT32_MAX},
                  (const uint32_t[4]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

static void counter_and_key_from_digits_of_pi(void **state) {
    (void)state;
    assert_philox((const uint32_t[4]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                  (const uint32_t[2]){0xa4093822, 0x299f31d0},
                  (const uint32_t[4]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

static void output_may_overwrite_the_counter(void **state) {
    (void)state;
    uint32_t block[4] = {0};
    tu__philox4x32(block, (const uint32_t[2]){0}, block);
    assert_int_equal(block[0], 0x6627e8d5);
    assert_int_equal(block[3], 0x9b00dbd8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_counter_and_key_give_the_published_words),
        cmocka_unit_test(counter_and_key_of_all_ones),
        cmocka_unit_test(counter_and_key_from_digits_of_pi),
        cmocka_unit_test(output_may_overwrite_the_counter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
