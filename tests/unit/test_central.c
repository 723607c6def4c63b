/* Statements about variables that one device holds and others read: they are updated in their own memory once everybody has
 * read them; what a device far away reads in every run is pinned for it, as long as it lies there and no longer; what
 * such devices send back they bring at once; and what is under way between them and the host has arrived when it is read. */
#include "far_device.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include <tutti/tutti.h>

#include "copiers.h"

/* ---- The far device, which wants memory pinned ---- */

enum { MAX_PINNED = 8 };

static struct {
    void *host[MAX_PINNED];
    size_t bytes[MAX_PINNED];
    int count;
    bool refuses;
} pinned;

static tu_status pin_far(tu_device_instance *device, void *host, size_t bytes) {
    (void)device;
    if (pinned.refuses) return tu_fail(TU_NO_MEMORY, "no more can be pinned");
    assert_true(pinned.count < MAX_PINNED);
    pinned.host[pinned.count] = host;
    pinned.bytes[pinned.count++] = bytes;
    return TU_OK;
}

static void unpin_far(tu_device_instance *device, void *host) {
    (void)device;
    int at = 0;
    while (at < pinned.count && pinned.host[at] != host) at++;
    assert_true(at < pinned.count);
    pinned.count--;
    pinned.host[at] = pinned.host[pinned.count];
    pinned.bytes[at] = pinned.bytes[pinned.count];
}

static bool is_pinned(const tu_state *state, const char *name) {
    const tu__variable *v = NULL;
    for (size_t i = 0; i < state->count; i++)
        if (strcmp(state->variables[i].name, name) == 0) v = &state->variables[i];
    assert_non_null(v);
    for (int i = 0; i < pinned.count; i++)
        if (pinned.host[i] == v->data) return pinned.bytes[i] == tu_type_bytes(v->type);
    return false;
}

static void plug_in_pinning_far(void) {
    plug_in_far();
    memset(&pinned, 0, sizeof pinned);
    far_api.pin = pin_far;
    far_api.unpin = unpin_far;
}

/* ---- A network whose weights are worth pinning, and whose biases are not ---- */

enum { BATCH = 4, IN = 16, OUT = 1500, STEPS = 3 };

typedef struct trainer {
    tu_graph *graph;
    tu_value x, loss;
    tu_program *step;
    tu_state *state;
} trainer;

