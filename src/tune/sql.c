/* What both databases share: results, and transactions that are tried again. See sql.h. */
#include "tune/sql.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

/* ---- Results ---- */

const char **tu__sql_add_row(tu__sql_result *result) {
    if (result->rows == result->capacity) {
        size_t capacity = result->capacity ? 2 * result->capacity : 16;
        const char **cells = tu__realloc(result->cells, capacity * (result->columns + 1) * sizeof *cells,
                                         "the rows of a database");
        if (!cells) return NULL;
        result->cells = cells;
        result->capacity = capacity;
    }
    const char **row = result->cells + result->rows++ * result->columns;
    for (size_t i = 0; i < result->columns; i++) row[i] = NULL;
    return row;
}

bool tu__sql_cell_is_null(const tu__sql_result *result, size_t row, size_t column) {
    return row >= result->rows || column >= result->columns || !result->cells[row * result->columns + column];
}

const char *tu__sql_cell(const tu__sql_result *result, size_t row, size_t column) {
    return tu__sql_cell_is_null(result, row, column) ? "" : result->cells[row * result->columns + column];
}

int64_t tu__sql_cell_integer(const tu__sql_result *result, size_t row, size_t column) {
    return strtoll(tu__sql_cell(result, row, column), NULL, 10);
}

double tu__sql_cell_real(const tu__sql_result *result, size_t row, size_t column) {
    double number;
    return tu__parse_number(tu__sql_cell(result, row, column), &number) ? number : (double)NAN;
}

void tu__sql_result_free(tu__sql_result *result) {
    tu__arena_free(&result->arena);
    tu__free(result->cells);
    *result = (tu__sql_result){0};
}

/* ---- Opening ---- */

bool tu__sql_is_server(const char *address) {
    return strncmp(address, "postgresql://", 13) == 0 || strncmp(address, "postgres://", 11) == 0;
}

/* Copies an address without the password: "postgresql://user:***@host/name", nor its options, which may contain one. As in
 * libpq, a user is what precedes an '@' in front of the first '/'. */
static void hide_password(const char *address, char *shown, size_t bytes) {
    if (!tu__sql_is_server(address)) {
        snprintf(shown, bytes, "%s", address);
        return;
    }
    const char *begin = strstr(address, "://") + 3, *at = NULL;
    for (const char *c = begin; *c && *c != '/'; c++)
        if (*c == '@') at = c;
    const char *rest = at ? at : begin;
    const char *user_end = at ? begin + strcspn(begin, ":?@") : begin;
    snprintf(shown, bytes, "%.*s%s%.*s", (int)(user_end - address), address, user_end < rest ? ":***" : "",
             (int)strcspn(rest, "?"), rest);
}

tu_status tu__sql_open(const char *address, bool create, tu__sql *sql) {
    *sql = (tu__sql){.driver = tu__sql_is_server(address) ? &tu__sql_postgres : &tu__sql_sqlite,
                     .create = create,
                     .patience = 300};
    size_t bytes = strlen(address) + 1;
    sql->address = tu__alloc(bytes, "the address of a database");
    if (!sql->address) return TU_NO_MEMORY;
    memcpy(sql->address, address, bytes);
    hide_password(address, sql->shown, sizeof sql->shown);
    return sql->driver->open(sql);
}

void tu__sql_close(tu__sql *sql) {
    if (sql->connection) sql->driver->close(sql);
    tu__free(sql->address);
    *sql = (tu__sql){0};
}

/* ---- Statements ---- */

tu_status tu__sql_run(tu__sql *sql, const char *statement, size_t count, const tu__sql_value *values,
                      tu__sql_result *result) {
    tu__sql_result ignored = {0};
    if (result) tu__sql_result_free(result);
    if (result) result->arena.purpose = "the rows of a database";
    tu_status status = sql->driver->run(sql, statement, count, values, result ? result : &ignored);
    tu__sql_result_free(&ignored);
    return status;
}

/* A connection that was lost is noticed by the next statement, often this one. */
static tu_status begin(tu__sql *sql, const char *statement) {
    sql->may_retry = false;
    if (!sql->connection) TU_TRY(sql->driver->open(sql));
    tu_status status = tu__sql_run(sql, statement, 0, NULL, NULL);
    if (status != TU_OK) sql->driver->close(sql);
    return status;
}

static tu_status try_transaction(tu__sql *sql, const char *statement,
                                 tu_status (*body)(tu__sql *sql, void *context), void *context) {
    TU_TRY(begin(sql, statement));
    tu_status status = body(sql, context);
    if (status == TU_OK) status = tu__sql_run(sql, "COMMIT", 0, NULL, NULL);
    if (status == TU_OK) return TU_OK;
    /* The failure's message and whether it may be retried outlive the rollback. */
    bool may_retry = sql->may_retry;
    char message[1024];
    snprintf(message, sizeof message, "%s", tu_message());
    if (tu__sql_run(sql, "ROLLBACK", 0, NULL, NULL) != TU_OK) sql->driver->close(sql);
    sql->may_retry = may_retry;
    return tu_fail(status, "%s", message);
}

static bool is_stopped(const tu__sql *sql) {
    return sql->stop && __atomic_load_n(sql->stop, __ATOMIC_RELAXED) != 0;
}

/* Notes how long the database was away: also for transactions that did not wait for it. */
static void note_try(tu__sql *sql, double began, tu_status status) {
    if (status != TU_OK) {
        if (sql->may_retry && !sql->away_since) sql->away_since = began;
        return;
    }
    sql->gave_up = false;
    if (!sql->away_since) return;
    sql->back_at = tu__now();
    sql->away_seconds = sql->back_at - sql->away_since;
    sql->away_since = 0;
}

bool tu__sql_was_away(const tu__sql *sql, double seconds, double ago) {
    double now = tu__now();
    if (sql->away_since && now - sql->away_since >= seconds) return true;
    return sql->back_at && sql->away_seconds >= seconds && now - sql->back_at <= ago;
}

/* Threads that share a connection take turns. When one has waited in vain, the others need not wait as long again. */
static tu_status repeat(tu__sql *sql, const char *statement, tu_status (*body)(tu__sql *sql, void *context),
                        void *context) {
    double began = tu__now(), pause = 0.01;
    for (bool told = false;; pause = fmin(1.5 * pause, 2)) {
        double tried = tu__now();
        tu_status status = try_transaction(sql, statement, body, context);
        note_try(sql, tried, status);
        if (status == TU_OK || !sql->may_retry || is_stopped(sql) || sql->gave_up) return status;
        double waited = tu__now() - began;
        if (waited > sql->patience) {
            sql->gave_up = true;
            return tu_fail(status, "%s (tried for %.0f s)", tu_message(), waited);
        }
        if (!told && waited > 1 && sql->on_wait) {
            sql->on_wait(sql->context, tu_message());
            told = true;
        }
        usleep((useconds_t)(1e6 * pause));
    }
}

tu_status tu__sql_transaction(tu__sql *sql, tu_status (*body)(tu__sql *sql, void *context), void *context) {
    return repeat(sql, sql->driver->begin, body, context);
}

tu_status tu__sql_read(tu__sql *sql, tu_status (*body)(tu__sql *sql, void *context), void *context) {
    return repeat(sql, sql->driver->begin_read, body, context);
}
