/* Decodes arbitrary bytes as a stream of messages between monitors. A message that is accepted must give the same
 * bytes when it is encoded again, and copying its parts must stay within them. The first byte is the size of the
 * group. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/monitor_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) abort();
}

static void check_message(const tu__monitor_message *message, const uint8_t *bytes, size_t count,
                          uint32_t ranks) {
    uint8_t again[TU__MONITOR_HEADER_BYTES + 256 * TU__MONITOR_REPORT_BYTES + TU__MONITOR_LINE_BYTES];
    char text[TU__MONITOR_LINE_BYTES], shortened[8];
    require(count <= tu__monitor_max_bytes(ranks) && count <= sizeof again);
    require(tu__monitor_encode(message, again, sizeof again) == count && memcmp(again, bytes, count) == 0);
    require(tu__monitor_encode(message, again, count - 1) == 0);
    tu__monitor_copy_text(message, text, sizeof text);
    tu__monitor_copy_text(message, shortened, sizeof shortened);
    require(strlen(text) == message->text_bytes && strlen(shortened) < sizeof shortened);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    uint32_t ranks = data[0];
    size_t used = 0;
    for (size_t at = 1; at < size; at += used) {
        tu__monitor_message message;
        if (tu__monitor_decode(data + at, size - at, ranks, &message, &used) != TU__MONITOR_WHOLE) return 0;
        require(used <= size - at);
        check_message(&message, data + at, used, ranks);
    }
    return 0;
}
