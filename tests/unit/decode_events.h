/* Reads TensorBoard's event files. Implemented independently of the writer, from the format's documentation.
 *
 *     event_reader reader = event_open(path);          // fails the test if the file cannot be read
 *     decoded_event event;
 *     while (event_next(&reader, &event)) …            // pointers into the file's bytes, valid until event_close
 *     assert_null(reader.problem);                     // the error that stopped it before the end
 *     event_close(&reader); */
#ifndef TUTTI_DECODE_EVENTS_H
#define TUTTI_DECODE_EVENTS_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

/* ---- Protocol buffers ---- */

typedef struct pb_span {
    const uint8_t *at, *end;
} pb_span;

typedef struct pb_field {
    unsigned number, wire_type;
    uint64_t integer; /* wire types 0, 1, 5: the value or its bits */
    pb_span bytes;    /* wire type 2 */
} pb_field;

static inline bool pb_varint(pb_span *span, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (span->at == span->end) return false;
        uint8_t byte = *span->at++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

static inline bool pb_fixed(pb_span *span, unsigned size, uint64_t *value) {
    *value = 0;
    if ((size_t)(span->end - span->at) < size) return false;
    for (unsigned i = 0; i < size; i++) *value |= (uint64_t)*span->at++ << (8 * i);
    return true;
}

/* Reads the next field of a message. Returns false at its end; fails the test if the field is invalid. */
static inline bool pb_next(pb_span *span, pb_field *field) {
    if (span->at == span->end) return false;
    uint64_t key, size = 0;
    bool valid = pb_varint(span, &key);
    *field = (pb_field){.number = (unsigned)(key >> 3), .wire_type = key & 7};
    if (valid && field->wire_type == 0) valid = pb_varint(span, &field->integer);
    if (valid && field->wire_type == 1) valid = pb_fixed(span, 8, &field->integer);
    if (valid && field->wire_type == 5) valid = pb_fixed(span, 4, &field->integer);
    if (valid && field->wire_type == 2) {
        valid = pb_varint(span, &size) && size <= (uint64_t)(span->end - span->at);
        if (valid) {
            field->bytes = (pb_span){span->at, span->at + size};
            span->at += size;
        }
    }
    assert_true(valid && (field->wire_type < 3 || field->wire_type == 5));
    return true;
}

static inline double pb_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float pb_float(uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
}

static inline bool pb_equals(pb_span span, const char *text) {
    return (size_t)(span.end - span.at) == strlen(text) && memcmp(span.at, text, strlen(text)) == 0;
}

/* ---- Events ---- */

typedef enum event_kind {
    EVENT_VERSION,
    EVENT_GRAPH,
    EVENT_SCALAR,
    EVENT_IMAGE,
    EVENT_HISTOGRAM,
    EVENT_START
} event_kind;

enum { EVENT_MAX_BUCKETS = 2048 };

typedef struct decoded_event {
    event_kind kind;
    double wall_time;
    int64_t step;
    pb_span text;  /* of version and graph events */
    char tag[256]; /* of scalar, image and histogram events */
    float scalar;
    int64_t height, width, colours;
    pb_span png;
    double least, most, number, sum, squares;
    size_t bucket_count;
    double limits[EVENT_MAX_BUCKETS], counts[EVENT_MAX_BUCKETS];
} decoded_event;

static inline size_t event_doubles(pb_span packed, double *values) {
    size_t count = 0;
    for (uint64_t bits; pb_fixed(&packed, 8, &bits);) {
        assert_true(count < EVENT_MAX_BUCKETS);
        values[count++] = pb_double(bits);
    }
    assert_true(packed.at == packed.end);
    return count;
}

static inline void event_histogram(pb_span message, decoded_event *event) {
    double *fields[] = {&event->least, &event->most, &event->number, &event->sum, &event->squares};
    size_t limits = 0, counts = 0;
    event->kind = EVENT_HISTOGRAM;
    for (pb_field f = {0}; pb_next(&message, &f);) {
        assert_in_range(f.number, 1, 7);
        assert_int_equal(f.wire_type, f.number < 6 ? 1 : 2);
        if (f.number < 6) *fields[f.number - 1] = pb_double(f.integer);
        if (f.number == 6) limits = event_doubles(f.bytes, event->limits);
        if (f.number == 7) counts = event_doubles(f.bytes, event->counts);
    }
    assert_int_equal(limits, counts);
    event->bucket_count = limits;
}

static inline void event_image(pb_span message, decoded_event *event) {
    int64_t *fields[] = {&event->height, &event->width, &event->colours};
    event->kind = EVENT_IMAGE;
    for (pb_field f = {0}; pb_next(&message, &f);) {
        assert_in_range(f.number, 1, 4);
        assert_int_equal(f.wire_type, f.number < 4 ? 0 : 2);
        if (f.number < 4) *fields[f.number - 1] = (int64_t)f.integer;
        if (f.number == 4) event->png = f.bytes;
    }
}

static inline void event_value(pb_span message, decoded_event *event) {
    for (pb_field f = {0}; pb_next(&message, &f);) {
        if (f.number == 1) {
            assert_true(f.wire_type == 2 && (size_t)(f.bytes.end - f.bytes.at) < sizeof event->tag);
            memcpy(event->tag, f.bytes.at, (size_t)(f.bytes.end - f.bytes.at));
        } else if (f.number == 2) {
            assert_int_equal(f.wire_type, 5);
            event->kind = EVENT_SCALAR;
            event->scalar = pb_float(f.integer);
        } else {
            assert_int_equal(f.wire_type, 2);
            assert_true(f.number == 4 || f.number == 5);
            (f.number == 4 ? event_image : event_histogram)(f.bytes, event);
        }
    }
}

static inline void event_session(pb_span message, decoded_event *event) {
    pb_field f = {0};
    assert_true(pb_next(&message, &f) && f.number == 1 && f.wire_type == 0 && f.integer == 1);
    event->kind = EVENT_START;
}

static inline void event_summary(pb_span message, decoded_event *event) {
    pb_field f = {0};
    assert_true(pb_next(&message, &f) && f.number == 1 && f.wire_type == 2);
    event_value(f.bytes, event);
    assert_true(message.at == message.end);
}

static inline void event_decode(pb_span message, decoded_event *event) {
    memset(event, 0, sizeof *event);
    for (pb_field f = {0}; pb_next(&message, &f);) switch (f.number) {
        case 1: event->wall_time = pb_double(f.integer); break;
        case 2: event->step = (int64_t)f.integer; break;
        case 3:
        case 4:
            event->kind = f.number == 3 ? EVENT_VERSION : EVENT_GRAPH;
            event->text = f.bytes;
            break;
        case 5: event_summary(f.bytes, event); break;
        case 7: event_session(f.bytes, event); break;
        default: fail_msg("an event has field %u", f.number);
        }
}

/* ---- Files ---- */

typedef struct event_reader {
    uint8_t *bytes;
    pb_span left;
    const char *problem;
} event_reader;

/* CRC-32C computed bit by bit, and masked. */
static inline uint32_t event_checksum(const uint8_t *bytes, size_t size) {
    uint32_t crc = 0xFFFFFFFFU;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >> 1) ^ 0x82F63B78U : crc >> 1;
    }
    crc = ~crc;
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

