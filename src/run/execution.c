/* Creates and frees executions: programs in sessions. */
#include "run/execution.h"

#include "base/alloc.h"
#include "base/worker.h"

/* Guards the lists of executions of all programs and sessions, either of which may be freed first. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Creating ---- */

static tu_status allocate_part(tu__execution *e, tu__part *part) {
    const char *purpose = "a program in a session";
    const tu__partition *partition = part->partition;
    part->on = tu__session_device_of(e->session, part->device);
    part->addresses = tu__alloc_array(partition->buffer_count, sizeof *part->addresses, purpose);
    part->workspaces = tu__alloc_array(partition->plan->kernel_count, sizeof *part->workspaces, purpose);
    part->leaves = tu__alloc_array(partition->leaf_count, sizeof *part->leaves, purpose);
    part->updates = tu__alloc_array(partition->update_count, sizeof *part->updates, purpose);
    part->copies = tu__alloc_array(partition->receive_count, sizeof *part->copies, purpose);
    part->collectives = tu__alloc_array(partition->collective_count, sizeof *part->collectives, purpose);
    return part->on && part->addresses && part->workspaces && part->leaves && part->updates && part->copies &&
                   part->collectives
               ? TU_OK
               : TU_NO_MEMORY;
}

static void free_execution(tu__execution *e) {
    if (!e) return;
    if (e->parts) tu__unbind(e);
    for (size_t i = 0; e->parts && i < e->program->device_count; i++) {
        tu__part *part = &e->parts[i];
        tu__free(part->addresses);
        tu__free(part->workspaces);
        tu__free(part->leaves);
        tu__free(part->updates);
        tu__free(part->copies);
        tu__free(part->collectives);
    }
    tu__run_sync_free(&e->sync);
    tu__group_run_free(e);
    tu__free(e->parts);
    tu__free(e->jobs);
    tu__free(e->communicators);
    tu__inputs_free(&e->inputs);
    tu__submit_free(&e->submit);
    tu_state_free(e->empty_state);
    tu__free(e);
}

static tu_status fill_execution(tu__execution *e) {
    tu_program *p = e->program;
    e->parts = tu__alloc_array(p->device_count, sizeof *e->parts, "a program in a session");
    for (uint32_t i = 0; e->parts && i < p->device_count;
         i++) { /* before anything fails: freeing needs them */
        e->parts[i].partition = &p->partitions[i];
        e->parts[i].index = i;
        e->parts[i].device = p->partitions[i].device;
    }
    e->jobs = tu__alloc_array(p->device_count, sizeof *e->jobs, "a program in a session");
    e->communicators =
        tu__alloc_array(p->collectives.count, sizeof *e->communicators, "a program in a session");
    if (!e->parts || !e->jobs || !e->communicators) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < p->device_count; i++) TU_TRY(allocate_part(e, &e->parts[i]));
    TU_TRY(tu__group_run_new(e));
    return tu__run_sync_init(&e->sync, p->event_count, p->timeout, p->device_count, p->devices);
}

static tu__execution *find(const tu_program *program, const tu_session *session) {
    tu__execution *e = program->executions;
    while (e && e->session != session) e = e->next_in_program;
    return e;
}

tu__execution *tu__default_execution(const tu_program *program) {
    pthread_mutex_lock(&list_lock);
    tu__execution *e = find(program, NULL);
    pthread_mutex_unlock(&list_lock);
    return e;
}

tu_status tu__execution_of(tu_program *program, tu_session *session, tu__execution **execution) {
    pthread_mutex_lock(&list_lock);
    tu__execution *e = find(program, session);
    pthread_mutex_unlock(&list_lock);
    if ((*execution = e)) return TU_OK;
    e = tu__alloc(sizeof *e, "a program in a session");
    if (!e) return TU_NO_MEMORY;
    e->program = program;
    e->session = session;
    tu_status status = fill_execution(e);
    if (status != TU_OK) {
        free_execution(e);
        return status;
    }
    pthread_mutex_lock(&list_lock);
    tu__execution *other = find(program, session); /* another thread may have been faster */
    if (!other) {
        e->next_in_program = program->executions;
        program->executions = e;
        tu__execution **list = session ? tu__session_executions(session) : NULL;
        if (list) e->next_in_session = *list, *list = e;
    }
    pthread_mutex_unlock(&list_lock);
    if (other) free_execution(e);
    *execution = other ? other : e;
    return TU_OK;
}

/* ---- Freeing ---- */

static void unlink_from_program(const tu__execution *e) {
    tu__execution **at = &e->program->executions;
    while (*at && *at != e) at = &(*at)->next_in_program;
    if (*at) *at = e->next_in_program;
}

static void unlink_from_session(const tu__execution *e) {
    tu__execution **at = e->session ? tu__session_executions(e->session) : NULL;
    while (at && *at && *at != e) at = &(*at)->next_in_session;
    if (at && *at) *at = e->next_in_session;
}

/* Takes the first execution out of a list, and out of its other list. */
static tu__execution *take_first(tu__execution **list) {
    pthread_mutex_lock(&list_lock);
    tu__execution *e = *list;
    if (e) {
        unlink_from_session(e);
        unlink_from_program(e);
    }
    pthread_mutex_unlock(&list_lock);
    return e;
}

void tu__program_free_executions(tu_program *program) {
    for (tu__execution *e; (e = take_first(&program->executions));) free_execution(e);
}

void tu__session_free_executions(tu_session *session) {
    for (tu__execution *e; (e = take_first(tu__session_executions(session)));) free_execution(e);
}

bool tu__execution_is_stuck(const tu__execution *e) {
    for (size_t i = 0; e->abandoned && i < e->program->device_count; i++)
        if (tu__worker_busy(e->parts[i].on->compute_thread) || tu__worker_busy(e->parts[i].on->copy_thread))
            return true;
    return false;
}
