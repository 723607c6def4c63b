/* The monitor of rank 0: accepts the others, distributes the table, decides and distributes the verdict.
 *
 * The verdict is passed to on_failure, which usually ends the process, only after the others have confirmed it. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/monitor_thread.h"

/* Seconds. */
#define HANDSHAKE 5.0 /* for saying hello; and for connecting again after the connection broke at the start */
#define MORE_DEATHS 0.15  /* waited after a connection closed: a rank that failed may have told why */
#define SILENT_AFTER 0.5  /* a timeout: time for a last sign of life */
#define UNSURE_UNTIL 1.3  /* after a timeout the decision is made with what is known */
#define CONFIRMATIONS 0.3 /* waited for: less than other ranks wait before they end, in on_failure */
#define CLOSING 1.0       /* waited for the others to close their connections at the end */

static const uint32_t nobody = UINT32_MAX;

uint32_t tu__monitor_hub_poll(tu__monitor *m) {
    tu__monitor_hub *h = &m->hub;
    uint32_t count = 0;
    for (uint32_t i = 0; i < h->listeners; i++)
        m->polled[count++] = (struct pollfd){.fd = h->listener[i], .events = POLLIN};
    for (uint32_t i = 0; i < h->pending_count; i++)
        m->polled[count++] =
            (struct pollfd){.fd = h->pending[i].fd, .events = tu__link_events(&h->pending[i])};
    for (uint32_t r = 1; r < m->size; r++) /* poll ignores the fd -1 of a closed link */
        m->polled[count++] = (struct pollfd){.fd = h->links[r].fd, .events = tu__link_events(&h->links[r])};
    return count;
}

/* ---- Sending ---- */

static void send_table(tu__monitor *m, double now) {
    for (uint32_t r = 0; r < m->size; r++) {
        const tu__monitor_rank *row = &m->table.ranks[r];
        tu__monitor_report report = row->report;
        report.silent_ms = (uint32_t)((now - (report.ended ? row->ended : row->heard)) * 1000);
        tu__monitor_put_report(m->reports + (size_t)r * TU__MONITOR_REPORT_BYTES, &report);
    }
    tu__monitor_message table = {.type = TU__MONITOR_TABLE, .size = m->size, .reports = m->reports};
    tu__monitor_set_text(&table, m->table.ranks[0].operation);
    for (uint32_t r = 1; r < m->size; r++) tu__link_send_if_idle(&m->hub.links[r], &table);
}

static void send_to_all(tu__monitor *m, const tu__monitor_message *message) {
    for (uint32_t r = 1; r < m->size; r++) tu__link_send(&m->hub.links[r], message);
}

/* Makes the verdict final and sends it to all. `m->hub.verdict` has been set. */
static void decide(tu__monitor *m, double now) {
    tu__monitor_hub *h = &m->hub;
    h->decided = true;
    h->decided_at = now;
    tu__monitor_message message = {.type = TU__MONITOR_VERDICT,
                                   .rank = h->verdict.rank,
                                   .kind = (uint8_t)h->verdict.kind,
                                   .cause = (uint8_t)h->verdict.cause};
    tu__monitor_set_text(&message, h->verdict.line);
    send_to_all(m, &message);
}

void tu__monitor_hub_beat(tu__monitor *m, double now) {
    if (m->hub.connected && !m->hub.decided) send_table(m, now);
}

/* ---- Connecting ---- */

static void remove_pending(tu__monitor_hub *h, uint32_t index) {
    h->pending_count--;
    memmove(&h->pending[index], &h->pending[index + 1], (h->pending_count - index) * sizeof *h->pending);
}

static void drop_pending(tu__monitor_hub *h, uint32_t index) {
    tu__link_close(&h->pending[index]);
    remove_pending(h, index);
}

