/* What processes tell each other before they are connected. See monitor_endpoint.h. */
#include "comm/monitor_endpoint.h"

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

void tu__monitor_fill_endpoint(tu__monitor_endpoint *endpoint, const char *host, const char *device) {
    memset(endpoint, 0, sizeof *endpoint);
    memcpy(endpoint->version, version, sizeof version);
    snprintf(endpoint->host, sizeof endpoint->host, "%s", host);
    snprintf(endpoint->device, sizeof endpoint->device, "%s", device);
    read_boot_id(endpoint->boot_id, sizeof endpoint->boot_id);
}

void tu__monitor_set_endpoint_error(tu__monitor_endpoint *endpoint, tu_status status) {
    endpoint->status = (uint8_t)status;
    snprintf(endpoint->error, sizeof endpoint->error, "%s", tu_message());
}

void tu__monitor_set_endpoint_addresses(tu__monitor_endpoint *endpoint,
                                        const uint8_t token[TU__MONITOR_TOKEN_BYTES],
                                        const tu__monitor_addresses *addresses) {
    memcpy(endpoint->token, token, TU__MONITOR_TOKEN_BYTES);
    endpoint->address_count = (uint8_t)addresses->count;
    for (uint32_t i = 0; i < addresses->count; i++) {
        const tu__monitor_address *address = &addresses->list[i];
        endpoint->addresses[i].ipv6 = address->ipv6;
        endpoint->addresses[i].loopback = address->loopback;
        endpoint->addresses[i].port[0] = (uint8_t)(address->port & 0xff);
        endpoint->addresses[i].port[1] = (uint8_t)(address->port >> 8);
        memcpy(endpoint->addresses[i].bytes, address->bytes, sizeof address->bytes);
    }
}

/* Ends all strings, whatever has arrived. */
static void terminate(tu__monitor_endpoint *endpoint) {
    endpoint->error[sizeof endpoint->error - 1] = '\0';
    endpoint->host[sizeof endpoint->host - 1] = '\0';
    endpoint->device[sizeof endpoint->device - 1] = '\0';
    endpoint->boot_id[sizeof endpoint->boot_id - 1] = '\0';
    if (endpoint->address_count > TU__MONITOR_ADDRESSES) endpoint->address_count = TU__MONITOR_ADDRESSES;
}

tu_status tu__monitor_check_endpoints(tu__monitor_endpoint *endpoints, uint32_t size, uint32_t rank) {
    for (uint32_t r = 0; r < size; r++) {
        if (memcmp(endpoints[r].version, version, sizeof version) != 0)
            return tu_fail(TU_INVALID,
                           "rank %" PRIu32 " runs another version of Tutti than rank %" PRIu32
                           ": install the same version on every host",
                           r, rank);
        terminate(&endpoints[r]);
    }
    if (endpoints[rank].status != TU_OK)
        return tu_fail((tu_status)endpoints[rank].status, "%s", endpoints[rank].error);
    for (uint32_t r = 0; r < size; r++)
        if (endpoints[r].status != TU_OK)
            return tu_fail((tu_status)endpoints[r].status, "rank %" PRIu32 " (host %s, device %s): %s", r,
                           endpoints[r].host, endpoints[r].device, endpoints[r].error);
    return TU_OK;
}

static tu__monitor_address get_address(const tu__monitor_endpoint *endpoint, uint32_t index) {
    tu__monitor_address address = {.ipv6 = endpoint->addresses[index].ipv6 != 0,
                                   .loopback = endpoint->addresses[index].loopback != 0};
    address.port = (uint16_t)(endpoint->addresses[index].port[0] | endpoint->addresses[index].port[1] << 8);
    memcpy(address.bytes, endpoint->addresses[index].bytes, sizeof address.bytes);
    return address;
}

static void add_addresses(tu__monitor_addresses *to, const tu__monitor_endpoint *endpoint, bool loopback) {
    for (uint32_t i = 0; i < endpoint->address_count; i++)
        if ((endpoint->addresses[i].loopback != 0) == loopback)
            to->list[to->count++] = get_address(endpoint, i);
}

tu__monitor_addresses tu__monitor_order_addresses(const tu__monitor_endpoint *hub,
                                                  const tu__monitor_endpoint *mine) {
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
