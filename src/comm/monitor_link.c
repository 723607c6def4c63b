/* Connections between monitors: see monitor_link.h. */
#include "comm/monitor_link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

tu__link tu__link_none(void) {
    return (tu__link){.fd = -1};
}

tu_status tu__link_open(tu__link *link, int fd, uint32_t size) {
    /* Room for a table, a verdict and a few small messages. */
    size_t bytes = 2 * tu__monitor_max_bytes(size) + 4096;
    *link = (tu__link){.fd = fd, .bytes = bytes, .opened = tu__now()};
    link->in = tu__alloc(2 * bytes, "a connection between monitors");
    if (!link->in) {
        close(fd);
        *link = tu__link_none();
        return TU_NO_MEMORY;
    }
    link->out = link->in + bytes;
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return TU_OK;
}

void tu__link_close(tu__link *link) {
    if (link->fd >= 0) close(link->fd);
    tu__free(link->in);
    *link = tu__link_none();
}

bool tu__link_is_open(const tu__link *link) {
    return link->fd >= 0;
}

/* Receives what has arrived and fits. Returns false if that is nothing. */
static bool receive(tu__link *link) {
    ssize_t count;
    do {
        count = recv(link->fd, link->in + link->in_used, link->bytes - link->in_used, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count > 0) {
        link->in_used += (size_t)count;
        return true;
    }
    if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) link->broken = true;
    return false;
}

bool tu__link_next(tu__link *link, uint32_t size, tu__monitor_message *message) {
    if (link->fd < 0) return false;
    if (link->in_taken > 0) {
        link->in_used -= link->in_taken;
        memmove(link->in, link->in + link->in_taken, link->in_used);
        link->in_taken = 0;
    }
    while (!link->broken) {
        switch (tu__monitor_decode(link->in, link->in_used, size, message, &link->in_taken)) {
        case TU__MONITOR_WHOLE: return true;
        case TU__MONITOR_BAD: link->broken = true; return false;
        case TU__MONITOR_PARTIAL: break;
        }
        /* The buffer is larger than any message, so there is room. */
        if (!receive(link)) return false;
    }
    return false;
}

void tu__link_flush(tu__link *link) {
    size_t sent = 0;
    while (link->fd >= 0 && !link->cannot_send && sent < link->out_used) {
        ssize_t count = send(link->fd, link->out + sent, link->out_used - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count > 0)
            sent += (size_t)count;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            break;
        else if (errno != EINTR)
            link->cannot_send = true;
    }
    link->out_used -= sent;
    if (sent > 0) memmove(link->out, link->out + sent, link->out_used);
    if (link->cannot_send) link->out_used = 0;
}

void tu__link_send(tu__link *link, const tu__monitor_message *message) {
    if (link->fd < 0 || link->cannot_send) return;
    size_t count = tu__monitor_encode(message, link->out + link->out_used, link->bytes - link->out_used);
    if (count == 0) link->cannot_send = true; /* the other side has not read for a long time */
    link->out_used += count;
    tu__link_flush(link);
}

void tu__link_send_if_idle(tu__link *link, const tu__monitor_message *message) {
    if (link->out_used == 0) tu__link_send(link, message);
}

short tu__link_events(const tu__link *link) {
    return (short)(POLLIN | (link->out_used > 0 ? POLLOUT : 0));
}
