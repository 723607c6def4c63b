/* A connection between two monitors: sends and receives messages over a non-blocking socket.
 *
 * No function blocks. Both directions have a buffer of fixed size. */
#ifndef TU__COMM_MONITOR_LINK_H
#define TU__COMM_MONITOR_LINK_H

#include <tutti/status.h>

#include "comm/monitor_message.h"

typedef struct tu__link {
    int fd;      /* -1: closed */
    bool broken; /* the other side has closed it or violates the protocol; nothing will arrive any more */
    bool cannot_send; /* a send has failed; messages that arrived before may still be read */
    double opened;    /* when, by tu__now() */
    size_t bytes;     /* of each buffer */
    uint8_t *in, *out;
    size_t in_used, out_used;
    size_t in_taken; /* bytes of the message that tu__link_next returned last */
} tu__link;

/* Takes over a socket, also if it fails. `size`: ranks of the group. */
tu_status tu__link_open(tu__link *link, int fd, uint32_t size);
/* Closes the socket and frees the buffers. Does nothing if it is closed or zeroed by tu__link_none. */
void tu__link_close(tu__link *link);
/* Returns a link that is closed. */
tu__link tu__link_none(void);

/* True if the link is open. */
bool tu__link_is_open(const tu__link *link);

/* Returns true and the next message that has arrived, valid until the next call. Returns false if there is none, and
 * then sets `broken` if there will never be one. */
bool tu__link_next(tu__link *link, uint32_t size, tu__monitor_message *message);

/* Sends a message as far as the socket takes it; the rest is sent by tu__link_flush. */
void tu__link_send(tu__link *link, const tu__monitor_message *message);
/* Like tu__link_send, but drops the message if an earlier one has not been sent yet. For periodic messages. */
void tu__link_send_if_idle(tu__link *link, const tu__monitor_message *message);
void tu__link_flush(tu__link *link);

/* Returns the events for poll(). */
short tu__link_events(const tu__link *link);

#endif