static inline event_reader event_open(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot read %s", path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    event_reader reader = {.bytes = malloc((size_t)size + 1)};
    assert_true(reader.bytes && fread(reader.bytes, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    reader.left = (pb_span){reader.bytes, reader.bytes + size};
    return reader;
}

static inline void event_close(event_reader *reader) {
    free(reader->bytes);
}

static inline bool event_next(event_reader *reader, decoded_event *event) {
    pb_span *left = &reader->left;
    const uint8_t *begin = left->at;
    uint64_t length, check;
    if (left->at == left->end) return false;
    if (!pb_fixed(left, 8, &length) || !pb_fixed(left, 4, &check)) {
        reader->problem = "the file ends within the head of a record";
    } else if (check != event_checksum(begin, 8)) {
        reader->problem = "the checksum of a length is wrong";
    } else if (length > (uint64_t)(left->end - left->at) || (uint64_t)(left->end - left->at) - length < 4) {
        reader->problem = "the file ends within a record";
    } else {
        pb_span message = {left->at, left->at + length};
        left->at += length;
        pb_fixed(left, 4, &check);
        if (check == event_checksum(message.at, length)) {
            event_decode(message, event);
            return true;
        }
        reader->problem = "the checksum of an event is wrong";
    }
    left->at = left->end;
    return false;
}

/* Finds the last event file of a folder by name, which is TensorBoard's reading order. Returns the number of event
 * files. */
static inline int event_find(const char *folder, char path[512]) {
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    path[0] = '\0';
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) != 0) continue;
        char one[512];
        snprintf(one, sizeof one, "%s/%s", folder, entry->d_name);
        if (strcmp(one, path) > 0) memcpy(path, one, sizeof one);
        count++;
    }
    closedir(dir);
    return count;
}

#endif
