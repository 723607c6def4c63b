/* Encodes and decodes the messages of monitors: see monitor_message.h. */
#include "comm/monitor_message.h"

#include <string.h>

static const uint8_t magic[4] = {'T', 'U', 'M', 'O'};

enum { ENTERED = 1, ENDED = 2, BEGUN = 4 }; /* flags of a report */

/* The parts of each type's payload, in this order. */
typedef struct layout {
    bool rank, size, proof, report, table, kind, cause;
    size_t text; /* maximum bytes of the text; 0: the type has none */
} layout;

static const layout layouts[TU__MONITOR_TYPE_END] = {
    [TU__MONITOR_HELLO] = {.rank = true, .size = true, .proof = true},
    [TU__MONITOR_WELCOME] = {.rank = true, .size = true, .proof = true},
    [TU__MONITOR_HEARTBEAT] = {.report = true, .text = TU__MONITOR_OPERATION_BYTES - 1},
    [TU__MONITOR_TIMED_OUT] = {.report = true, .text = TU__MONITOR_OPERATION_BYTES - 1},
    [TU__MONITOR_TABLE] = {.size = true, .table = true, .text = TU__MONITOR_OPERATION_BYTES - 1},
    [TU__MONITOR_FAIL] = {.cause = true, .text = TU__MONITOR_LINE_BYTES - 1},
    [TU__MONITOR_VERDICT] = {.rank = true, .kind = true, .cause = true, .text = TU__MONITOR_LINE_BYTES - 1},
};

static uint8_t *put(uint8_t *out, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
    return out + bytes;
}

static uint64_t get(const uint8_t *in, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)in[i] << (8 * i);
    return value;
}

static bool is_control(uint8_t byte) {
    return byte < 0x20 || byte == 0x7f;
}

void tu__monitor_put_report(uint8_t *out, const tu__monitor_report *report) {
    out = put(out, (uint64_t)report->step, 8);
    out = put(out, report->collective, 8);
    out = put(out, report->waited_ms, 4);
    out = put(out, report->silent_ms, 4);
    out = put(out, report->state, 1);
    put(out, (report->entered ? ENTERED : 0) | (report->ended ? ENDED : 0) | (report->begun ? BEGUN : 0), 1);
}

bool tu__monitor_get_report(const uint8_t *bytes, tu__monitor_report *report) {
    report->step = (int64_t)get(bytes, 8);
    report->collective = get(bytes + 8, 8);
    report->waited_ms = (uint32_t)get(bytes + 16, 4);
    report->silent_ms = (uint32_t)get(bytes + 20, 4);
    report->state = bytes[24];
    report->entered = (bytes[25] & ENTERED) != 0;
    report->ended = (bytes[25] & ENDED) != 0;
    report->begun = (bytes[25] & BEGUN) != 0;
    return bytes[24] < TU__MONITOR_STATE_END && bytes[25] <= (ENTERED | ENDED | BEGUN);
}

void tu__monitor_set_text(tu__monitor_message *message, const char *text) {
    message->text = text;
    message->text_bytes = strnlen(text, layouts[message->type].text);
}

void tu__monitor_copy_text(const tu__monitor_message *message, char *out, size_t bytes) {
    size_t count = message->text_bytes < bytes - 1 ? message->text_bytes : bytes - 1;
    if (count > 0) memcpy(out, message->text, count);
    out[count] = '\0';
}

/* Returns the bytes of a payload, except those of the text itself. */
static size_t fixed_bytes(const layout *l, uint32_t size) {
    return (l->rank ? 4 : 0) + (l->size ? 4 : 0) + (l->proof ? TU__MONITOR_PROOF_BYTES : 0) +
           (l->report ? TU__MONITOR_REPORT_BYTES : 0) +
           (l->table ? (size_t)size * TU__MONITOR_REPORT_BYTES : 0) + (l->kind ? 1 : 0) + (l->cause ? 1 : 0) +
           (l->text ? 2 : 0);
}

size_t tu__monitor_max_bytes(uint32_t size) {
    size_t most = 0;
    for (int type = 1; type < TU__MONITOR_TYPE_END; type++) {
        size_t bytes = fixed_bytes(&layouts[type], size) + layouts[type].text;
        if (bytes > most) most = bytes;
    }
    return TU__MONITOR_HEADER_BYTES + most;
}

static uint8_t *put_bytes(uint8_t *out, const void *bytes, size_t count) {
    if (count > 0) memcpy(out, bytes, count);
    return out + count;
}

