/* Sessions: what programs need to run at the same time as in other sessions. See <tutti/run.h>. */
#include "base/alloc.h"
#include "run/execution.h"

typedef struct session_device { /* in a list, so that addresses stay valid */
    tu__session_device resources;
    struct session_device *next;
} session_device;

struct tu_session {
    tu_state *state;
    pthread_mutex_t lock; /* guards `devices` */
    session_device *devices;
    tu__execution *executions;
};

tu_state *tu__session_state(const tu_session *session) {
    return session->state;
}

tu__execution **tu__session_executions(tu_session *session) {
    return &session->executions;
}

tu_status tu_session_new(tu_state *state, tu_session **session) {
    *session = tu__alloc(sizeof **session, "a session");
    if (!*session) return TU_NO_MEMORY;
    (*session)->state = state;
    pthread_mutex_init(&(*session)->lock, NULL);
    return TU_OK;
}

/* True if a thread of an abandoned run may still use the session. */
static bool is_stuck(const tu_session *session) {
    for (const tu__execution *e = session->executions; e; e = e->next_in_session)
        if (tu__execution_is_stuck(e)) return true;
    return false;
}

void tu_session_free(tu_session *session) {
    if (!session || is_stuck(session)) return;
    tu__session_free_executions(session);
    for (session_device *d = session->devices, *next; d; d = next) {
        tu__device *device = d->resources.device, *pinned_by = d->resources.pinned_by;
        next = d->next;
        tu__session_device_free(&d->resources);
        if (pinned_by) tu__devices_close(1, &pinned_by);
        tu__devices_close(1, &device);
        tu__free(d);
    }
    pthread_mutex_destroy(&session->lock);
    tu__free(session);
}

static session_device *add_device(tu_session *session, tu__device *device) {
    session_device *d = tu__alloc(sizeof *d, "a session");
    if (!d) return NULL;
    tu__session_device_init(&d->resources, device);
    tu__device_retain(device);
    d->next = session->devices;
    session->devices = d;
    return d;
}

tu__session_device *tu__session_device_of(tu_session *session, tu__device *device) {
    if (!session) return &device->shared;
    pthread_mutex_lock(&session->lock);
    session_device *d = session->devices;
    while (d && d->resources.device != device) d = d->next;
    if (!d) d = add_device(session, device);
    pthread_mutex_unlock(&session->lock);
    return d ? &d->resources : NULL;
}
