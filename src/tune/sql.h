/* A database: SQLite in a file, or PostgreSQL.
 *
 * Both are shared libraries that are opened when a study is, so that a program without studies needs neither, and a machine
 * needs no headers of theirs. The functions used here have kept their binary interfaces for decades.
 *
 * Statements are the SQL that both have in common. Their parameters are $1, $2, …, and values are always bound, never
 * written into the text of a statement.
 *
 * tu__sql_transaction runs a function in a transaction. If the connection is lost or another process is in the way, it is
 * rolled back and run again on a new connection, until the patience ends. A connection may be lost after the database has
 * committed and before it could say so; the function must therefore find out whether it was run before, for example by a
 * value that only it writes (study_claim.c). */
#ifndef TU__TUNE_SQL_H
#define TU__TUNE_SQL_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

#include "base/arena.h"
#include "tune/space.h"

enum { TU__SQL_MAX_VALUES = 24 };

typedef struct tu__sql_value {
    enum { TU__SQL_NULL, TU__SQL_INTEGER, TU__SQL_REAL, TU__SQL_TEXT } kind;
    int64_t integer;
    double real;
    const char *text;
} tu__sql_value;

static inline tu__sql_value tu__sql_integer(int64_t integer) {
    return (tu__sql_value){.kind = TU__SQL_INTEGER, .integer = integer};
}
/* NaN and infinities become NULL. */
static inline tu__sql_value tu__sql_real(double real) {
    return (tu__sql_value){.kind = __builtin_isfinite(real) ? TU__SQL_REAL : TU__SQL_NULL, .real = real};
}
static inline tu__sql_value tu__sql_text(const char *text) {
    return (tu__sql_value){.kind = text ? TU__SQL_TEXT : TU__SQL_NULL, .text = text};
}

/* The rows of a query; freed with tu__sql_result_free. */
typedef struct tu__sql_result {
    tu__arena arena;
    size_t rows, columns, capacity;
    const char **cells; /* [rows, columns]; NULL for NULL */
    int64_t changed;    /* rows that a statement inserted, updated or deleted */
} tu__sql_result;

/* The text of a cell, "" for NULL; its integer, 0 for NULL; its number, NaN for NULL. */
const char *tu__sql_cell(const tu__sql_result *result, size_t row, size_t column);
int64_t tu__sql_cell_integer(const tu__sql_result *result, size_t row, size_t column);
double tu__sql_cell_real(const tu__sql_result *result, size_t row, size_t column);
bool tu__sql_cell_is_null(const tu__sql_result *result, size_t row, size_t column);
void tu__sql_result_free(tu__sql_result *result);

typedef struct tu__sql {
    const struct tu__sql_driver *driver;
    char *address;
    char shown[256];   /* the address without a password, for messages */
    void *connection;  /* NULL: closed */
    bool create;       /* make the file if there is none */
    bool may_retry;    /* the latest failure may not happen again */
    double patience;   /* seconds for which a transaction is tried again */
    bool gave_up;      /* the patience has ended: transactions are tried once, until one succeeds */
    double away_since; /* tu__now() when it was first found away; 0: it is there */
    double back_at, away_seconds;      /* the latest time that it was away: its end and length */
    const volatile sig_atomic_t *stop; /* ends waiting once it is not 0; may be NULL */
    void (*on_wait)(void *context, const char *message); /* called once each time it begins to wait */
    void *context;
} tu__sql;

typedef struct tu__sql_driver {
    const char *begin;      /* statement that begins a transaction which writes */
    const char *begin_read; /* … one that only reads, and sees the database at one time */
    tu_status (*open)(tu__sql *sql);
    void (*close)(tu__sql *sql);
    /* Runs a statement. Sets may_retry on failure. `result` is empty. */
    tu_status (*run)(tu__sql *sql, const char *statement, size_t count, const tu__sql_value *values,
                     tu__sql_result *result);
    /* The time in seconds since 1970, by one clock for all who use the database. */
    tu_status (*now)(tu__sql *sql, double *seconds);
} tu__sql_driver;

extern const tu__sql_driver tu__sql_sqlite, tu__sql_postgres;

/* True for the address of a PostgreSQL database (postgresql://…); others are files of SQLite. */
bool tu__sql_is_server(const char *address);
/* Opens a database. A file is made if `create`; its folder must exist. Fails at once if it cannot be reached. */
tu_status tu__sql_open(const char *address, bool create, tu__sql *sql);
void tu__sql_close(tu__sql *sql);

/* Runs one statement. `result` may be NULL; else it is cleared first. */
tu_status tu__sql_run(tu__sql *sql, const char *statement, size_t count, const tu__sql_value *values,
                      tu__sql_result *result);
#define TU__SQL_VALUES(...)                                                                                  \
    sizeof((tu__sql_value[]){__VA_ARGS__}) / sizeof(tu__sql_value), (const tu__sql_value[]) {                \
        __VA_ARGS__                                                                                          \
    }

/* Runs `body` in a transaction, again if that may help. A failure of body rolls back. */
tu_status tu__sql_transaction(tu__sql *sql, tu_status (*body)(tu__sql *sql, void *context), void *context);
/* The same for a body that only reads: all its statements see the database at one time. Needs no permission to write. */
tu_status tu__sql_read(tu__sql *sql, tu_status (*body)(tu__sql *sql, void *context), void *context);

/* True if the database is back, but was away for at least `seconds` until `ago` seconds ago or less, or until this
 * transaction. */
bool tu__sql_was_away(const tu__sql *sql, double seconds, double ago);

/* For drivers: adds a row of NULLs. Returns its cells, or NULL if memory ran out. */
const char **tu__sql_add_row(tu__sql_result *result);

#endif
