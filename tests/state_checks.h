/* Asserts that two states are identical. */
#ifndef TUTTI_STATE_CHECKS_H
#define TUTTI_STATE_CHECKS_H

#include <string.h>

#include <tutti/run.h>

#include "test.h"

/* Asserts that both states have bit-identical variables and the same index of the next sample. */
static inline void assert_same_state(const tu_state *a, const tu_state *b) {
    assert_int_equal(tu_state_variable_count(a), tu_state_variable_count(b));
    assert_int_equal(tu_state_sample(a), tu_state_sample(b));
    for (size_t i = 0; i < tu_state_variable_count(a); i++) {
        const char *name;
        tu_type type;
        assert_int_equal(tu_state_variable(a, i, &name, &type), TU_OK);
        size_t bytes = tu_type_bytes(type);
        char *left = test_malloc(bytes), *right = test_malloc(bytes);
        assert_int_equal(tu_state_get(a, name, left, bytes), TU_OK);
        assert_int_equal(tu_state_get(b, name, right, bytes), TU_OK);
        if (memcmp(left, right, bytes) != 0) fail_msg("'%s' differs", name);
        test_free(left);
        test_free(right);
    }
}

#endif