static void accept_connections(tu__monitor *m) {
    tu__monitor_hub *h = &m->hub;
    for (uint32_t i = 0; i < h->listeners; i++) {
        for (int fd; (fd = tu__monitor_accept(h->listener[i])) >= 0;) {
            /* A process of the run that is dropped here tries again. */
            if (h->pending_count == h->pending_capacity) drop_pending(h, 0);
            if (tu__link_open(&h->pending[h->pending_count], fd, m->size) == TU_OK) h->pending_count++;
        }
    }
}

static bool is_valid_hello(const tu__monitor *m, const tu__monitor_message *message) {
    uint8_t expected[TU__MONITOR_PROOF_BYTES];
    if (message->type != TU__MONITOR_HELLO || message->rank == 0 || message->rank >= m->size) return false;
    tu__monitor_prove(m->token, false, message->rank, expected);
    return memcmp(expected, message->proof, sizeof expected) == 0;
}

/* Makes a pending connection that of its rank. An earlier one of the same rank is one that the rank gave up. */
static void admit(tu__monitor *m, uint32_t index, uint32_t rank, double now) {
    tu__monitor_hub *h = &m->hub;
    tu__link_close(&h->links[rank]);
    h->links[rank] = h->pending[index];
    h->lost[rank] = 0;
    remove_pending(h, index);
    uint8_t proof[TU__MONITOR_PROOF_BYTES];
    tu__monitor_prove(m->token, true, rank, proof);
    tu__monitor_message welcome = {
        .type = TU__MONITOR_WELCOME, .rank = rank, .size = m->size, .proof = proof};
    tu__link_send(&h->links[rank], &welcome);
    m->table.ranks[rank].heard = now;
}

static void greet_pending(tu__monitor *m, double now) {
    tu__monitor_hub *h = &m->hub;
    for (uint32_t i = 0; i < h->pending_count;) {
        tu__monitor_message message;
        tu__link *link = &h->pending[i];
        if (tu__link_next(link, m->size, &message)) {
            if (is_valid_hello(m, &message))
                admit(m, i, message.rank, now);
            else
                drop_pending(h, i);
        } else if (link->broken || now - link->opened > HANDSHAKE) {
            drop_pending(h, i);
        } else {
            i++;
        }
    }
}

/* Returns a rank that is not connected, 0 if all are. */
static uint32_t find_missing(const tu__monitor *m) {
    for (uint32_t r = 1; r < m->size; r++)
        if (!tu__link_is_open(&m->hub.links[r])) return r;
    return 0;
}

static void stop_listening(tu__monitor_hub *h) {
    for (uint32_t i = 0; i < h->listeners; i++) close(h->listener[i]);
    h->listeners = 0;
    while (h->pending_count > 0) drop_pending(h, 0);
}

static void check_start(tu__monitor *m, double now) {
    tu__monitor_hub *h = &m->hub;
    uint32_t missing = find_missing(m);
    if (missing == 0) {
        stop_listening(h);
        h->connected = true;
        send_table(m, now);
        tu__monitor_set_ready(m);
        return;
    }
    bool lost = h->lost[missing] > 0 && now - h->lost[missing] > HANDSHAKE;
    if (!lost && now - m->started < TU__MONITOR_CONNECT_SECONDS) return;
    char where[TU__MONITOR_ADDRESS_TEXT];
    const tu__monitor_address *address = &h->addresses.list[0];
    for (uint32_t i = 0; i < h->addresses.count && address->loopback; i++) address = &h->addresses.list[i];
    tu__monitor_address_text(address, where);
    tu__verdict_not_connected(&m->table, missing, where, now - m->started, &h->verdict);
    stop_listening(h);
    decide(m, now);
}

/* ---- Receiving ---- */

static void take_report(tu__monitor *m, uint32_t rank, const tu__monitor_message *message, double now) {
    tu__monitor_hub *h = &m->hub;
    tu__monitor_rank *row = &m->table.ranks[rank];
    row->report = message->report;
    row->report.ended = false;
    row->heard = now;
    tu__monitor_copy_text(message, row->operation, sizeof row->operation);
    if (message->type == TU__MONITOR_TIMED_OUT && h->timed_out == nobody) {
        h->timed_out = rank;
        h->timed_out_at = now;
    }
    /* The collective was completed after all. */
    if (message->type == TU__MONITOR_HEARTBEAT && h->timed_out == rank) h->timed_out = nobody;
}

