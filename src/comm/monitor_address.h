/* Network interfaces and addresses: where rank 0 listens, and how the others connect to it. */
#ifndef TU__COMM_MONITOR_ADDRESS_H
#define TU__COMM_MONITOR_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/status.h>

enum { TU__MONITOR_ADDRESSES = 32, TU__MONITOR_ADDRESS_TEXT = 64 };

typedef struct tu__monitor_address {
    bool ipv6, loopback;
    uint16_t port;
    uint8_t bytes[16]; /* in network order; IPv4 uses 4 */
} tu__monitor_address;

typedef struct tu__monitor_addresses {
    uint32_t count;
    tu__monitor_address list[TU__MONITOR_ADDRESSES];
} tu__monitor_addresses;

/* Lists the addresses of an interface, or of all (NULL), with port 0. Only interfaces that are up; no link-local
 * IPv6 addresses, which need an interface on the other side. Fails with TU_INVALID if the interface does not exist
 * or has no address. */
tu_status tu__monitor_find_addresses(const char *interface, tu__monitor_addresses *addresses);

/* Listens at the addresses of an interface, or at all (NULL), at ports that the system chooses. Sets the addresses
 * with their ports, and the `*count` sockets, at most TU__MONITOR_ADDRESSES. */
tu_status tu__monitor_listen(const char *interface, tu__monitor_addresses *addresses, int *sockets,
                             uint32_t *count);

/* Accepts a connection. Returns a non-blocking socket, or -1 if there is none. */
int tu__monitor_accept(int socket);

/* Connects. Returns a non-blocking socket, or -1 with errno if that fails or is not done at `deadline` (ETIMEDOUT). */
int tu__monitor_connect(const tu__monitor_address *address, double deadline);

/* Formats an address: "10.1.2.3 port 4711". */
void tu__monitor_address_text(const tu__monitor_address *address, char text[TU__MONITOR_ADDRESS_TEXT]);

#endif
