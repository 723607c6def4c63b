/* The protocol between monitors: messages over a TCP connection.
 *
 *     offset  bytes
 *     0       4      "TUMO"
 *     4       1      version of the protocol
 *     5       1      type
 *     6       2      zero
 *     8       4      bytes of the payload
 *     12             payload
 *
 * Integers are little-endian. A text has a length of 2 bytes, then its bytes, none of which is a control character.
 *
 *     type       direction       payload
 *     HELLO      to the hub      rank (4), size of the group (4), proof that the sender knows the token (32)
 *     WELCOME    from the hub    the same, with the hub's proof
 *     HEARTBEAT  to the hub      report of the rank (26), text: the operation
 *     TIMED_OUT  to the hub      the same, and the collective takes longer than the timeout
 *     TABLE      from the hub    number of ranks (4), report of each, text: the operation of rank 0
 *     FAIL       to the hub      status of the sender (1), text: why it fails
 *     VERDICT    both            rank to blame (4), kind (1), status of the rank (1), text: the line for the user
 *     RECEIVED   to the hub      nothing: the verdict has arrived
 *     DONE       from the hub    nothing: all ranks have said goodbye, with a report whose state is LEAVING
 *
 * The decoder accepts exactly what the encoder writes and reads only the bytes given. */
#ifndef TU__COMM_MONITOR_MESSAGE_H
#define TU__COMM_MONITOR_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TU__MONITOR_VERSION = 2,
    TU__MONITOR_HEADER_BYTES = 12,
    TU__MONITOR_REPORT_BYTES = 26,
    TU__MONITOR_PROOF_BYTES = 32,
    TU__MONITOR_OPERATION_BYTES = 160, /* with the terminating NUL, as the next one */
    TU__MONITOR_LINE_BYTES = 1000,
    TU__MONITOR_MAX_RANKS = 1 << 16,
};

typedef enum tu__monitor_type {
    TU__MONITOR_HELLO = 1,
    TU__MONITOR_WELCOME,
    TU__MONITOR_HEARTBEAT,
    TU__MONITOR_TIMED_OUT,
    TU__MONITOR_TABLE,
    TU__MONITOR_FAIL,
    TU__MONITOR_VERDICT,
    TU__MONITOR_RECEIVED,
    TU__MONITOR_DONE,
    TU__MONITOR_TYPE_END
} tu__monitor_type;

typedef enum tu__monitor_state {
    TU__MONITOR_COMPUTING,
    TU__MONITOR_IN_COLLECTIVE,
    TU__MONITOR_LEAVING, /* has said goodbye */
    TU__MONITOR_STATE_END
} tu__monitor_state;

typedef struct tu__monitor_report {
    int64_t step;        /* steps done */
    uint64_t collective; /* the one it is in, or the last one it was in */
    uint32_t waited_ms;  /* since it last entered or left a collective, or made progress in one */
    uint32_t silent_ms;  /* in a table: since the hub last heard from the rank; since it ended, if it has */
    uint8_t state;       /* tu__monitor_state */
    bool entered;        /* has entered a collective yet */
    bool ended;          /* in a table: its connection has closed without goodbye */
    bool begun;          /* has begun its first step */
} tu__monitor_report;

/* Only the fields of the message's type are used. Pointers of a decoded message point into the decoded bytes. */
typedef struct tu__monitor_message {
    tu__monitor_type type;
    uint32_t rank, size;
    const uint8_t *proof;
    tu__monitor_report report;
    const uint8_t *reports; /* `size` reports, encoded */
    uint8_t kind, cause;    /* of the verdict */
    const char *text;       /* `text_bytes` bytes, not terminated */
    size_t text_bytes;
} tu__monitor_message;

void tu__monitor_put_report(uint8_t *out, const tu__monitor_report *report);
/* Returns false if the bytes are not a report. */
bool tu__monitor_get_report(const uint8_t *bytes, tu__monitor_report *report);

/* Sets the text of a message to a string, shortened to the type's limit. */
void tu__monitor_set_text(tu__monitor_message *message, const char *text);
/* Copies the text of a message to a string. */
void tu__monitor_copy_text(const tu__monitor_message *message, char *out, size_t bytes);

/* Returns an upper bound of a message's size in a group of `size` ranks. */
size_t tu__monitor_max_bytes(uint32_t size);
/* Encodes a message; returns its bytes, 0 if they are more than `capacity`. Control characters in the text become
 * '?'. */
size_t tu__monitor_encode(const tu__monitor_message *message, uint8_t *out, size_t capacity);

typedef enum tu__monitor_decoded {
    TU__MONITOR_WHOLE,
    TU__MONITOR_PARTIAL,
    TU__MONITOR_BAD
} tu__monitor_decoded;
/* Decodes the first message of a stream, sent within a group of `size` ranks. If it is whole, `*used` is its size. */
tu__monitor_decoded tu__monitor_decode(const uint8_t *bytes, size_t count, uint32_t size,
                                       tu__monitor_message *message, size_t *used);

#endif