/* Adopts the verdict of a rank that could not wait for that of the hub, because the hub was silent. */
static void adopt_verdict(tu__monitor *m, const tu__monitor_message *message, double now) {
    if (m->hub.decided) return;
    m->hub.verdict = (tu__verdict){.kind = message->kind, .rank = message->rank, .cause = message->cause};
    tu__monitor_copy_text(message, m->hub.verdict.line, sizeof m->hub.verdict.line);
    decide(m, now);
}

static void take_message(tu__monitor *m, uint32_t rank, const tu__monitor_message *message, double now) {
    tu__monitor_hub *h = &m->hub;
    char why[TU__MONITOR_LINE_BYTES];
    switch (message->type) {
    case TU__MONITOR_HEARTBEAT:
    case TU__MONITOR_TIMED_OUT: take_report(m, rank, message, now); break;
    case TU__MONITOR_FAIL:
        if (h->decided) break;
        tu__monitor_copy_text(message, why, sizeof why);
        tu__verdict_failed(&m->table, rank, message->cause, why, &h->verdict);
        decide(m, now);
        break;
    case TU__MONITOR_VERDICT: adopt_verdict(m, message, now); break;
    case TU__MONITOR_RECEIVED: h->received[rank] = true; break;
    default: h->links[rank].broken = true; break; /* violates the protocol */
    }
}

static void lose(tu__monitor *m, uint32_t rank, double now) {
    tu__monitor_hub *h = &m->hub;
    tu__monitor_rank *row = &m->table.ranks[rank];
    tu__link_close(&h->links[rank]);
    if (!h->connected) h->lost[rank] = now;
    if (h->decided || !h->connected || row->report.state == TU__MONITOR_LEAVING) return;
    row->report.ended = true;
    row->ended = now;
    if (h->first_ended == 0) h->first_ended = now;
    /* In case that this process dies as a consequence before it has decided. */
    send_table(m, now);
}

void tu__monitor_hub_receive(tu__monitor *m, double now) {
    tu__monitor_hub *h = &m->hub;
    accept_connections(m);
    greet_pending(m, now);
    for (uint32_t r = 1; r < m->size; r++) {
        tu__monitor_message message;
        tu__link *link = &h->links[r];
        while (tu__link_next(link, m->size, &message)) take_message(m, r, &message, now);
        tu__link_flush(link);
        if (link->broken) lose(m, r, now);
    }
}

/* ---- Deciding ---- */

/* Returns the rank that has been silent longest, 0 if none is silent. */
static uint32_t find_silent(const tu__monitor *m, double now) {
    uint32_t silent = 0;
    for (uint32_t r = 1; r < m->size; r++)
        if (tu__monitor_is_silent(&m->table.ranks[r], now) &&
            (silent == 0 || m->table.ranks[r].heard < m->table.ranks[silent].heard))
            silent = r;
    return silent;
}

static bool all_heard_since(const tu__monitor *m, double time) {
    for (uint32_t r = 1; r < m->size; r++)
        if (tu__monitor_is_active(&m->table.ranks[r]) && m->table.ranks[r].heard <= time) return false;
    return true;
}

static void check_timed_out(tu__monitor *m, double now) {
    tu__monitor_hub *h = &m->hub;
    if (h->timed_out == nobody) return;
    double waited = now - h->timed_out_at;
    uint32_t silent = find_silent(m, now);
    if (silent != 0 && waited >= SILENT_AFTER) {
        tu__verdict_silent(&m->table, silent, h->timed_out, now, &h->verdict);
        decide(m, now);
    } else if (((silent == 0 && all_heard_since(m, h->timed_out_at)) || waited >= UNSURE_UNTIL) &&
               !tu__monitor_excuses_late(m, h->timed_out, now)) {
        tu__verdict_late(&m->table, h->timed_out, &h->verdict);
        decide(m, now);
    }
}

