/* Network interfaces, listening and connecting: see monitor_address.h. */
#include "comm/monitor_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

typedef union socket_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} socket_address;

/* ---- Interfaces ---- */

static bool is_first_of_its_name(const struct ifaddrs *list, const struct ifaddrs *entry) {
    while (list != entry && strcmp(list->ifa_name, entry->ifa_name) != 0) list = list->ifa_next;
    return list == entry;
}

static tu_status fail_unknown(const struct ifaddrs *list, const char *interface) {
    tu__text names = {0};
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (is_first_of_its_name(list, i))
            tu__text_printf(&names, "%s%s", names.length > 0 ? ", " : "", i->ifa_name);
    tu_status status = tu_fail(TU_INVALID, "no network interface is named '%s'; this host has %s", interface,
                               names.length > 0 ? tu__text_string(&names) : "none");
    tu__text_free(&names);
    return status;
}

/* Adds an address unless it is of no use for connecting from another host. */
static void add_address(tu__monitor_addresses *addresses, const struct ifaddrs *entry) {
    if (addresses->count == TU__MONITOR_ADDRESSES || !(entry->ifa_flags & IFF_UP) || !entry->ifa_addr) return;
    tu__monitor_address address = {.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0};
    if (entry->ifa_addr->sa_family == AF_INET) {
        memcpy(address.bytes, &((const struct sockaddr_in *)(const void *)entry->ifa_addr)->sin_addr, 4);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)entry->ifa_addr)->sin6_addr;
        if (IN6_IS_ADDR_LINKLOCAL(v6)) return;
        address.ipv6 = true;
        memcpy(address.bytes, v6, 16);
    } else {
        return;
    }
    addresses->list[addresses->count++] = address;
}

tu_status tu__monitor_find_addresses(const char *interface, tu__monitor_addresses *addresses) {
    struct ifaddrs *list;
    bool exists = false;
    addresses->count = 0;
    if (getifaddrs(&list) != 0)
        return tu_fail(TU_IO, "cannot list the network interfaces: %s", strerror(errno));
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (interface && strcmp(i->ifa_name, interface) != 0) continue;
        exists = true;
        add_address(addresses, i);
    }
    tu_status status = TU_OK;
    if (interface && !exists)
        status = fail_unknown(list, interface);
    else if (addresses->count == 0)
        status =
            tu_fail(TU_INVALID,
                    "%s%s%s has no IPv4 or global IPv6 address or is down: choose another network interface",
                    interface ? "network interface '" : "every network interface", interface ? interface : "",
                    interface ? "'" : "");
    freeifaddrs(list);
    return status;
}

/* ---- Sockets ---- */

static socklen_t to_socket_address(const tu__monitor_address *address, socket_address *out) {
    memset(out, 0, sizeof *out);
    if (address->ipv6) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons(address->port);
        memcpy(&out->v6.sin6_addr, address->bytes, 16);
        return sizeof out->v6;
    }
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons(address->port);
    memcpy(&out->v4.sin_addr, address->bytes, 4);
    return sizeof out->v4;
}

/* Listens at one address and sets its port. Returns -1 with errno if that fails. */
static int listen_at(tu__monitor_address *address) {
    int on = 1;
    socket_address at;
    socklen_t bytes = to_socket_address(address, &at);
    int fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->ipv6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, &at.any, bytes) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, &at.any, &bytes) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    address->port = ntohs(address->ipv6 ? at.v6.sin6_port : at.v4.sin_port);
    return fd;
}

/* Listens at each address of the list and drops those at which it is impossible, such as an IPv6 address that is
 * still being probed for duplicates. */
static uint32_t listen_at_each(tu__monitor_addresses *addresses, int *sockets) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < addresses->count; i++) {
        tu__monitor_address address = addresses->list[i];
        int fd = listen_at(&address);
        if (fd < 0) continue;
        addresses->list[count] = address;
        sockets[count++] = fd;
    }
    addresses->count = count;
    return count;
}

tu_status tu__monitor_listen(const char *interface, tu__monitor_addresses *addresses, int *sockets,
                             uint32_t *count) {
    *count = 0;
    TU_TRY(tu__monitor_find_addresses(interface, addresses));
    *count = listen_at_each(addresses, sockets);
    if (*count == 0)
        return tu_fail(TU_IO, "cannot listen for connections of other ranks%s%s: %s",
                       interface ? " on network interface " : "", interface ? interface : "",
                       strerror(errno));
    return TU_OK;
}

int tu__monitor_accept(int socket) {
    int fd;
    do {
        fd = accept4(socket, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    return fd;
}

/* Waits until a connection is established. Returns 0 or an error number. */
static int wait_connected(int fd, double deadline) {
    for (;;) {
        double left = deadline - tu__now();
        struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
        int ready = left > 0 ? poll(&poll_fd, 1, (int)(left * 1000) + 1) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready < 0) return errno;
        if (ready == 0) return ETIMEDOUT;
        int error = 0;
        socklen_t bytes = sizeof error;
        return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
    }
}

int tu__monitor_connect(const tu__monitor_address *address, double deadline) {
    socket_address to;
    socklen_t bytes = to_socket_address(address, &to);
    int fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    int error = connect(fd, &to.any, bytes) == 0 ? 0 : errno;
    if (error == EINPROGRESS || error == EINTR) error = wait_connected(fd, deadline);
    if (error == 0) return fd;
    close(fd);
    errno = error;
    return -1;
}

void tu__monitor_address_text(const tu__monitor_address *address, char text[TU__MONITOR_ADDRESS_TEXT]) {
    char number[INET6_ADDRSTRLEN];
    if (!inet_ntop(address->ipv6 ? AF_INET6 : AF_INET, address->bytes, number, sizeof number))
        number[0] = '\0';
    snprintf(text, TU__MONITOR_ADDRESS_TEXT, "%s port %u", number, address->port);
}
