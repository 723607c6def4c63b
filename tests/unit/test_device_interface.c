/* The device interface stays small: at most 12 mandatory functions, at most 24 in all. Whoever adds one finds out here
 * what it costs, and updates decision 41. */
#include "test.h"

#include <stddef.h>

#include <tutti/device.h>

typedef void function(void);

static size_t functions_between(size_t begin, size_t end) {
    return (end - begin) / sizeof(function *);
}

static void the_interface_has_few_functions(void **unused) {
    (void)unused;
    size_t begin = offsetof(tu_device_api, describe), optional = offsetof(tu_device_api, supports),
           end = sizeof(tu_device_api);
    assert_int_equal(functions_between(begin, optional), 11);
    assert_true(functions_between(begin, optional) <= 12);
    assert_int_equal(functions_between(begin, end), 24);
    assert_true(functions_between(begin, end) <= 24);
    assert_int_equal((end - begin) % sizeof(function *), 0); /* nothing but functions */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_interface_has_few_functions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
