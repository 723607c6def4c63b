/* The monitor's thread: its data, shared by the files monitor*.c.
 *
 * The thread alone uses the table, the links and the fields below them. Other threads leave their reports and
 * requests under `lock` and wake the thread. */
#ifndef TU__COMM_MONITOR_THREAD_H
#define TU__COMM_MONITOR_THREAD_H

#include <poll.h>
#include <pthread.h>

#include "comm/monitor.h"
#include "comm/monitor_address.h"
#include "comm/monitor_endpoint.h"
#include "comm/monitor_link.h"
#include "comm/monitor_verdict.h"

/* Seconds. */
#define TU__MONITOR_BEAT 0.2              /* between two reports */
#define TU__MONITOR_CONNECT_SECONDS 20.0  /* for connecting to the hub, after `gather` */
#define TU__MONITOR_LEAVE_SECONDS 5.0     /* that tu__monitor_stop waits for the others */
#define TU__MONITOR_PREPARE_SECONDS 600.0 /* for beginning the first step */

/* What the hub has in addition. */
typedef struct tu__monitor_hub {
    tu__monitor_addresses addresses;
    uint32_t listeners; /* sockets, closed once all ranks are connected */
    int listener[TU__MONITOR_ADDRESSES];
    uint32_t pending_count, pending_capacity;
    tu__link *pending;  /* connections that have not said hello yet, oldest first */
    tu__link *links;    /* per rank */
    double *lost;       /* per rank: when its connection closed before all were connected; 0: it did not */
    bool *received;     /* per rank: has confirmed the verdict */
    bool connected;     /* all ranks are */
    double first_ended; /* when the first rank ended; 0: none has */
    uint32_t timed_out; /* a rank whose collective has timed out; UINT32_MAX: none */
    double timed_out_at;
    bool decided, told; /* the verdict is decided; all ranks have received it or had their time */
    double decided_at;
    tu__verdict verdict;
    bool done; /* all ranks have said goodbye */
    double done_at;
} tu__monitor_hub;

/* What the other ranks have in addition. */
typedef struct tu__monitor_member {
    tu__link link;       /* to the hub */
    double timed_out_at; /* when this rank's collective timed out; 0: it did not */
    bool fail_sent, goodbye_sent, hub_left;
} tu__monitor_member;

struct tu__monitor {
    uint32_t rank, size;
    void (*on_failure)(void *context, tu_status cause, const char *message);
    void *failure_context;
    uint8_t token[TU__MONITOR_TOKEN_BYTES]; /* random, known to the processes of this run only */
    pthread_t thread;
    bool thread_started;
    int wake; /* eventfd */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: */
    tu__monitor_report mine;
    int64_t common_step;
    tu__monitor_collective recent[TU__MONITOR_RECENT]; /* collective c is at c % TU__MONITOR_RECENT */
    double progressed_at; /* when this rank last entered or left a collective, or made progress in one */
    char (*devices)[TU__MONITOR_NAME_BYTES]; /* per rank, if `devices_changed` since the thread copied them */
    bool devices_changed;
    bool timed_out, failing, stopping; /* requests of other threads */
    tu_status cause;                   /* of tu__monitor_fail, like `why` */
    char why[TU__MONITOR_LINE_BYTES];
    double stopping_since;
    bool ready;     /* all ranks are connected */
    bool preparing; /* tu__monitor_is_preparing */
    bool excused;   /* tu__monitor_is_excused */
    bool failed;    /* there is a verdict: */
    char failure[TU__MONITOR_LINE_BYTES + 64];

    /* Of the thread: */
    tu__monitor_table table;
    struct pollfd *polled;
    uint8_t *reports; /* room for the reports of a table */
    double paused;    /* for how long this process did not run lately, in seconds; 0: it ran */
    double resumed;   /* when it continued */
    double started;
    bool urgent; /* a decision is pending: check more often */
    tu__monitor_hub hub;
    tu__monitor_member member;
};

/* What other threads have requested, and this rank's report. */
typedef struct tu__monitor_requests {
    bool timed_out, failing, stopping;
    double stopping_since;
} tu__monitor_requests;

/* monitor.c: takes the requests and updates this rank's row of the table. */
tu__monitor_requests tu__monitor_take_requests(tu__monitor *m, double now);
/* Publishes the verdict and calls on_failure. */
void tu__monitor_conclude(tu__monitor *m, const tu__verdict *verdict);
/* True if there is a verdict. */
bool tu__monitor_has_failed(tu__monitor *m);
/* Says that all ranks are connected. */
void tu__monitor_set_ready(tu__monitor *m);
/* True if this process did not run for a while until a moment ago. */
bool tu__monitor_was_paused(const tu__monitor *m, double now);
/* True if the rank that rank `waiting` waits for has not begun its first step and still has time for that, or has made
 * progress in a collective since rank `waiting` has, and less than the timeout ago. If all have reached the collective:
 * true if any of them has made such progress. */
bool tu__monitor_excuses_late(const tu__monitor *m, uint32_t waiting, double now);
/* Starts the thread. */
tu_status tu__monitor_run(tu__monitor *m);

/* monitor_hub.c and monitor_member.c: the same four functions for rank 0 and for the others. */
/* Fills `polled` and returns the number of entries. */
uint32_t tu__monitor_hub_poll(tu__monitor *m);
uint32_t tu__monitor_member_poll(tu__monitor *m);
/* Handles everything that has arrived. */
void tu__monitor_hub_receive(tu__monitor *m, double now);
void tu__monitor_member_receive(tu__monitor *m, double now);
/* Sends the periodic messages. */
void tu__monitor_hub_beat(tu__monitor *m, double now);
void tu__monitor_member_beat(tu__monitor *m, double now);
/* Handles requests and deadlines. Returns false once the thread may end. */
bool tu__monitor_hub_check(tu__monitor *m, tu__monitor_requests requests, double now);
bool tu__monitor_member_check(tu__monitor *m, tu__monitor_requests requests, double now);

#endif
