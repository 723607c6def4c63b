/* Studies that workers on many hosts share, with PostgreSQL. See sql.h. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared_library.h"
#include "tune/sql.h"

/* ---- The library ----
 *
 * The functions that are used, as libpq-fe.h declares them. */

typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;

enum {
    CONNECTION_OK = 0,
    PGRES_COMMAND_OK = 1,
    PGRES_TUPLES_OK = 2,
    PG_DIAG_SQLSTATE = 'C',
};

#define POSTGRES_FUNCTIONS(X)                                                                                \
    X(PGconn *, connectdbParams, (const char *const *, const char *const *, int))                            \
    X(void, finish, (PGconn *))                                                                              \
    X(int, status, (const PGconn *))                                                                         \
    X(char *, errorMessage, (const PGconn *))                                                                \
    X(PGresult *, execParams,                                                                                \
      (PGconn *, const char *, int, const unsigned *, const char *const *, const int *, const int *, int))   \
    X(int, resultStatus, (const PGresult *))                                                                 \
    X(char *, resultErrorField, (const PGresult *, int))                                                     \
    X(int, ntuples, (const PGresult *))                                                                      \
    X(int, nfields, (const PGresult *))                                                                      \
    X(char *, getvalue, (const PGresult *, int, int))                                                        \
    X(int, getisnull, (const PGresult *, int, int))                                                          \
    X(char *, cmdTuples, (PGresult *))                                                                       \
    X(void, clear, (PGresult *))                                                                             \
    X(void *, setNoticeProcessor, (PGconn *, void (*)(void *, const char *), void *))

static struct {
#define X(type, name, arguments) type(*name) arguments;
    POSTGRES_FUNCTIONS(X)
#undef X
} api;
static pthread_once_t api_once = PTHREAD_ONCE_INIT;
static char api_error[512];

static void *find_function(void *library, const char *name) {
    void *function = dlsym(library, name);
    if (!function && !*api_error) snprintf(api_error, sizeof api_error, "it has no function %s", name);
    return function;
}

static void load_api(void) {
    void *library = tu__shared_library_open("libpq.so.5");
    if (!library) {
        snprintf(api_error, sizeof api_error, "%s", tu__shared_library_error());
        return;
    }
#define X(type, name, arguments) *(void **)&api.name = find_function(library, "PQ" #name);
    POSTGRES_FUNCTIONS(X)
#undef X
}

/* ---- Failures ---- */

/* Copies the first line of a message, without its end. */
static const char *first_line(const char *message, char line[400]) {
    snprintf(line, 400, "%.*s", (int)strcspn(message, "\n"), message);
    return line;
}

static tu_status fail_connection(tu__sql *sql, const PGconn *connection) {
    char line[400];
    sql->may_retry = true;
    return tu_fail(TU_IO, "study '%s': no connection to the database: %s", sql->shown,
                   connection ? first_line(api.errorMessage(connection), line) : "out of memory");
}

static bool is_one_of(const char *state, const char *const *states) {
    for (; *states; states++)
        if (strncmp(state, *states, strlen(*states)) == 0) return true;
    return false;
}

static tu_status fail_statement(tu__sql *sql, const PGresult *result) {
    /* Serialization failures and deadlocks; two processes that created the same row or table at once; too many
     * connections; a server that shuts down or starts. */
    static const char *const may_retry[] = {"40", "23505", "42P07", "53300", "57P", "08", NULL};
    char line[400];
    PGconn *connection = sql->connection;
    const char *state = result ? api.resultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    /* A failure without a state is not the server's. */
    if (api.status(connection) != CONNECTION_OK || !state) return fail_connection(sql, connection);
    sql->may_retry = is_one_of(state, may_retry);
    bool is_full = strcmp(state, "53100") == 0;
    return tu_fail(TU_IO, "study '%s': %s%s", sql->shown, first_line(api.errorMessage(connection), line),
                   is_full ? ": nothing was lost; free space, then start the command again" : "");
}

/* ---- Opening ---- */

static void close_connection(tu__sql *sql) {
    if (sql->connection) api.finish(sql->connection);
    sql->connection = NULL;
}

static void ignore_notice(void *context, const char *message) {
    (void)context;
    (void)message;
}

/* A server that vanished without a word is noticed within about half a minute. The address may say otherwise. */
static tu_status open_connection(tu__sql *sql) {
    static const char *const names[] = {"application_name", "connect_timeout", "keepalives_idle",
                                        "tcp_user_timeout", "dbname",          NULL};
    const char *const values[] = {"tutti tune", "10", "10", "30000", sql->address, NULL};
    pthread_once(&api_once, load_api);
    if (*api_error)
        return tu_fail(
            TU_UNSUPPORTED,
            "study '%s': the library of PostgreSQL (libpq.so.5) cannot be opened: %s; install it (Debian: libpq5)",
            sql->shown, api_error);
    PGconn *connection = api.connectdbParams(names, values, 1);
    if (!connection || api.status(connection) != CONNECTION_OK) {
        tu_status status = fail_connection(sql, connection);
        api.finish(connection);
        return status;
    }
    api.setNoticeProcessor(connection, ignore_notice, NULL);
    sql->connection = connection;
    return TU_OK;
}

/* ---- Statements ---- */

static tu_status read_rows(const PGresult *found, tu__sql_result *result) {
    result->columns = (size_t)api.nfields(found);
    for (int i = 0; i < api.ntuples(found); i++) {
        const char **row = tu__sql_add_row(result);
        if (!row) return TU_NO_MEMORY;
        for (int k = 0; k < (int)result->columns; k++) {
            if (api.getisnull(found, i, k)) continue;
            row[k] = tu__arena_string(&result->arena, api.getvalue(found, i, k));
            if (!row[k]) return TU_NO_MEMORY;
        }
    }
    return TU_OK;
}

static tu_status run(tu__sql *sql, const char *statement, size_t count, const tu__sql_value *values,
                     tu__sql_result *result) {
    const char *texts[TU__SQL_MAX_VALUES];
    char numbers[TU__SQL_MAX_VALUES][TU__NUMBER_TEXT];
    for (size_t i = 0; i < count; i++) {
        texts[i] = values[i].kind == TU__SQL_TEXT ? values[i].text : values[i].kind ? numbers[i] : NULL;
        if (values[i].kind == TU__SQL_INTEGER)
            snprintf(numbers[i], sizeof numbers[i], "%" PRId64, values[i].integer);
        if (values[i].kind == TU__SQL_REAL) tu__format_number(values[i].real, numbers[i]);
    }
    PGresult *found = api.execParams(sql->connection, statement, (int)count, NULL, texts, NULL, NULL, 0);
    int code = found ? api.resultStatus(found) : -1;
    tu_status status = code == PGRES_TUPLES_OK    ? read_rows(found, result)
                       : code == PGRES_COMMAND_OK ? TU_OK
                                                  : fail_statement(sql, found);
    if (status == TU_OK) result->changed = strtoll(api.cmdTuples(found), NULL, 10);
    api.clear(found);
    return status;
}

/* Hosts' clocks differ; the server's is one. */
static tu_status read_clock(tu__sql *sql, double *seconds) {
    tu__sql_result result = {0};
    tu_status status = tu__sql_run(
        sql, "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)", 0, NULL, &result);
    if (status == TU_OK) *seconds = tu__sql_cell_real(&result, 0, 0);
    tu__sql_result_free(&result);
    return status;
}

const tu__sql_driver tu__sql_postgres = {.begin = "BEGIN",
                                         .begin_read = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
                                         .open = open_connection,
                                         .close = close_connection,
                                         .run = run,
                                         .now = read_clock};
