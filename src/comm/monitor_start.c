/* Creates a monitor and connects it: see monitor.h.
 *
 * Rank 0 listens, then all processes exchange endpoints (monitor_endpoint.h), then the others connect to rank 0 while its
 * thread accepts them. A process that cannot take part says so in its endpoint, so that all fail with the reason. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/monitor_thread.h"

/* Seconds. */
#define FIRST_TRY 0.5 /* for connecting to one address, in the first round */
#define LATER_TRY 2.0
#define READY 25.0 /* for all ranks to be connected; the hub decides earlier */

static void init_lock(tu__monitor *m) {
    pthread_condattr_t monotonic;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static tu_status allocate_hub(tu__monitor *m) {
    static const char purpose[] = "the monitor of rank 0";
    tu__monitor_hub *h = &m->hub;
    h->pending_capacity = m->size + 32;
    h->pending = tu__alloc_array(h->pending_capacity, sizeof *h->pending, purpose);
    h->lost = tu__alloc_array(m->size, sizeof *h->lost, purpose);
    h->received = tu__alloc_array(m->size, sizeof *h->received, purpose);
    h->links = tu__alloc_array(m->size, sizeof *h->links, purpose);
    if (!h->pending || !h->lost || !h->received || !h->links) return TU_NO_MEMORY;
    for (uint32_t r = 0; r < m->size; r++) h->links[r] = tu__link_none();
    h->timed_out = UINT32_MAX;
    return TU_OK;
}

static tu_status allocate(tu__monitor *m) {
    static const char purpose[] = "the monitor";
    size_t polled = m->rank == 0 ? TU__MONITOR_ADDRESSES + 2 * (size_t)m->size + 32 : 1;
    m->table.size = m->size;
    m->table.ranks = tu__alloc_array(m->size, sizeof *m->table.ranks, purpose);
    m->devices = tu__alloc_array(m->size, sizeof *m->devices, purpose);
    m->reports = tu__alloc_array(m->size, TU__MONITOR_REPORT_BYTES, purpose);
    m->polled = tu__alloc_array(polled + 1, sizeof *m->polled, purpose);
    if (!m->table.ranks || !m->devices || !m->reports || !m->polled) return TU_NO_MEMORY;
    m->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (m->wake < 0) return tu_fail(TU_IO, "cannot create an event descriptor: %s", strerror(errno));
    return m->rank == 0 ? allocate_hub(m) : TU_OK;
}

static tu_status draw_token(uint8_t token[TU__MONITOR_TOKEN_BYTES]) {
    ssize_t count;
    do {
        count = getrandom(token, TU__MONITOR_TOKEN_BYTES, 0);
    } while (count < 0 && errno == EINTR);
    if (count != TU__MONITOR_TOKEN_BYTES)
        return tu_fail(TU_IO, "cannot get random bytes from the system: %s", strerror(errno));
    return TU_OK;
}

/* Does what this process must do before the endpoints are exchanged. */
static tu_status prepare(tu__monitor *m, const tu__monitor_options *options, tu__monitor_endpoint *endpoint) {
    tu__monitor_hub *h = &m->hub;
    tu__monitor_addresses unused;
    TU_TRY(allocate(m));
    if (m->rank > 0)
        return options->interface ? tu__monitor_find_addresses(options->interface, &unused) : TU_OK;
    TU_TRY(draw_token(m->token));
    TU_TRY(tu__monitor_listen(options->interface, &h->addresses, h->listener, &h->listeners));
    tu__monitor_set_endpoint_addresses(endpoint, m->token, &h->addresses);
    return TU_OK;
}

static void take_endpoints(tu__monitor *m, const tu__monitor_endpoint *endpoints) {
    double now = tu__now();
    memcpy(m->token, endpoints[0].token, sizeof m->token);
    for (uint32_t r = 0; r < m->size; r++) {
        memcpy(m->table.ranks[r].host, endpoints[r].host, sizeof endpoints[r].host);
        memcpy(m->table.ranks[r].device, endpoints[r].device, sizeof endpoints[r].device);
        m->table.ranks[r].heard = now;
    }
    m->started = now;
}

/* ---- Connecting to the hub ---- */

static bool is_valid_welcome(const tu__monitor *m, const tu__monitor_message *message) {
    uint8_t expected[TU__MONITOR_PROOF_BYTES];
    if (message->type != TU__MONITOR_WELCOME || message->rank != m->rank) return false;
    tu__monitor_prove(m->token, true, m->rank, expected);
    return memcmp(expected, message->proof, sizeof expected) == 0;
}

/* Says hello and waits for the hub's answer. Returns 0 or an error number. */
static int shake_hands(tu__monitor *m, double deadline) {
    tu__link *link = &m->member.link;
    uint8_t proof[TU__MONITOR_PROOF_BYTES];
    tu__monitor_prove(m->token, false, m->rank, proof);
    tu__monitor_message hello = {.type = TU__MONITOR_HELLO, .rank = m->rank, .size = m->size, .proof = proof};
    tu__link_send(link, &hello);
    for (;;) {
        tu__monitor_message message;
        if (tu__link_next(link, m->size, &message)) return is_valid_welcome(m, &message) ? 0 : EPROTO;
        if (link->broken) return ECONNRESET;
        double left = deadline - tu__now();
        if (left <= 0) return ETIMEDOUT;
        struct pollfd fd = {.fd = link->fd, .events = tu__link_events(link)};
        poll(&fd, 1, (int)(left * 1000) + 1);
        tu__link_flush(link);
    }
}

static int try_address(tu__monitor *m, const tu__monitor_address *address, double seconds) {
    double deadline = tu__now() + seconds;
    int fd = tu__monitor_connect(address, deadline);
    if (fd < 0) return errno;
    if (tu__link_open(&m->member.link, fd, m->size) != TU_OK) return ENOMEM;
    int error = shake_hands(m, tu__now() + LATER_TRY);
    if (error != 0) tu__link_close(&m->member.link);
    return error;
}

static tu_status fail_to_connect(const tu__monitor *m, const tu__monitor_address *address, int error) {
    char text[TU__MONITOR_ADDRESS_TEXT];
    tu__monitor_address_text(address, text);
    return tu_fail(TU_IO,
                   "rank %" PRIu32
                   " (host %s) cannot connect to rank 0 (host %s) at %s within %g s: %s; check the "
                   "firewall, or choose another network interface",
                   m->rank, m->table.ranks[m->rank].host, m->table.ranks[0].host, text,
                   TU__MONITOR_CONNECT_SECONDS, strerror(error));
}

static tu_status connect_to_hub(tu__monitor *m, const tu__monitor_endpoint *endpoints) {
    tu__monitor_addresses addresses = tu__monitor_order_addresses(&endpoints[0], &endpoints[m->rank]);
    double seconds = FIRST_TRY;
    for (;;) {
        for (uint32_t i = 0; i < addresses.count; i++) {
            int error = try_address(m, &addresses.list[i], seconds);
            if (error == 0) return TU_OK;
            if (tu__now() > m->started + TU__MONITOR_CONNECT_SECONDS)
                return fail_to_connect(m, &addresses.list[i], error);
        }
        seconds = LATER_TRY;
        struct timespec pause = {.tv_nsec = 50000000}; /* refused connections fail at once */
        nanosleep(&pause, NULL);
    }
}

static tu_status wait_until_ready(tu__monitor *m) {
    double deadline = m->started + READY;
    struct timespec until = {.tv_sec = (time_t)deadline};
    until.tv_nsec = (long)((deadline - (double)until.tv_sec) * 1e9);
    pthread_mutex_lock(&m->lock);
    int error = 0;
    while (!m->ready && !m->failed && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&m->changed, &m->lock, &until);
    tu_status status = TU_OK;
    if (!m->ready && m->failed) status = tu_fail(TU_IO, "%s", m->failure);
    if (!m->ready && !m->failed)
        status = tu_fail(TU_IO, "rank 0 (host %s) has not said within %g s that all ranks are connected",
                         m->table.ranks[0].host, READY);
    m->failed = m->failed || status != TU_OK; /* tu__monitor_stop says no goodbye */
    pthread_mutex_unlock(&m->lock);
    return status;
}

static tu_status start_with_endpoints(tu__monitor *m, tu__monitor_endpoint *endpoints) {
    TU_TRY(tu__monitor_check_endpoints(endpoints, m->size, m->rank));
    take_endpoints(m, endpoints);
    if (m->rank > 0) TU_TRY(connect_to_hub(m, endpoints));
    TU_TRY(tu__monitor_run(m));
    return wait_until_ready(m);
}

tu_status tu__monitor_start(const tu__monitor_options *options, tu__monitor **monitor) {
    *monitor = NULL;
    if (options->size == 0 || options->size > TU__MONITOR_MAX_RANKS || options->rank >= options->size)
        return tu_fail(TU_INVALID,
                       "rank %" PRIu32 " of %" PRIu32 ": expected at most %d ranks, counted from 0",
                       options->rank, options->size, TU__MONITOR_MAX_RANKS);
    tu__monitor_endpoint endpoint;
    tu__monitor_fill_endpoint(&endpoint, options->host, options->device);
    tu__monitor *m = tu__alloc(sizeof *m, "the monitor");
    tu__monitor_endpoint *endpoints =
        tu__alloc_array(options->size, sizeof *endpoints, "the endpoints of all ranks");
    if (!m || !endpoints) {
        tu__free(m);
        tu__free(endpoints);
        return TU_NO_MEMORY;
    }
    m->rank = options->rank;
    m->size = options->size;
    m->on_failure = options->on_failure;
    m->failure_context = options->failure_context;
    m->table.timeout = options->timeout;
    m->wake = -1;
    m->member.link = tu__link_none();
    init_lock(m);
    tu_status status = prepare(m, options, &endpoint);
    if (status != TU_OK) tu__monitor_set_endpoint_error(&endpoint, status);
    status = options->gather(options->gather_context, &endpoint, sizeof endpoint, endpoints);
    if (status == TU_OK) status = start_with_endpoints(m, endpoints);
    tu__free(endpoints);
    if (status == TU_OK)
        *monitor = m;
    else
        tu__monitor_stop(m);
    return status;
}
