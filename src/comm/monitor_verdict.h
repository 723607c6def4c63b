/* What a monitor knows of all ranks, and the verdict: which rank is to blame, in one line.
 *
 * These functions only read the table; they need no connection. Times are those of tu__now(). */
#ifndef TU__COMM_MONITOR_VERDICT_H
#define TU__COMM_MONITOR_VERDICT_H

#include <tutti/types.h>

#include "comm/monitor_message.h"

enum { TU__MONITOR_NAME_BYTES = 64, TU__MONITOR_RECENT = 4 };

/* A rank without answer for this long is silent: stopped or unreachable. */
#define TU__MONITOR_SILENCE 1.0

typedef struct tu__monitor_rank {
    char host[TU__MONITOR_NAME_BYTES], device[TU__MONITOR_NAME_BYTES];
    tu__monitor_report report; /* the latest */
    char operation[TU__MONITOR_OPERATION_BYTES];
    double heard; /* when the latest report arrived */
    double ended; /* when its connection closed without goodbye, if `report.ended` */
} tu__monitor_rank;

/* A collective of this rank. All ranks have the same sequence of collectives. */
typedef struct tu__monitor_collective {
    uint64_t number;
    char operation[TU__MONITOR_OPERATION_BYTES]; /* empty: none yet */
} tu__monitor_collective;

typedef struct tu__monitor_table {
    uint32_t size;
    double timeout;      /* of a collective in seconds; 0: unknown */
    int64_t common_step; /* all ranks have done at least so many steps, whatever their latest report says */
    tu__monitor_rank *ranks;
    tu__monitor_collective recent[TU__MONITOR_RECENT]; /* that this rank has entered */
} tu__monitor_table;

typedef enum tu__verdict_kind {
    TU__VERDICT_ENDED,
    TU__VERDICT_FAILED,
    TU__VERDICT_SILENT,
    TU__VERDICT_LATE,
    TU__VERDICT_STALLED, /* no rank is to blame */
    TU__VERDICT_NOT_CONNECTED,
} tu__verdict_kind;

typedef struct tu__verdict {
    tu__verdict_kind kind;
    uint32_t rank;   /* to blame; TU__MONITOR_MAX_RANKS: none */
    tu_status cause; /* with which the rank has failed by itself; otherwise TU_LOST */
    char line[TU__MONITOR_LINE_BYTES];
} tu__verdict;

/* True if a rank takes part: it has neither ended nor said goodbye. */
bool tu__monitor_is_active(const tu__monitor_rank *rank);
/* True if an active rank has not answered for TU__MONITOR_SILENCE. */
bool tu__monitor_is_silent(const tu__monitor_rank *rank, double now);
/* True if a rank waits in the collective in which rank `waiting` waits, or has already left it. */
bool tu__monitor_has_reached(const tu__monitor_table *table, uint32_t rank, uint32_t waiting);

/* Returns the active rank that is farthest from the collective in which rank `waiting` waits; `waiting` if all have
 * reached it. */
uint32_t tu__monitor_find_late(const tu__monitor_table *table, uint32_t waiting);

/* The first of the ranks that have ended. There must be one. */
void tu__verdict_ended(const tu__monitor_table *table, tu__verdict *verdict);
/* A rank that says itself why it fails. */
void tu__verdict_failed(const tu__monitor_table *table, uint32_t rank, tu_status cause, const char *why,
                        tu__verdict *verdict);
/* The rank that has been silent longest. `waiting`: a rank whose collective has timed out; UINT32_MAX: all others have
 * finished. */
void tu__verdict_silent(const tu__monitor_table *table, uint32_t rank, uint32_t waiting, double now,
                        tu__verdict *verdict);
/* The rank that is farthest from the collective in which rank `waiting` waits; all answer. */
void tu__verdict_late(const tu__monitor_table *table, uint32_t waiting, tu__verdict *verdict);
/* A rank that has not connected to the hub within `seconds` after the start. */
void tu__verdict_not_connected(const tu__monitor_table *table, uint32_t rank, const char *where,
                               double seconds, tu__verdict *verdict);
/* This process did not run for `seconds`, and rank `other` has closed its connection meanwhile. */
void tu__verdict_given_up(const tu__monitor_table *table, uint32_t rank, uint32_t other, double seconds,
                          tu__verdict *verdict);

#endif
