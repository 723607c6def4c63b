/* The table of choices, and the clock that fills it. See choices.h.
 *
 * In memory it is the file's text itself, lines "key<TAB>value": a few hundred at most, searched when a plan is made. A
 * later line wins. Before the file is written it is read again, so that processes that tune at the same time keep what
 * the others found; the loser of a race times again some other day. */
#include "device/cuda/runtime/choices.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/save.h"
#include "device/cuda/runtime/kept.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tu__text table;
static bool loaded;

/* ---- The file ---- */

static const char file_name[] = "choices";

/* Appends the file's whole lines; a last line without its end was cut off. */
static void read_table(tu__text *text) {
    char path[PATH_MAX], piece[4096];
    FILE *file = cuda_kept_path(file_name, path, sizeof path) ? fopen(path, "r") : NULL;
    if (!file) return;
    for (size_t size; (size = fread(piece, 1, sizeof piece, file)) > 0;) tu__text_append(text, piece, size);
    while (text->length && text->data[text->length - 1] != '\n') text->data[--text->length] = '\0';
    fclose(file);
}

static void load_once(void) {
    if (!loaded) read_table(&table);
    loaded = true;
}

/* ---- Lines ---- */

/* The value behind the last line that begins with the key; its length, or 0. */
static size_t find_line(const tu__text *text, const char *key, const char **value) {
    size_t wanted = strlen(key), length = 0;
    for (const char *line = tu__text_string(text), *end; (end = strchr(line, '\n')); line = end + 1) {
        if (strncmp(line, key, wanted) != 0 || line[wanted] != '\t') continue;
        *value = line + wanted + 1;
        length = (size_t)(end - *value);
    }
    return length;
}

bool cuda_choice_find(const char *key, char *value, size_t capacity) {
    const char *found = NULL;
    pthread_mutex_lock(&lock);
    load_once();
    size_t length = find_line(&table, key, &found);
    bool fits = length > 0 && length < capacity;
    if (fits) {
        memcpy(value, found, length);
        value[length] = '\0';
    }
    pthread_mutex_unlock(&lock);
    return fits;
}

/* What others added meanwhile stays, unless it is about this key. */
static void write_table(const char *key, const char *value) {
    char path[PATH_MAX];
    tu__text merged = {0};
    if (!cuda_kept_path(file_name, path, sizeof path)) return;
    read_table(&merged);
    tu__text_printf(&merged, "%s\t%s\n", key, value);
    cuda_kept_make_folders(path);
    if (!merged.failed) tu_file_save(path, merged.data, merged.length);
    tu__text_free(&merged);
}

void cuda_choice_keep(const char *key, const char *value) {
    pthread_mutex_lock(&lock);
    load_once();
    tu__text_printf(&table, "%s\t%s\n", key, value);
    write_table(key, value);
    pthread_mutex_unlock(&lock);
}

tu_status cuda_choice_key(const cuda_device *device, cuda_library library, tu__text *key) {
    char model[128] = "";
    CUDA_TRY(cuDeviceGetName, model, sizeof model, device->handle);
    tu__text_printf(key, " on %s with %s", model, cuda_library_version(library));
    return key->failed ? TU_NO_MEMORY : TU_OK;
}

/* ---- The clock ---- */

enum { ROUNDS = 5, CALLS = 8 /* of a round */ };

static tu_status time_round(cuda_device *device, CUevent events[2], tu_status (*enqueue)(void *context),
                            void *context, float *milliseconds) {
    CUDA_TRY(cuEventRecord, events[0], device->stream);
    for (int i = 0; i < CALLS; i++) TU_TRY(enqueue(context));
    CUDA_TRY(cuEventRecord, events[1], device->stream);
    CUDA_TRY(cuEventSynchronize, events[1]);
    CUDA_TRY(cuEventElapsedTime, milliseconds, events[0], events[1]);
    return TU_OK;
}

static tu_status time_rounds(cuda_device *device, CUevent events[2], tu_status (*enqueue)(void *context),
                             void *context, double *seconds) {
    for (int round = 0; round < ROUNDS; round++) {
        float milliseconds = 0;
        TU_TRY(time_round(device, events, enqueue, context, &milliseconds));
        double each = (double)milliseconds / 1e3 / CALLS;
        if (round == 0 || each < *seconds) *seconds = each;
    }
    return TU_OK;
}

tu_status cuda_choice_time(cuda_device *device, tu_status (*enqueue)(void *context), void *context,
                           double *seconds) {
    CUevent events[2] = {NULL, NULL};
    tu_status status = TU_OK;
    for (int i = 0; i < 2 && status == TU_OK; i++)
        status = CUDA_CALL(cuEventCreate, &events[i], CU_EVENT_DEFAULT);
    if (status == TU_OK) status = time_rounds(device, events, enqueue, context, seconds);
    for (int i = 0; i < 2; i++)
        if (events[i]) cuda.cuEventDestroy(events[i]);
    return status;
}
