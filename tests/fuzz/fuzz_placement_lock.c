/* Compares a program with arbitrary bytes as its placement lock file. That must fail, or say that nothing differs. */
#include <stdint.h>

#include <tutti/tutti.h>

#include "fuzz/input_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (condition) return;
    fprintf(stderr, "%s\n", tu_message());
    abort();
}

static const tu_program *program(void) {
    static tu_program *compiled;
    if (compiled) return compiled;
    tu_graph *graph;
    require(tu_graph_new(&graph) == TU_OK);
    tu_value x = tu_input(graph, "x", TU_F32, TU_SHAPE(2, 3)), sum = tu_sum(tu_mul(x, x));
    require(tu_compile(graph, &compiled, .fetch = &sum, .fetch_count = 1, .devices = "cpu") == TU_OK);
    tu_graph_free(graph);
    return compiled;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *differences;
    struct input_path lock = write_input("lock", data, size);
    tu_status status = tu_program_check_placement(program(), lock.text, false, &differences);
    require(status == TU_OK || status == TU_CORRUPT || status == TU_UNSUPPORTED || status == TU_INVALID);
    require(!differences || status == TU_INVALID);
    tu_bytes_free(differences);
    return 0;
}
