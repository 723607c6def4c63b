/* Passes arbitrary bytes on as the output of mpirun and the processes of a run. What is recorded must not depend on how
 * the bytes are divided among reads. The first byte is the size of the reads. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/launch_output.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take(const uint8_t *data, size_t size, size_t piece, struct launch_messages *messages) {
    struct launch_output output = {0};
    for (size_t at = 0; at < size; at += piece)
        launch_output_take(&output, (const char *)data + at, piece < size - at ? piece : size - at);
    launch_output_end(&output);
    *messages = output.messages;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static FILE *errors;
    static struct launch_messages whole, pieces;
    if (size < 2) return 0;
    if (!errors) errors = fopen("/dev/null", "w");
    if (!errors) abort();
    FILE *standard_error = stderr;
    stderr = errors;
    take(data + 1, size - 1, size, &whole);
    take(data + 1, size - 1, data[0] ? data[0] : 1, &pieces);
    stderr = standard_error;
    if (whole.joined != pieces.joined || whole.trains != pieces.trains || whole.lost != pieces.lost ||
        whole.status != pieces.status || strcmp(whole.folder, pieces.folder) != 0)
        abort();
    return 0;
}