static tu_program *compile(const trainer *t, const char *devices, const char *strategy) {
    tu_program *program;
    if (tu_compile(t->graph, &program, .devices = devices, .strategy = strategy, .threads = 1,
                   .fetch = &t->loss, .fetch_count = 1, .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    return program;
}

static void begin(trainer *t, const char *devices, const char *strategy) {
    assert_int_equal(tu_graph_new(&t->graph), TU_OK);
    t->x = tu_batch_input(t->graph, "x", TU_F32, TU_SHAPE(BATCH, IN));
    tu_value w =
        tu_variable(t->graph, "w", TU_F32, TU_SHAPE(IN, OUT), .init = {.kind = TU_INIT_NORMAL, .b = 0.1});
    tu_value b = tu_variable(t->graph, "b", TU_F32, TU_SHAPE(OUT));
    t->loss = tu_mean(
        tu_square(tu_sub(tu_tanh(tu_add(tu_matmul(t->x, w), b)), tu_fill(t->graph, TU_F32, TU_SCALAR, 0.5))));
    assert_int_equal(tu_add_sgd(t->loss, 0.5, 0.9), TU_OK);
    t->step = compile(t, devices, strategy);
    assert_int_equal(tu_state_new(t->graph, &t->state, .seed = 4), TU_OK);
}

static void end(trainer *t) {
    tu_program_free(t->step);
    tu_state_free(t->state);
    tu_graph_free(t->graph);
}

static float run(const trainer *t, tu_program *program, int step) {
    float x[BATCH * IN], loss = 0;
    for (int i = 0; i < BATCH * IN; i++) x[i] = (float)sin(i * 0.7 + step);
    if (tu_run(program, t->state, 1, (tu_feed[]){{t->x, x}}, (void *[]){&loss}) != TU_OK)
        fail_msg("%s", tu_message());
    return loss;
}

/* ---- Updates ---- */

static void expect_update(const tu_program *program, const char *variable, bool in_place) {
    bool found = false;
    for (size_t i = 0; i < program->device_count; i++)
        for (uint32_t k = 0; k < program->partitions[i].update_count; k++) {
            const tu__update *u = &program->partitions[i].updates[k];
            if (strcmp(program->unit.graph->nodes[u->variable]->name, variable) != 0) continue;
            assert_int_equal(u->in_place, in_place);
            found = true;
        }
    assert_true(found);
}

static void assert_close(const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++) assert_true(fabsf(a[i] - b[i]) < 1e-5f);
}

static void what_replicas_read_is_updated_in_its_own_memory(void **unused) {
    (void)unused;
    static const char *const lists[] = {"cpu:0/2", "far:0/2"};
    static float alone[IN * OUT], shared[IN * OUT];
    plug_in_far();
    for (int l = 0; l < 2; l++) {
        trainer one, two;
        begin(&one, "cpu:0", NULL);
        begin(&two, lists[l], "central");
        expect_update(two.step, "w", true);
        expect_update(two.step, "b", true);
        for (int i = 0; i < STEPS; i++) {
            float loss = run(&one, one.step, i);
            assert_true(fabsf(loss - run(&two, two.step, i)) < 1e-5f);
        }
        assert_int_equal(tu_state_get(one.state, "w", alone, sizeof alone), TU_OK);
        assert_int_equal(tu_state_get(two.state, "w", shared, sizeof shared), TU_OK);
        assert_close(alone, shared, IN * OUT);
        end(&one);
        end(&two);
    }
}

/* One gets the other's old value, which has to wait elsewhere; both leave, and arrive as they were. */
static void variables_that_leave_can_be_exchanged(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_value both = {0}, a, b;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_with_device(g, "cpu:0.0") {
        a = tu_variable(g, "a", TU_F32, TU_SHAPE(8), .init = {.kind = TU_INIT_CONSTANT, .a = 1});
        b = tu_variable(g, "b", TU_F32, TU_SHAPE(8), .init = {.kind = TU_INIT_CONSTANT, .a = 2});
        tu_assign(a, b);
        tu_assign(b, tu_add(a, tu_fill(g, TU_F32, TU_SCALAR, 10)));
    }
    tu_with_device(g, "cpu:0.1") both = tu_add(tu_scale(a, 100), b);
    tu_program *program;
    tu_state *state;
    if (tu_compile(g, &program, .devices = "cpu:0/2", .fetch = &both, .fetch_count = 1, .updates = true) !=
        TU_OK)
        fail_msg("%s", tu_message());
    expect_update(program, "a", false);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    float expected_a = 1, expected_b = 2, seen[8];
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(tu_run(program, state, 0, NULL, (void *[]){seen}), TU_OK);
        for (int k = 0; k < 8; k++) assert_true(seen[k] == 100 * expected_a + expected_b);
        float old = expected_a;
        expected_a = expected_b;
        expected_b = old + 10;
    }
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

/* ---- Pinning ---- */

static void what_replicas_read_is_pinned_as_long_as_it_lies_there(void **unused) {
    (void)unused;
    trainer t;
    static float w[IN * OUT], after[IN * OUT];
    plug_in_pinning_far();
    begin(&t, "far:0/2", "central");
    assert_int_equal(pinned.count, 0);
    run(&t, t.step, 0);
    assert_true(is_pinned(t.state, "w"));
    assert_false(is_pinned(t.state, "b")); /* too little to be worth it */
    int count = pinned.count;

    assert_int_equal(tu_state_set(t.state, "w", w, sizeof w),
                     TU_OK); /* loaded: the same memory, other numbers */
    run(&t, t.step, 1);
    assert_int_equal(pinned.count, count);
    assert_true(is_pinned(t.state, "w"));
    assert_int_equal(tu_state_get(t.state, "w", after, sizeof after), TU_OK);
    for (int i = 0; i < IN * OUT; i++) assert_true(after[i] != 0 && fabsf(after[i]) < 0.1f);

    tu_program *far_away = compile(&t, "far:0", NULL); /* it moves, and comes back */
    run(&t, far_away, 2);
    assert_false(is_pinned(t.state, "w"));
    assert_true(pinned.count < count);
    run(&t, t.step, 3);
    assert_true(is_pinned(t.state, "w"));
    tu_program_free(far_away);
    end(&t);
    assert_int_equal(pinned.count, 0);
}

static void a_state_may_outlive_the_program_that_pinned_it(void **unused) {
    (void)unused;
    trainer t;
    plug_in_pinning_far();
    begin(&t, "far:0/2", "central");
    run(&t, t.step, 0);
    tu_program_free(t.step);
    assert_true(is_pinned(t.state, "w"));
    t.step = compile(&t, "cpu:0", NULL);
    run(&t, t.step, 1);
    end(&t);
    assert_int_equal(pinned.count, 0);
}

static void what_cannot_be_pinned_is_sent_all_the_same(void **unused) {
    (void)unused;
    float losses[2][STEPS];
    for (int refuses = 0; refuses < 2; refuses++) {
        trainer t;
        plug_in_pinning_far();
        pinned.refuses = refuses;
        begin(&t, "far:0/2", "central");
        for (int i = 0; i < STEPS; i++) losses[refuses][i] = run(&t, t.step, i);
        assert_int_equal(is_pinned(t.state, "w"), !refuses);
        end(&t);
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
}

/* ---- Moves that are begun and not waited for ---- */

/* A move that was begun is made when somebody waits for its event, which is as late as can be. */
typedef struct far_event {
    void *to;
    const void *from;
    size_t bytes; /* 0: nothing is under way */
    int asked;    /* how often whether it has landed */
} far_event;

static struct { atomic_int uploads, downloads, landed; } moves;

static int moves_begun(void) {
    return moves.uploads + moves.downloads;
}

static tu_status event_new_far(tu_device_instance *device, void **event) {
    (void)device;
    *event = test_calloc(1, sizeof(far_event));
    return TU_OK;
}

static void event_free_far(tu_device_instance *device, void *event) {
    (void)device;
    test_free(event);
}

static tu_status event_record_far(tu_device_instance *device, void *event) {
    (void)device;
    (void)event; /* what was launched is done */
    return TU_OK;
}

static tu_status land(tu_device_instance *device, void *event) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* any thread may wait for an event */
    (void)device;
    far_event *e = event;
    pthread_mutex_lock(&lock);
    if (e->bytes) {
        memcpy(e->to, e->from, e->bytes);
        e->bytes = 0;
        moves.landed++;
    }
    pthread_mutex_unlock(&lock);
    return TU_OK;
}

static tu_status upload_begin_far(tu_device_instance *device, void *to, const void *host, size_t bytes,
                                  void *event) {
    (void)device;
    *(far_event *)event = (far_event){.to = to, .from = host, .bytes = bytes};
    moves.uploads++;
    return TU_OK;
}

static tu_status download_begin_far(tu_device_instance *device, void *host, const void *from, size_t bytes,
                                    void *after, void *event) {
    (void)device;
    assert_non_null(after);
    *(far_event *)event = (far_event){.to = host, .from = from, .bytes = bytes};
    moves.downloads++;
    return TU_OK;
}

/* It has landed when it is asked for again. */
static tu_status event_query_far(tu_device_instance *device, void *event, bool *happened) {
    far_event *e = event;
    *happened = e->asked++ > 0;
    return *happened ? land(device, event) : TU_OK;
}

/* Who begins them: threads of their own, or those that launch, which need pinned memory. */
static void plug_in_far_that_begins_moves(bool by_launcher) {
    if (by_launcher)
        plug_in_pinning_far();
    else
        plug_in_far();
    if (by_launcher) far_api.event_query = event_query_far;
    moves.uploads = moves.downloads = moves.landed = 0;
    far_api.event_new = event_new_far;
    far_api.event_free = event_free_far;
    far_api.event_record = event_record_far;
    far_api.event_wait = far_api.event_synchronize = land;
    far_api.upload_begin = upload_begin_far;
    far_api.download_begin = download_begin_far;
}

static void forget_events(void) {
    far_api.event_new = NULL;
    far_api.event_free = NULL;
    far_api.event_record = far_api.event_wait = far_api.event_synchronize = NULL;
    far_api.upload_begin = NULL;
    far_api.download_begin = NULL;
    far_api.event_query = NULL;
    far_api.pin = NULL;
    far_api.unpin = NULL;
}

static void what_is_under_way_has_landed_before_it_is_read_or_written_over(void **unused) {
    (void)unused;
    enum { AT_ONCE, BY_COPIERS, UNPINNED, BY_LAUNCHERS, WAYS };
    float losses[WAYS][STEPS];
    static float w[WAYS][IN * OUT];
    for (int way = 0; way < WAYS; way++) {
        trainer t;
        plug_in_far();
        if (way != AT_ONCE) plug_in_far_that_begins_moves(way >= UNPINNED);
        pinned.refuses =
            way == UNPINNED; /* what launchers could begin is then left to copiers, but for small values */
        begin(&t, "far:0/2", "central");
        for (int i = 0; i < STEPS; i++) losses[way][i] = run(&t, t.step, i);
        assert_int_equal(tu_state_get(t.state, "w", w[way], sizeof w[way]), TU_OK);
        assert_int_equal(count_copiers(t.step), way == BY_LAUNCHERS ? 0 : 2);
        end(&t);
        assert_memory_equal(losses[0], losses[way], sizeof losses[0]);
        assert_memory_equal(w[0], w[way], sizeof w[0]);
        if (way == AT_ONCE) continue;
        assert_int_equal(moves.uploads, 2 * 2 * STEPS);   /* of two variables to two devices */
        assert_int_equal(moves.downloads, 2 * 3 * STEPS); /* of two gradients and the loss */
        assert_int_equal(moves.landed, moves_begun());
        forget_events();
    }
}

static void nothing_is_under_way_when_a_run_has_failed(void **unused) {
    (void)unused;
    for (int trial = 0; trial < 8; trial++) {
        trainer t;
        float x[BATCH * IN] = {0};
        plug_in_far_that_begins_moves(trial % 2);
        begin(&t, "far:0/2", "central");
        far.fails_in_launch = 1 + trial / 2;
        assert_int_equal(tu_run(t.step, t.state, 1, (tu_feed[]){{t.x, x}}, NULL), TU_DEVICE);
        assert_true(strstr(tu_message(), "the far device has gone away"));
        assert_int_equal(moves.landed, moves_begun());
        end(&t);
        forget_events();
    }
}

/* ---- Bringing ---- */

/* What leaves a far device waits until something leaves the other one too, or has waited for longer than a test takes. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    tu_device_instance *seen[2];
    int count;
} leaving = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void note_leaving(tu_device_instance *device) {
    for (int i = 0; i < leaving.count; i++)
        if (leaving.seen[i] == device) return;
    assert_true(leaving.count < 2);
    leaving.seen[leaving.count++] = device;
    pthread_cond_broadcast(&leaving.changed);
}

static tu_status download_together(tu_device_instance *device, void *host, const void *from, size_t bytes) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    bool in_time = true;
    pthread_mutex_lock(&leaving.lock);
    note_leaving(device);
    while (leaving.count < 2 && in_time)
        in_time = pthread_cond_timedwait(&leaving.changed, &leaving.lock, &until) == 0;
    pthread_mutex_unlock(&leaving.lock);
    if (!in_time) return tu_fail(TU_DEVICE, "nothing leaves the other device");
    return tu__cpu_api.download(device, host, from, bytes);
}

static void devices_far_away_bring_what_they_send_at_once(void **unused) {
    (void)unused;
    trainer t;
    plug_in_far();
    begin(&t, "far:0/2", "central");
    far_api.download = download_together;
    leaving.count = 0;
    run(&t, t.step, 0);
    assert_int_equal(leaving.count, 2);
    far_api.download = tu__cpu_api.download;
    end(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_replicas_read_is_updated_in_its_own_memory),
        cmocka_unit_test(variables_that_leave_can_be_exchanged),
        cmocka_unit_test(what_replicas_read_is_pinned_as_long_as_it_lies_there),
        cmocka_unit_test(a_state_may_outlive_the_program_that_pinned_it),
        cmocka_unit_test(what_cannot_be_pinned_is_sent_all_the_same),
        cmocka_unit_test(what_is_under_way_has_landed_before_it_is_read_or_written_over),
        cmocka_unit_test(nothing_is_under_way_when_a_run_has_failed),
        cmocka_unit_test(devices_far_away_bring_what_they_send_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
