/* What every unit test includes: cmocka, behind the headers it wants to see first.
 *
 * A test file holds statements about one file of src/, each a function named after what it states:
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

/* cmocka leaves a failed test by longjmp, which clang's analyzer does not know: to it every pointer that was just
 * asserted would still be NULL. */
#ifdef __clang_analyzer__
#include <stdlib.h>
#undef assert_true
#undef assert_non_null
#define assert_true(condition) ((condition) ? (void)0 : abort())
#define assert_non_null(pointer) ((pointer) ? (void)0 : abort())
#endif

#endif
