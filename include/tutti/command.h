/* Helpers for command-line programs such as `tutti`: a JSON writer, suggestions for misspelt names, atomic file
 * writes, and the values of options. */
#ifndef TUTTI_COMMAND_H
#define TUTTI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- JSON ----------------------------------------------------------------------------------------------------
 *
 * A streaming writer. Each call writes its bytes immediately. Every value has a key; the key is NULL for elements of
 * an array and for the outermost value.
 *
 *     tu_json json = tu_json_to_file(stdout);
 *     tu_json_begin_object(&json, NULL);
 *     tu_json_string(&json, "device", "cpu:0");
 *     tu_json_begin_array(&json, "shape");
 *     tu_json_i64(&json, NULL, 128);
 *     tu_json_end_array(&json);
 *     tu_json_end_object(&json);
 *     if (!tu_json_finish(&json)) return 1; // {"device":"cpu:0","shape":[128]}
 *
 * Calls need not be checked: the writer records a failed write, and tu_json_finish reports it. The output is always
 * valid JSON in UTF-8.
 */
/* Every field is private. Frozen: it gets no more fields. */
typedef struct tu_json {
    bool (*write)(void *sink, const char *bytes, size_t length);
    void *sink;
    uint64_t objects; /* bit d is set if the container at depth d is an object */
    int depth;
    bool comma;  /* a comma precedes the next value or key */
    bool failed; /* a write failed, containers were nested too deep, or calls were not balanced */
} tu_json;
#define TU_JSON_MAX_DEPTH 64

TU_API tu_json tu_json_to_file(FILE *file);

TU_API void tu_json_begin_object(tu_json *json, const char *key);
TU_API void tu_json_end_object(tu_json *json);
TU_API void tu_json_begin_array(tu_json *json, const char *key);
TU_API void tu_json_end_array(tu_json *json);

/* Replaces every maximal ill-formed sequence of bytes by U+FFFD. Writes null for a NULL string. */
TU_API void tu_json_string(tu_json *json, const char *key, const char *string);
TU_API void tu_json_i64(tu_json *json, const char *key, int64_t value);
TU_API void tu_json_u64(tu_json *json, const char *key, uint64_t value);
/* Writes the fewest digits that read back as the same double, but at least those of "%.15g"; null for NaN and
 * infinities. */
TU_API void tu_json_f64(tu_json *json, const char *key, double value);
TU_API void tu_json_bool(tu_json *json, const char *key, bool value);
TU_API void tu_json_null(tu_json *json, const char *key);

/* Returns true if every container was closed and every byte was written. */
TU_API bool tu_json_finish(const tu_json *json);

/* ---- Names and files ---------------------------------------------------------------------------------------- */

/* Returns the name with the smallest edit distance to `word` (the first of several), for "did you mean …?"; NULL if
 * none is close enough to be a typing error. */
TU_API const char *tu_nearest_name(const char *word, const char *const *names, size_t count);

/* Writes a file atomically: a reader, or the next start after a power failure, finds either the old file or the
 * complete new one. On failure (TU_IO) the old file is unchanged and the message contains the path and the system's
 * error. If `path` is a symbolic link, the file it points to is replaced. Files that are not regular (/dev/stdout, a
 * pipe) are written in place. */
TU_API tu_status tu_file_save(const char *path, const void *bytes, size_t size);
/* Reads a file of at most `max_bytes` bytes; a NUL that does not count follows them. A pipe (process substitution of a
 * shell) is read to its end, and is empty if nobody writes to it. Devices such as /dev/zero are refused: they have no end.
 * Free `*bytes` with tu_bytes_free. */
TU_API tu_status tu_file_read(const char *path, size_t max_bytes, void **bytes, size_t *size);

/* ---- Values of options -------------------------------------------------------------------------------------- */

/* The values of tu_compile_options.precision and .strategy:
 *
 *     static const char *const precisions[] = {TU_PRECISIONS, NULL};
 */
#define TU_PRECISIONS "f32", "tf32", "bf16", "f16"
#define TU_STRATEGIES "single", "central", "mirrored"

/* Returns the strategy that `tutti` uses by default: "mirrored" if `invariant` is true, or if the list of devices
 * (NULL: "all") has several devices, all of one kind, and operations are not placed in another way (`placed` is
 * false); else "single". */
TU_API const char *tu_default_strategy(const char *devices, bool placed, bool invariant);

#ifdef __cplusplus
}
#endif
#endif