static bool any_is_connected(const tu__monitor *m) {
    for (uint32_t r = 1; r < m->size; r++)
        if (tu__link_is_open(&m->hub.links[r])) return true;
    return false;
}

static void check_ended(tu__monitor *m, double now) {
    tu__monitor_hub *h = &m->hub;
    if (now - h->first_ended < MORE_DEATHS) return;
    tu__verdict_ended(&m->table, &h->verdict);
    /* If this process was stopped, the others have not all died meanwhile: they did not wait. */
    if (tu__monitor_was_paused(m, h->first_ended) && !any_is_connected(m))
        tu__verdict_given_up(&m->table, 0, h->verdict.rank, m->paused, &h->verdict);
    decide(m, now);
}

static void take_own_requests(tu__monitor *m, tu__monitor_requests requests, double now) {
    tu__monitor_hub *h = &m->hub;
    if (requests.timed_out && h->timed_out == nobody) {
        h->timed_out = 0;
        h->timed_out_at = now;
    }
    if (!requests.timed_out && h->timed_out == 0) h->timed_out = nobody;
    if (!requests.failing || h->decided) return;
    tu__verdict_failed(&m->table, 0, m->cause, m->why, &h->verdict); /* neither changes any more */
    decide(m, now);
}

static bool all_have_received(const tu__monitor *m, double now) {
    const tu__monitor_hub *h = &m->hub;
    for (uint32_t r = 1; r < m->size; r++)
        if (tu__link_is_open(&h->links[r]) && !h->received[r] && r != h->verdict.rank &&
            !tu__monitor_is_silent(&m->table.ranks[r], now))
            return false;
    return true;
}

/* ---- Ending ---- */

static bool all_are_leaving(const tu__monitor *m) {
    for (uint32_t r = 1; r < m->size; r++)
        if (m->table.ranks[r].report.state != TU__MONITOR_LEAVING) return false;
    return true;
}

static bool any_is_in_collective(const tu__monitor *m) {
    for (uint32_t r = 1; r < m->size; r++)
        if (m->table.ranks[r].report.state == TU__MONITOR_IN_COLLECTIVE && tu__link_is_open(&m->hub.links[r]))
            return true;
    return false;
}

/* Says goodbye. Returns false once the thread may end. */
static bool leave(tu__monitor *m, double since, double now) {
    tu__monitor_hub *h = &m->hub;
    if (!h->done && all_are_leaving(m)) {
        tu__monitor_message done = {.type = TU__MONITOR_DONE};
        send_to_all(m, &done);
        h->done = true;
        h->done_at = now;
    }
    if (h->done) return any_is_connected(m) && now - h->done_at < CLOSING;
    if (now - since < TU__MONITOR_LEAVE_SECONDS) return true;
    uint32_t silent = find_silent(m, now);
    if (silent != 0) {
        tu__verdict_silent(&m->table, silent, nobody, now, &h->verdict);
        decide(m, now);
    }
    if (silent != 0 || any_is_in_collective(m)) return true;
    send_table(m, now); /* says that this rank is leaving */
    return false;
}

bool tu__monitor_hub_check(tu__monitor *m, tu__monitor_requests requests, double now) {
    tu__monitor_hub *h = &m->hub;
    take_own_requests(m, requests, now);
    if (h->decided) {
    } else if (!h->connected) {
        check_start(m, now);
    } else if (h->first_ended > 0) {
        check_ended(m, now);
    } else {
        check_timed_out(m, now);
    }
    if (h->decided && !h->told && (all_have_received(m, now) || now - h->decided_at > CONFIRMATIONS)) {
        h->told = true;
        tu__monitor_conclude(m, &h->verdict);
    }
    m->urgent = (h->decided && !h->told) || h->first_ended > 0 || h->timed_out != nobody || requests.stopping;
    if (h->told) m->urgent = false;
    if (!requests.stopping) return true;
    return h->decided ? !h->told : leave(m, requests.stopping_since, now);
}
