/* Writes TensorBoard's event files: records of protocol buffers.
 *
 *     record: u64 length | u32 checksum of the length | the event | u32 checksum of the event
 *
 * An event is { wall_time = 1, step = 2, and one of file_version = 3, graph_def = 4, summary = 5, session_log = 7 }.
 * Each record is one write. If a write fails or is incomplete, the record is truncated away, because TensorBoard
 * stops reading a file at the first record with a wrong checksum. */
#include "io/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/disk.h"
#include "base/open_file.h"
#include "io/crc32c.h"
#include "io/event_messages.h"
#include "io/protobuf.h"

struct tu__event_file {
    char path[PATH_MAX];
    int fd;
    off_t length; /* length of all complete records */
};

/* ---- Records ---- */

static void append_u32(tu__text *record, uint32_t value) {
    tu__text_append(record, (const char *)&value, sizeof value);
}

/* Masked as the format requires, so that the CRC of data that contains CRCs stays useful. */
static uint32_t masked_checksum(const void *bytes, size_t size) {
    uint32_t crc = tu__crc32c(bytes, size);
    return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

static tu_status fail_write(const tu__event_file *file) {
    return tu_fail(TU_IO, "cannot write '%s': %s", file->path, strerror(errno));
}

static tu_status write_all(tu__event_file *file, const tu__text *record) {
    size_t done = 0;
    while (done < record->length) {
        ssize_t written = tu__disk_in_use()->write(file->fd, record->data + done, record->length - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            tu_status status = fail_write(file);
            if (done > 0) tu__disk_in_use()->truncate(file->fd, file->length);
            return status;
        }
        done += (size_t)written;
    }
    file->length += (off_t)record->length;
    return TU_OK;
}

/* Writes a record and frees `event`. */
static tu_status write_record(tu__event_file *file, tu__text *event) {
    tu__text record = {0};
    uint64_t length = event->length;
    tu__text_append(&record, (const char *)&length, sizeof length);
    append_u32(&record, masked_checksum(&length, sizeof length));
    tu__text_append(&record, event->data, event->length);
    append_u32(&record, masked_checksum(event->data, event->length));
    tu_status status = event->failed || record.failed ? TU_NO_MEMORY : write_all(file, &record);
    tu__text_free(&record);
    tu__text_free(event);
    return status;
}

/* ---- Events ---- */

static double wall_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static tu__text begin_event(int64_t step) {
    tu__text event = {0};
    tu__pb_double(&event, 1, wall_time());
    tu__pb_integer(&event, 2, step);
    return event;
}

static tu_status write_version(tu__event_file *file) {
    tu__text event = begin_event(0);
    tu__pb_string(&event, 3, "brain.Event:2");
    return write_record(file, &event);
}

/* Writes a session start, which makes TensorBoard discard earlier records from `step` on. */
static tu_status write_session_start(tu__event_file *file, int64_t step) {
    enum { START = 1 };
    tu__text event = begin_event(step), log = {0};
    tu__pb_integer(&log, 1, START);
    tu__pb_append_message(&event, 7, &log);
    return write_record(file, &event);
}

/* Writes a summary of one value and frees `value`, a Summary.Value message. */
static tu_status write_summary(tu__event_file *file, int64_t step, tu__text *value) {
    tu__text event = begin_event(step), summary = {0};
    tu__pb_append_message(&summary, 1, value);
    tu__pb_append_message(&event, 5, &summary);
    return write_record(file, &event);
}

tu_status tu__event_scalar(tu__event_file *file, int64_t step, const char *tag, double value) {
    tu__text message = {0};
    tu__pb_string(&message, 1, tag);
    tu__pb_float(&message, 2, (float)value);
    return write_summary(file, step, &message);
}

tu_status tu__event_image(tu__event_file *file, int64_t step, const char *tag, int64_t height, int64_t width,
                          int64_t channels, const void *png, size_t size) {
    tu__text message = {0}, image = {0};
    tu__pb_integer(&image, 1, height);
    tu__pb_integer(&image, 2, width);
    tu__pb_integer(&image, 3, channels); /* 1: grey, 3: RGB */
    tu__pb_bytes(&image, 4, png, size);
    tu__pb_string(&message, 1, tag);
    tu__pb_append_message(&message, 4, &image);
    return write_summary(file, step, &message);
}

tu_status tu__event_histogram(tu__event_file *file, int64_t step, const char *tag, size_t count,
                              const float *numbers) {
    tu__text message = {0}, histogram = {0};
    tu__event_write_histogram(&histogram, count, numbers);
    tu__pb_string(&message, 1, tag);
    tu__pb_append_message(&message, 5, &histogram);
    return write_summary(file, step, &message);
}

tu_status tu__event_graph(tu__event_file *file, const tu_graph *graph) {
    tu__text event = begin_event(0), definition = {0};
    tu__event_write_graphdef(&definition, graph);
    tu__pb_append_message(&event, 4, &definition);
    return write_record(file, &event);
}

/* ---- Files ---- */

/* Creates the file. TensorBoard reads files in the order of their names: the time comes first, then what
 * distinguishes files of the same second. */
static tu_status create_file(tu__event_file *file, const char *folder) {
    static atomic_uint serial;
    char host[65] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !host[0]) strcpy(host, "localhost");
    for (int tries = 0; tries < 1000; tries++) {
        int length =
            snprintf(file->path, sizeof file->path, "%s/events.out.tfevents.%010lld.%s.%ld.%u", folder,
                     (long long)time(NULL), host, (long)getpid(), atomic_fetch_add(&serial, 1));
        if (length >= (int)sizeof file->path)
            return tu_fail(TU_INVALID, "the path of the run folder '%.60s...' is too long", folder);
        file->fd = tu__open_to_write(NULL, file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
        if (file->fd >= 0) return TU_OK;
        if (errno != EEXIST) break;
    }
    return fail_write(file);
}

tu_status tu__event_file_new(const char *folder, int64_t purge_step, tu__event_file **file) {
    *file = NULL;
    tu__event_file *created = tu__alloc(sizeof *created, "an event file");
    if (!created) return TU_NO_MEMORY;
    tu_status status = create_file(created, folder);
    if (status != TU_OK) {
        tu__free(created);
        return status;
    }
    status = write_version(created);
    if (status == TU_OK && purge_step >= 0) status = write_session_start(created, purge_step);
    if (status == TU_OK) {
        *file = created;
        return TU_OK;
    }
    tu__disk_in_use()->close(created->fd);
    tu__remove_file(NULL, created->path);
    tu__free(created);
    return status;
}

tu_status tu__event_file_flush(tu__event_file *file) {
    return tu__disk_in_use()->fsync(file->fd) == 0 ? TU_OK : fail_write(file);
}

tu_status tu__event_file_close(tu__event_file *file) {
    if (!file) return TU_OK;
    tu_status status = tu__disk_in_use()->close(file->fd) == 0 ? TU_OK : fail_write(file);
    tu__free(file);
    return status;
}
