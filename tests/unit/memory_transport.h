/* Process groups whose processes are threads of a test. The transport keeps messages in memory, in the order in which they
 * are sent. */
#ifndef TUTTI_MEMORY_TRANSPORT_H
#define TUTTI_MEMORY_TRANSPORT_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "comm/process_group.h"
#include "test.h"

enum { MAX_RANKS = 9 };

/* ---- The transport: messages are copied when they are sent, and received in order ---- */

enum { MAX_TAGS = 4 };

typedef struct message {
    uint32_t from, to;
    int tag;
    uint32_t number; /* of the messages between these ranks with this tag */
    void *data;
    size_t bytes;
    struct message *next;
} message;

static struct {
    pthread_mutex_t lock;
    message *first;
    size_t sent_bytes;
    double interval, next; /* seconds between two deliveries; when the next one may happen */
    uint32_t sent[MAX_RANKS][MAX_RANKS][MAX_TAGS], received[MAX_RANKS][MAX_RANKS][MAX_TAGS];
} mail = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct tu__transport {
    uint32_t rank;
    tu__shared_area **areas; /* of all processes of the host */
    uint32_t host_size;
};

struct tu__transfer {
    bool is_sent;
    uint32_t from, to;
    int tag;
    uint32_t number;
    void *data;
    size_t bytes;
};

static inline tu_status share(tu__transport *t, size_t bytes, void **areas) {
    assert_int_equal(bytes, sizeof(tu__shared_area));
    for (uint32_t i = 0; i < t->host_size; i++) areas[i] = t->areas[i];
    return TU_OK;
}

static inline tu__transfer *transfer_of(tu__transfer value) {
    tu__transfer *transfer = malloc(sizeof *transfer);
    assert_non_null(transfer);
    *transfer = value;
    return transfer;
}

static inline tu_status send(tu__transport *t, uint32_t to, int tag, const void *data, size_t bytes,
                             tu__transfer **transfer) {
    message *m = malloc(sizeof *m);
    assert_non_null(m);
    *m = (message){.from = t->rank, .to = to, .tag = tag, .data = malloc(bytes), .bytes = bytes};
    assert_non_null(m->data);
    memcpy(m->data, data, bytes);
    pthread_mutex_lock(&mail.lock);
    m->number = mail.sent[t->rank][to][tag]++;
    message **last = &mail.first;
    while (*last) last = &(*last)->next;
    *last = m;
    mail.sent_bytes += bytes;
    pthread_mutex_unlock(&mail.lock);
    *transfer = transfer_of((tu__transfer){.is_sent = true});
    return TU_OK;
}

static inline tu_status receive(tu__transport *t, uint32_t from, int tag, void *data, size_t bytes,
                                tu__transfer **transfer) {
    pthread_mutex_lock(&mail.lock);
    uint32_t number = mail.received[from][t->rank][tag]++;
    pthread_mutex_unlock(&mail.lock);
    *transfer = transfer_of((tu__transfer){
        .from = from, .to = t->rank, .tag = tag, .number = number, .data = data, .bytes = bytes});
    return TU_OK;
}

static inline bool is_for(const message *m, const tu__transfer *t) {
    return m->from == t->from && m->to == t->to && m->tag == t->tag && m->number == t->number;
}

/* Takes the message for a transfer; NULL if it has not been sent. */
static inline message *take(const tu__transfer *t) {
    double now = mail.interval > 0 ? tu__now() : 0;
    pthread_mutex_lock(&mail.lock);
    message **at = &mail.first;
    while (*at && (!is_for(*at, t) || now < mail.next)) at = &(*at)->next;
    message *m = *at;
    if (m) *at = m->next;
    if (m && mail.interval > 0) mail.next = now + mail.interval;
    pthread_mutex_unlock(&mail.lock);
    return m;
}

static inline tu_status test(tu__transport *transport, tu__transfer *t, bool *done) {
    (void)transport;
    message *m = t->is_sent ? NULL : take(t);
    *done = t->is_sent || m;
    if (m) {
        assert_int_equal(m->bytes, t->bytes);
        memcpy(t->data, m->data, m->bytes);
        free(m->data);
        free(m);
    }
    if (*done) free(t);
    return TU_OK;
}

__attribute__((unused)) static const tu__transport_api api = {
    .share = share, .send = send, .receive = receive, .test = test};

/* Fills what joining a group would: rank `r` of processes on hosts of `host_size`, each with `cores` cores per process.
 * `areas` and `processes` are those of all ranks. The caller calls end_process. */
static inline void begin_process(tu_process_group *g, tu__transport *transport, uint32_t r, uint32_t ranks,
                                 uint32_t host_size, tu__shared_area **areas, tu__process *processes) {
    const tu__process *p = &processes[r];
    *transport = (tu__transport){.rank = r, .areas = areas + p->first_on_host, .host_size = host_size};
    g->api = &api;
    g->transport = transport;
    g->info = (tu__transport_info){.rank = r,
                                   .size = ranks,
                                   .host_rank = p->host_rank,
                                   .host_size = host_size,
                                   .first_on_host = p->first_on_host};
    g->processes = processes;
    g->timeout = 100;
    g->deadline = tu__now() + g->timeout;
    pthread_mutex_init(&g->lock, NULL);
    assert_int_equal(tu__group_choose_nodes(g), TU_OK);
}

static inline void end_process(tu_process_group *g) {
    pthread_mutex_destroy(&g->lock);
    free(g->areas);
    free(g->receive_buffers);
}

static inline tu__process describe_process(uint32_t r, uint32_t host_size, uint32_t cores) {
    tu__process p = {
        .host_rank = r % host_size, .first_on_host = r / host_size * host_size, .host_size = host_size};
    for (uint32_t c = 0; c < cores * host_size; c++) CPU_SET(c, &p.cores);
    return p;
}

/* Most of the memory is never touched. */
static inline tu__shared_area *new_area(void) {
    void *area =
        mmap(NULL, sizeof(tu__shared_area), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(area, MAP_FAILED);
    return area;
}

static inline void free_area(tu__shared_area *area) {
    munmap(area, sizeof *area);
}

#endif
