/* Makes each call of the emulated GPU fail in turn, and checks that the error names the call and nothing leaks.
 *
 *     static tu_status train(const void *context, unsigned trial) { … }
 *
 *     fail_calls(&(failing_calls){.work = train, .stride = 1, .max_ineffective = 100, .min_failures = 300});
 */
#ifndef TESTS_CUDA_FAILING_CALLS_H
#define TESTS_CUDA_FAILING_CALLS_H

#include <tutti/status.h>

#include "base/alloc.h"
#include "cuda/emulated.h"
#include "test.h"

typedef struct failing_calls {
    /* The work to test, from opening the device to freeing everything. Trial 0, first and last, runs without
     * failures; the others are numbered from 1. */
    tu_status (*work)(const void *context, unsigned trial);
    const void *context;
    unsigned stride; /* only every stride-th call is made to fail */
    /* Stops after this many calls in a row whose failure has no effect: no later call exists then. Queries
     * and pinning may fail without effect before. */
    unsigned max_ineffective;
    unsigned min_failures; /* the work must fail more often than this */
} failing_calls;

/* "cudnnCreate" is a function, "cudnn 3" is not. */
static inline bool has_function(const char *message, const char *beginning) {
    size_t length = strlen(beginning);
    for (const char *match = message; (match = strstr(match, beginning)); match += length)
        if (match[length] >= 'A' && match[length] <= 'Z') return true;
    return false;
}

static inline bool names_a_function(const char *message) {
    static const char *const beginnings[] = {"cu", "nvrtc", "cublasLt", "cudnn", "cusolverDn"};
    bool found = false;
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        found = found || has_function(message, beginnings[i]);
    return found;
}

static inline tu_status work_with_failing_call(const failing_calls *f, unsigned nth, unsigned trial) {
    char number[16];
    snprintf(number, sizeof number, "%u", nth);
    setenv("FAKE_CUDA_FAIL", number, 1);
    tu_status status = f->work(f->context, trial);
    unsetenv("FAKE_CUDA_FAIL");
    return status;
}

static inline void fail_calls(const failing_calls *f) {
    char text[256];
    unsigned failures = 0, trial = 0;
    assert_int_equal(f->work(f->context, 0), TU_OK); /* libraries allocate what they keep here */
    int64_t blocks = tu__alloc_live();
    size_t objects = emulated_live(text, sizeof text);
    for (unsigned nth = 1, ineffective = 0; ineffective < f->max_ineffective; nth += f->stride) {
        tu_status status = work_with_failing_call(f, nth, ++trial);
        ineffective = status == TU_OK ? ineffective + 1 : 0;
        failures += status != TU_OK;
        if (status != TU_OK && !names_a_function(tu_message()))
            fail_msg("call %u failed, and the message does not name it: '%s'", nth, tu_message());
        if (tu__alloc_live() != blocks)
            fail_msg("call %u failed ('%s'): %ld blocks of memory leaked", nth, tu_message(),
                     (long)(tu__alloc_live() - blocks));
        if (emulated_live(text, sizeof text) != objects)
            fail_msg("call %u failed ('%s'): not freed: %s", nth, tu_message(), text);
    }
    assert_int_equal(f->work(f->context, 0), TU_OK);
    assert_true(failures > f->min_failures);
    print_message("%u calls failed, each once\n", failures);
}

#endif
