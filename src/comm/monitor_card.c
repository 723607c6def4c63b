/* Cards: see monitor_card.h. */
#include "comm/monitor_card.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"

static const char version[8] = "TUMON01";

static void read_boot_id(char *out, size_t bytes) {
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file) return;
    if (!fgets(out, (int)bytes, file)) out[0] = '\0';
    fclose(file);
}

void tu__monitor_fill_card(tu__monitor_card *card, const char *host, const char *device) {
    memset(card, 0, sizeof *card);
    memcpy(card->version, version, sizeof version);
    snprintf(card->host, sizeof card->host, "%s", host);
    snprintf(card->device, sizeof card->device, "%s", device);
    read_boot_id(card->boot_id, sizeof card->boot_id);
}

void tu__monitor_set_card_error(tu__monitor_card *card, tu_status status) {
    card->status = (uint8_t)status;
    snprintf(card->error, sizeof card->error, "%s", tu_message());
}

void tu__monitor_set_card_addresses(tu__monitor_card *card, const uint8_t token[TU__MONITOR_TOKEN_BYTES],
                                    const tu__monitor_addresses *addresses) {
    memcpy(card->token, token, TU__MONITOR_TOKEN_BYTES);
    card->address_count = (uint8_t)addresses->count;
    for (uint32_t i = 0; i < addresses->count; i++) {
        const tu__monitor_address *address = &addresses->list[i];
        card->addresses[i].ipv6 = address->ipv6;
        card->addresses[i].loopback = address->loopback;
        card->addresses[i].port[0] = (uint8_t)(address->port & 0xff);
        card->addresses[i].port[1] = (uint8_t)(address->port >> 8);
        memcpy(card->addresses[i].bytes, address->bytes, sizeof address->bytes);
    }
}

/* Ends all strings, whatever has arrived. */
static void terminate(tu__monitor_card *card) {
    card->error[sizeof card->error - 1] = '\0';
    card->host[sizeof card->host - 1] = '\0';
    card->device[sizeof card->device - 1] = '\0';
    card->boot_id[sizeof card->boot_id - 1] = '\0';
    if (card->address_count > TU__MONITOR_ADDRESSES) card->address_count = TU__MONITOR_ADDRESSES;
}

tu_status tu__monitor_check_cards(tu__monitor_card *cards, uint32_t size, uint32_t rank) {
    for (uint32_t r = 0; r < size; r++) {
        if (memcmp(cards[r].version, version, sizeof version) != 0)
            return tu_fail(TU_INVALID,
                           "rank %" PRIu32 " runs another version of Tutti than rank %" PRIu32
                           ": install the same version on every host",
                           r, rank);
        terminate(&cards[r]);
    }
    if (cards[rank].status != TU_OK) return tu_fail((tu_status)cards[rank].status, "%s", cards[rank].error);
    for (uint32_t r = 0; r < size; r++)
        if (cards[r].status != TU_OK)
            return tu_fail((tu_status)cards[r].status, "rank %" PRIu32 " (host %s, device %s): %s", r,
                           cards[r].host, cards[r].device, cards[r].error);
    return TU_OK;
}

static tu__monitor_address get_address(const tu__monitor_card *card, uint32_t index) {
    tu__monitor_address address = {.ipv6 = card->addresses[index].ipv6 != 0,
                                   .loopback = card->addresses[index].loopback != 0};
    address.port = (uint16_t)(card->addresses[index].port[0] | card->addresses[index].port[1] << 8);
    memcpy(address.bytes, card->addresses[index].bytes, sizeof address.bytes);
    return address;
}

static void add_addresses(tu__monitor_addresses *to, const tu__monitor_card *card, bool loopback) {
    for (uint32_t i = 0; i < card->address_count; i++)
        if ((card->addresses[i].loopback != 0) == loopback) to->list[to->count++] = get_address(card, i);
}

tu__monitor_addresses tu__monitor_order_addresses(const tu__monitor_card *hub, const tu__monitor_card *mine) {
    tu__monitor_addresses addresses = {0};
    bool same_host = strcmp(hub->host, mine->host) == 0 && strcmp(hub->boot_id, mine->boot_id) == 0;
    if (same_host) add_addresses(&addresses, hub, true);
    add_addresses(&addresses, hub, false);
    if (addresses.count == 0) add_addresses(&addresses, hub, true);
    return addresses;
}

void tu__monitor_prove(const uint8_t token[TU__MONITOR_TOKEN_BYTES], bool hub, uint32_t rank,
                       uint8_t proof[TU__MONITOR_PROOF_BYTES]) {
    uint8_t bytes[TU__MONITOR_TOKEN_BYTES + 5];
    memcpy(bytes, token, TU__MONITOR_TOKEN_BYTES);
    bytes[TU__MONITOR_TOKEN_BYTES] = hub;
    for (int i = 0; i < 4; i++) bytes[TU__MONITOR_TOKEN_BYTES + 1 + i] = (uint8_t)(rank >> (8 * i));
    tu__sha256_of(bytes, sizeof bytes, proof);
}
