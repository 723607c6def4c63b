/* Included by every unit test: cmocka, after the headers it requires.
 *
 * A test file tests one file of src/. Each test is a function named after the behaviour that it checks:
 *
 *     static void digest_of_nothing_is_known(void **state) { … }
 *
 *     int main(void) {
 *         const struct CMUnitTest tests[] = {cmocka_unit_test(digest_of_nothing_is_known)};
 *         return cmocka_run_group_tests(tests, NULL, NULL);
 *     }
 */
#ifndef TUTTI_TEST_H
#define TUTTI_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* cmocka ends a failed test with longjmp. clang's analyzer does not model that, and would assume that an asserted
 * pointer may still be NULL. */
#ifdef __clang_analyzer__
#include <stdlib.h>
#undef assert_true
#undef assert_non_null
#define assert_true(condition) ((condition) ? (void)0 : abort())
#define assert_non_null(pointer) ((pointer) ? (void)0 : abort())
#endif

#endif
