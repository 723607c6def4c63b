/* The monitor of the ranks other than 0: reports to the hub and receives the table and the verdict. If the hub ends
 * or is silent, it concludes by itself. */
#include <string.h>

#include "base/clock.h"
#include "comm/monitor_thread.h"

/* Seconds after a timeout. */
#define HUB_SILENT_AFTER 1.0
#define ALONE_AFTER 1.7 /* the hub answers but does not decide */

uint32_t tu__monitor_member_poll(tu__monitor *m) {
    m->polled[0] = (struct pollfd){.fd = m->member.link.fd, .events = tu__link_events(&m->member.link)};
    return 1;
}

/* Sends this rank's report. It must arrive if it says goodbye or that the collective has timed out. */
static void send_report(tu__monitor *m, tu__monitor_type type, bool must_arrive) {
    const tu__monitor_rank *row = &m->table.ranks[m->rank];
    tu__monitor_message message = {.type = type, .report = row->report};
    tu__monitor_set_text(&message, row->operation);
    if (must_arrive)
        tu__link_send(&m->member.link, &message);
    else
        tu__link_send_if_idle(&m->member.link, &message);
}

void tu__monitor_member_beat(tu__monitor *m, double now) {
    (void)now;
    send_report(m, m->member.timed_out_at > 0 ? TU__MONITOR_TIMED_OUT : TU__MONITOR_HEARTBEAT, false);
}

/* Concludes without the hub, and tells it in case that it was only stopped. */
static void conclude_alone(tu__monitor *m, const tu__verdict *verdict) {
    tu__monitor_message message = {.type = TU__MONITOR_VERDICT,
                                   .rank = verdict->rank,
                                   .kind = (uint8_t)verdict->kind,
                                   .cause = (uint8_t)verdict->cause};
    tu__monitor_set_text(&message, verdict->line);
    tu__link_send(&m->member.link, &message);
    tu__monitor_conclude(m, verdict);
}

/* ---- Receiving ---- */

static void take_table(tu__monitor *m, const tu__monitor_message *message, double now) {
    for (uint32_t r = 0; r < m->size; r++) {
        tu__monitor_rank *row = &m->table.ranks[r];
        if (r == m->rank) continue;
        tu__monitor_get_report(message->reports + (size_t)r * TU__MONITOR_REPORT_BYTES, &row->report);
        row->heard = now - 1e-3 * row->report.silent_ms;
        row->ended = row->heard;
    }
    m->table.ranks[0].heard = now;
    tu__monitor_copy_text(message, m->table.ranks[0].operation, sizeof m->table.ranks[0].operation);
    tu__monitor_set_ready(m);
}

static void take_verdict(tu__monitor *m, const tu__monitor_message *message) {
    tu__verdict verdict = {.kind = message->kind, .rank = message->rank, .cause = message->cause};
    tu__monitor_copy_text(message, verdict.line, sizeof verdict.line);
    tu__monitor_message received = {.type = TU__MONITOR_RECEIVED};
    tu__link_send(&m->member.link, &received);
    tu__monitor_conclude(m, &verdict);
}

/* The hub has closed the connection. */
static void lose_hub(tu__monitor *m, double now) {
    tu__verdict verdict;
    tu__monitor_rank *hub = &m->table.ranks[0];
    tu__link_close(&m->member.link);
    if (tu__monitor_has_failed(m)) return;
    m->member.hub_left = true;
    if (m->member.goodbye_sent || hub->report.state == TU__MONITOR_LEAVING) return;
    if (tu__monitor_was_paused(m, now)) {
        tu__verdict_given_up(&m->table, m->rank, 0, m->paused, &verdict);
    } else {
        hub->report.ended = true;
        hub->ended = now;
        tu__verdict_ended(&m->table, &verdict);
    }
    tu__monitor_conclude(m, &verdict);
}

void tu__monitor_member_receive(tu__monitor *m, double now) {
    tu__link *link = &m->member.link;
    tu__monitor_message message;
    bool done = false;
    while (tu__link_next(link, m->size, &message)) {
        switch (message.type) {
        case TU__MONITOR_TABLE: take_table(m, &message, now); break;
        case TU__MONITOR_VERDICT: take_verdict(m, &message); break;
        case TU__MONITOR_DONE: done = true; break;
        default: link->broken = true; break; /* violates the protocol */
        }
    }
    tu__link_flush(link);
    if (done) {
        m->member.hub_left = true;
        tu__link_close(link);
    } else if (link->broken) {
        lose_hub(m, now);
    }
}

/* ---- Deciding ---- */

static void check_timed_out(tu__monitor *m, bool timed_out, double now) {
    tu__monitor_member *member = &m->member;
    tu__verdict verdict;
    if (!timed_out) {
        member->timed_out_at = 0;
        return;
    }
    if (member->timed_out_at == 0) {
        member->timed_out_at = now;
        send_report(m, TU__MONITOR_TIMED_OUT, true);
    }
    double waited = now - member->timed_out_at;
    bool excused = tu__monitor_excuses_late(m, m->rank, now);
    if (!excused && (member->hub_left || waited >= ALONE_AFTER)) {
        tu__verdict_late(&m->table, m->rank, &verdict);
    } else if (waited >= HUB_SILENT_AFTER && tu__monitor_is_silent(&m->table.ranks[0], now)) {
        tu__verdict_silent(&m->table, 0, m->rank, now, &verdict);
    } else {
        return;
    }
    conclude_alone(m, &verdict);
}

/* Tells the hub why this process fails; the hub answers with a verdict. */
static void send_failure(tu__monitor *m) {
    tu__verdict verdict;
    tu__monitor_message message = {.type = TU__MONITOR_FAIL, .cause = (uint8_t)m->cause};
    tu__monitor_set_text(&message, m->why); /* no longer changes */
    tu__link_send(&m->member.link, &message);
    m->member.fail_sent = true;
    if (!m->member.hub_left) return;
    tu__verdict_failed(&m->table, m->rank, m->cause, m->why, &verdict);
    tu__monitor_conclude(m, &verdict);
}

/* Says goodbye, and waits for that of the hub. Returns false once the thread may end. */
static bool leave(tu__monitor *m, double since, double now) {
    const tu__monitor_rank *hub = &m->table.ranks[0];
    if (!m->member.goodbye_sent) {
        m->member.goodbye_sent = true;
        send_report(m, TU__MONITOR_HEARTBEAT, true);
    }
    if (now - since < TU__MONITOR_LEAVE_SECONDS) return true;
    if (now - hub->heard < TU__MONITOR_SILENCE) return hub->report.state != TU__MONITOR_COMPUTING;
    if (now - hub->heard < TU__MONITOR_LEAVE_SECONDS) return true;
    tu__verdict verdict;
    tu__verdict_silent(&m->table, 0, UINT32_MAX, now, &verdict);
    conclude_alone(m, &verdict);
    return false;
}

bool tu__monitor_member_check(tu__monitor *m, tu__monitor_requests requests, double now) {
    tu__monitor_member *member = &m->member;
    bool failed = tu__monitor_has_failed(m);
    if (requests.failing && !member->fail_sent) send_failure(m);
    if (!failed && !requests.failing && !requests.stopping) check_timed_out(m, requests.timed_out, now);
    m->urgent = !failed && (member->timed_out_at > 0 || requests.stopping);
    if (!requests.stopping) return true;
    if (failed || member->hub_left) return false;
    return leave(m, requests.stopping_since, now);
}
