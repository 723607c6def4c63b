/* The endpoint of a process: what all processes tell each other before they are connected, with `gather`. */
#ifndef TU__COMM_MONITOR_ENDPOINT_H
#define TU__COMM_MONITOR_ENDPOINT_H

#include "comm/monitor_address.h"
#include "comm/monitor_message.h"
#include "comm/monitor_verdict.h"

enum { TU__MONITOR_TOKEN_BYTES = 16 };

/* All fields are bytes, so the layout is the same on every host. */
typedef struct tu__monitor_endpoint {
    char version[8];
    uint8_t status; /* a tu_status other than 0: this process cannot start its monitor, because of: */
    char error[255];
    char host[TU__MONITOR_NAME_BYTES], device[TU__MONITOR_NAME_BYTES];
    char boot_id[40]; /* of the running kernel: the same for containers of one host */
    /* Of rank 0: */
    uint8_t token[TU__MONITOR_TOKEN_BYTES];
    uint8_t address_count;
    struct {
        uint8_t ipv6, loopback, port[2], bytes[16];
    } addresses[TU__MONITOR_ADDRESSES];
} tu__monitor_endpoint;

/* Fills an endpoint, without the fields of rank 0. */
void tu__monitor_fill_endpoint(tu__monitor_endpoint *endpoint, const char *host, const char *device);
/* Sets the endpoint's error to this thread's message. */
void tu__monitor_set_endpoint_error(tu__monitor_endpoint *endpoint, tu_status status);
/* Sets the fields of rank 0. */
void tu__monitor_set_endpoint_addresses(tu__monitor_endpoint *endpoint,
                                        const uint8_t token[TU__MONITOR_TOKEN_BYTES],
                                        const tu__monitor_addresses *addresses);
/* Fails if an endpoint has an error or another version. `rank`: of this process. */
tu_status tu__monitor_check_endpoints(tu__monitor_endpoint *endpoints, uint32_t size, uint32_t rank);
/* Returns the addresses of rank 0 in the order in which the process of endpoint `mine` should try them. */
tu__monitor_addresses tu__monitor_order_addresses(const tu__monitor_endpoint *hub,
                                                  const tu__monitor_endpoint *mine);

/* Computes the proof that the hub, or another rank, knows the token, without sending the token. */
void tu__monitor_prove(const uint8_t token[TU__MONITOR_TOKEN_BYTES], bool hub, uint32_t rank,
                       uint8_t proof[TU__MONITOR_PROOF_BYTES]);

#endif