size_t tu__monitor_encode(const tu__monitor_message *message, uint8_t *out, size_t capacity) {
    const layout *l = &layouts[message->type];
    size_t payload = fixed_bytes(l, message->size) + (l->text ? message->text_bytes : 0);
    if (TU__MONITOR_HEADER_BYTES + payload > capacity) return 0;
    uint8_t *at = put_bytes(out, magic, sizeof magic);
    at = put(at, TU__MONITOR_VERSION, 1);
    at = put(at, message->type, 1);
    at = put(at, 0, 2);
    at = put(at, payload, 4);
    if (l->rank) at = put(at, message->rank, 4);
    if (l->size) at = put(at, message->size, 4);
    if (l->proof) at = put_bytes(at, message->proof, TU__MONITOR_PROOF_BYTES);
    if (l->report) {
        tu__monitor_put_report(at, &message->report);
        at += TU__MONITOR_REPORT_BYTES;
    }
    if (l->table) at = put_bytes(at, message->reports, (size_t)message->size * TU__MONITOR_REPORT_BYTES);
    if (l->kind) at = put(at, message->kind, 1);
    if (l->cause) at = put(at, message->cause, 1);
    if (l->text) {
        at = put(at, message->text_bytes, 2);
        for (size_t i = 0; i < message->text_bytes; i++) {
            uint8_t byte = (uint8_t)message->text[i];
            *at++ = is_control(byte) ? '?' : byte;
        }
    }
    return (size_t)(at - out);
}

/* Decodes the text, which must fill the rest of the payload. */
static bool decode_text(const uint8_t *at, const uint8_t *end, size_t most, tu__monitor_message *message) {
    message->text_bytes = get(at, 2);
    at += 2;
    if (message->text_bytes > most || message->text_bytes != (size_t)(end - at)) return false;
    for (const uint8_t *byte = at; byte < end; byte++)
        if (is_control(*byte)) return false;
    message->text = (const char *)at;
    return true;
}

static bool decode_table(const uint8_t *at, tu__monitor_message *message) {
    tu__monitor_report report;
    message->reports = at;
    for (uint32_t i = 0; i < message->size; i++)
        if (!tu__monitor_get_report(at + (size_t)i * TU__MONITOR_REPORT_BYTES, &report)) return false;
    return true;
}

/* Decodes the payload from `at` to `end`, which has the right length for all parts but the text. */
static bool decode_payload(const layout *l, const uint8_t *at, const uint8_t *end, uint32_t size,
                           tu__monitor_message *message) {
    if (l->rank) {
        message->rank = (uint32_t)get(at, 4);
        at += 4;
    }
    if (l->size) {
        message->size = (uint32_t)get(at, 4);
        if (message->size != size) return false;
        at += 4;
    }
    if (l->proof) {
        message->proof = at;
        at += TU__MONITOR_PROOF_BYTES;
    }
    if (l->report) {
        if (!tu__monitor_get_report(at, &message->report)) return false;
        at += TU__MONITOR_REPORT_BYTES;
    }
    if (l->table) {
        if (!decode_table(at, message)) return false;
        at += (size_t)size * TU__MONITOR_REPORT_BYTES;
    }
    if (l->kind) message->kind = *at++;
    if (l->cause) message->cause = *at++;
    return l->text ? decode_text(at, end, l->text, message) : at == end;
}

tu__monitor_decoded tu__monitor_decode(const uint8_t *bytes, size_t count, uint32_t size,
                                       tu__monitor_message *message, size_t *used) {
    /* Whatever has arrived of the header must be right, so that a stranger is recognized early. */
    if (memcmp(bytes, magic, count < sizeof magic ? count : sizeof magic) != 0) return TU__MONITOR_BAD;
    if (count < TU__MONITOR_HEADER_BYTES) return TU__MONITOR_PARTIAL;
    uint8_t type = bytes[5];
    if (bytes[4] != TU__MONITOR_VERSION || type == 0 || type >= TU__MONITOR_TYPE_END ||
        get(bytes + 6, 2) != 0)
        return TU__MONITOR_BAD;
    const layout *l = &layouts[type];
    size_t payload = get(bytes + 8, 4), fixed = fixed_bytes(l, size);
    if (payload < fixed || payload > fixed + l->text) return TU__MONITOR_BAD;
    if (count - TU__MONITOR_HEADER_BYTES < payload) return TU__MONITOR_PARTIAL;
    *message = (tu__monitor_message){.type = type};
    *used = TU__MONITOR_HEADER_BYTES + payload;
    const uint8_t *at = bytes + TU__MONITOR_HEADER_BYTES;
    return decode_payload(l, at, at + payload, size, message) ? TU__MONITOR_WHOLE : TU__MONITOR_BAD;
}
