/* Stores tuning results and measures candidates. See tuning_cache.h.
 *
 * The table is kept in memory as the text of its file: lines "key<TAB>value", a few hundred at most, searched when a
 * plan is created. If a key occurs twice, the last line wins. The file is read again before it is written, so that
 * processes that tune at the same time keep each other's results. If two of them write at once, one result is lost
 * and measured again in a later run.
 */
#include "device/cuda/runtime/tuning_cache.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/save.h"
#include "device/cuda/runtime/cache_folder.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tu__text table;
static bool loaded;

/* ---- The file ---- */

static const char file_name[] = "choices";

/* Reads the complete lines of the file. A last line without a line feed was truncated and is dropped. */
static void read_table(tu__text *text) {
    if (!cuda_cache_read(file_name, text)) return;
    while (text->length && text->data[text->length - 1] != '\n') text->data[--text->length] = '\0';
}

static void load_once(void) {
    if (!loaded) read_table(&table);
    loaded = true;
}

/* ---- Lines ---- */

/* Finds the value in the last line with this key. Returns its length, or 0 if there is none. */
static size_t find_line(const tu__text *text, const char *key, const char **value) {
    size_t key_length = strlen(key), length = 0;
    for (const char *line = tu__text_string(text), *end; (end = strchr(line, '\n')); line = end + 1) {
        if (strncmp(line, key, key_length) != 0 || line[key_length] != '\t') continue;
        *value = line + key_length + 1;
        length = (size_t)(end - *value);
    }
    return length;
}

bool cuda_tuning_find(const char *key, char *value, size_t capacity) {
    const char *text_value = NULL;
    pthread_mutex_lock(&lock);
    load_once();
    size_t length = find_line(&table, key, &text_value);
    bool fits = length > 0 && length < capacity;
    if (fits) {
        memcpy(value, text_value, length);
        value[length] = '\0';
    }
    pthread_mutex_unlock(&lock);
    return fits;
}

/* Appends a line to the file. Keeps the lines that other processes have added. */
static void write_table(const char *key, const char *value) {
    char path[PATH_MAX];
    tu__text merged = {0};
    if (!cuda_cache_path(file_name, path, sizeof path)) return;
    read_table(&merged);
    tu__text_printf(&merged, "%s\t%s\n", key, value);
    cuda_create_parent_folders(path);
    if (!merged.failed) tu_file_save(path, merged.data, merged.length);
    tu__text_free(&merged);
}

void cuda_tuning_store(const char *key, const char *value) {
    pthread_mutex_lock(&lock);
    load_once();
    tu__text_printf(&table, "%s\t%s\n", key, value);
    write_table(key, value);
    pthread_mutex_unlock(&lock);
}

tu_status cuda_tuning_key(const cuda_device *device, cuda_library library, tu__text *key) {
    char model[128] = "";
    CUDA_TRY(cuDeviceGetName, model, sizeof model, device->handle);
    tu__text_printf(key, " on %s with %s", model, cuda_library_version(library));
    return key->failed ? TU_NO_MEMORY : TU_OK;
}

/* ---- Measuring ---- */

enum { ROUNDS = 5, CALLS = 8 /* per round */ };

static tu_status time_round(cuda_device *device, CUevent events[2], tu_status (*enqueue)(void *context),
                            void *context, float *milliseconds) {
    CUDA_TRY(cuEventRecord, events[0], device->own_queue.stream);
    for (int i = 0; i < CALLS; i++) TU_TRY(enqueue(context));
    CUDA_TRY(cuEventRecord, events[1], device->own_queue.stream);
    CUDA_TRY(cuEventSynchronize, events[1]);
    CUDA_TRY(cuEventElapsedTime, milliseconds, events[0], events[1]);
    return TU_OK;
}

static tu_status time_rounds(cuda_device *device, CUevent events[2], tu_status (*enqueue)(void *context),
                             void *context, double *seconds) {
    for (int round = 0; round < ROUNDS; round++) {
        float milliseconds = 0;
        TU_TRY(time_round(device, events, enqueue, context, &milliseconds));
        double seconds_per_call = (double)milliseconds / 1e3 / CALLS;
        if (round == 0 || seconds_per_call < *seconds) *seconds = seconds_per_call;
    }
    return TU_OK;
}

tu_status cuda_tuning_measure(cuda_device *device, tu_status (*enqueue)(void *context), void *context,
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
