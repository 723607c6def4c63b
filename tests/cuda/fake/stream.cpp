/* The fake driver: streams, events, captures and graphs.
 *
 * As on a real GPU, captured work becomes a node that depends on the previous node captured in its stream and on the
 * events the stream has waited for since. A graph runs its nodes in an order as different as possible from that of
 * the capture: of all ready nodes always the latest. A missing wait is thus detected.
 */
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "driver.h"

/* ---- Data structures ---- */

typedef std::set<size_t> node_set; /* of nodes */

struct item {
    std::string what;
    work run;
    node_set after;                /* dependencies, for nodes of a graph */
    std::function<bool()> ready; /* empty: it may run as soon as it is first in its stream */
    begun_work begin = {};       /* of work that waits for other processes: makes `ready`, each time it runs */
};

struct CUgraph_st {
    std::vector<item> nodes;
};
struct CUgraphExec_st {
    std::vector<item> nodes;
};

struct capture {
    CUgraph graph;
    CUstream origin;
    CUstreamCaptureMode mode;
    std::thread::id thread;
    bool is_invalid;
    bool breaks; /* it becomes invalid after its first node (FAKE_CUDA_INVALIDATE) */
};

struct CUstream_st {
    CUcontext context;
    bool blocking; /* synchronises with the default stream */
    std::deque<item> queue;
    std::shared_ptr<capture> captured;
    node_set depends_on; /* dependencies of the next captured node */
};

struct event_state {
    CUcontext context;
    CUstream stream;
    uint64_t recorded, completed; /* how often it was recorded, and how many of these have run */
    double time;
    bool timed;
    std::shared_ptr<capture> captured;
    node_set depends_on; /* dependencies of the captured stream when it was recorded */
};
struct CUevent_st {
    std::shared_ptr<event_state> state;
};

static std::set<CUstream> streams;

static bool is_eager() {
    return fake_setting("FAKE_CUDA_EAGER", 0) != 0;
}

CUcontext context_of(CUstream stream) {
    fake_guard guard(fake_lock());
    return streams.count(stream) ? stream->context : current_context();
}

/* ---- Running enqueued work ---- */

static int current_gpu = -1;
int working_gpu() {
    return current_gpu;
}
/* Wraps work so that it runs with its GPU as the current one, also when it was captured or another GPU waits for
 * it. */
static work on_gpu_of(CUstream stream, work w) {
    const CUcontext context = context_of(stream);
    return [=] {
        int before = current_gpu;
        current_gpu = context ? context->device : -1;
        w();
        current_gpu = before;
    };
}

/* A graph launch hangs (FAKE_CUDA_HANG): nothing after it will ever run. */
static bool is_hung;

/* Runs the first item of a stream. Returns false if it has not ended: it hangs, or waits for another process. It then
 * stays in the queue. */
static bool run_first(CUstream stream) {
    item &waiting = stream->queue.front();
    if (waiting.begin && !waiting.ready) waiting.ready = waiting.begin();
    if (waiting.ready && !waiting.ready()) return false;
    item first = std::move(stream->queue.front());
    stream->queue.pop_front();
    first.run();
    return true;
}
static bool run_all(CUstream stream) {
    while (!stream->queue.empty())
        if (!run_first(stream)) return false;
    return true;
}
/* Before trying again: hangs if the work hangs, else lets other threads and processes continue. */
static void wait_for_others() {
    if (is_hung) fake_hang();
    fake_pause();
}
static void finish(CUstream stream) {
    while (!run_all(stream)) wait_for_others();
}
static bool run_everything() {
    bool all = true;
    for (CUstream stream : streams)
        if (!run_all(stream) && (!is_hung || stream->context == current_context())) all = false;
    return all;
}
void finish_everything() {
    fake_guard guard(fake_lock());
    while (!run_everything()) wait_for_others();
}
/* Work in the default stream runs after what blocking streams were given before. */
static void finish_blocking() {
    for (CUstream stream : streams)
        if (stream->blocking) finish(stream);
}

static bool is_stream(CUstream stream) {
    return streams.count(stream) != 0;
}

static CUresult capture_one(CUstream stream, item i) {
    if (stream->captured->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    std::vector<item> &nodes = stream->captured->graph->nodes;
    i.after = stream->depends_on;
    nodes.push_back(std::move(i));
    stream->depends_on = {nodes.size() - 1};
    stream->captured->is_invalid = stream->captured->breaks;
    return CUDA_SUCCESS;
}

static CUresult enqueue_default(work w) {
    for (CUstream stream : streams)
        if (stream->captured && stream->blocking) {
            stream->captured->is_invalid = true;
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    finish_blocking();
    w();
    return CUDA_SUCCESS;
}

static CUresult enqueue(CUstream stream, item i) {
    stream->queue.push_back(std::move(i));
    if (is_eager()) run_all(stream);
    return CUDA_SUCCESS;
}

CUresult fake_enqueue(CUstream stream, const char *what, work w) {
    fake_guard guard(fake_lock());
    w = on_gpu_of(stream, std::move(w));
    if (!stream || stream == CU_STREAM_LEGACY) return enqueue_default(std::move(w));
    NEED(is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
    item i = {what, std::move(w), {}, {}};
    return stream->captured ? capture_one(stream, std::move(i)) : enqueue(stream, std::move(i));
}

/* Makes work run with its GPU as the current one, as on_gpu_of. */
static begun_work begun_on_gpu_of(CUstream stream, begun_work begin) {
    const CUcontext context = context_of(stream);
    const int gpu = context ? context->device : -1;
    return [=] {
        std::function<bool()> go_on = begin();
        return [=] {
            int before = current_gpu;
            current_gpu = gpu;
            bool done = go_on();
            current_gpu = before;
            return done;
        };
    };
}

CUresult fake_enqueue_waiting(CUstream stream, const char *what, begun_work begin) {
    fake_guard guard(fake_lock());
    NEED(stream && is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
    item i = {what, [] {}, {}, {}, begun_on_gpu_of(stream, std::move(begin))};
    return stream->captured ? capture_one(stream, std::move(i)) : enqueue(stream, std::move(i));
}

bool fake_is_captured(CUstream stream) {
    fake_guard guard(fake_lock());
    return is_stream(stream) && stream->captured;
}

/* ---- Streams ---- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    *stream = new CUstream_st{current_context(), !(flags & CU_STREAM_NON_BLOCKING), {}, nullptr, {}};
    streams.insert(*stream);
    fake_add_object("stream", *stream);
    return CUDA_SUCCESS;
}
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int) {
    return cuStreamCreate(stream, flags);
}
CUresult cuStreamDestroy(CUstream stream) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED(is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
    if (stream->captured && stream->captured->origin == stream) {
        fake_remove_object("graph", stream->captured->graph);
        delete stream->captured->graph;
    }
    finish(stream);
    streams.erase(stream);
    fake_remove_object("stream", stream);
    delete stream;
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    if (!stream) {
        finish_blocking();
    } else {
        NEED(is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
        if (stream->captured) {
            stream->captured->is_invalid = true;
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
        finish(stream);
    }
    check_guards();
    return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
    fake_guard guard(fake_lock());
    NEED(!stream || is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
    if (!stream || stream->queue.empty()) return CUDA_SUCCESS;
    run_first(stream); /* repeated queries make progress */
    return CUDA_ERROR_NOT_READY;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    fake_guard guard(fake_lock());
    *status = !stream || !stream->captured ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->captured->is_invalid     ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                           : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

/* ---- Events ---- */

static double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* Runs the work before the event's `count`-th recording in its stream. Returns false if that never ends. */
static bool run_until_recorded(const std::shared_ptr<event_state> &e, uint64_t count) {
    while (e->completed < count && is_stream(e->stream) && !e->stream->queue.empty())
        if (!run_first(e->stream)) return false;
    return true;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    *event = new CUevent_st{std::make_shared<event_state>()};
    (*event)->state->context = current_context();
    (*event)->state->timed = !(flags & CU_EVENT_DISABLE_TIMING);
    fake_add_object("event", *event);
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
    NEED(fake_remove_object("event", event), CUDA_ERROR_INVALID_HANDLE);
    delete event;
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED(fake_is_object("event", event) && (!stream || is_stream(stream)), CUDA_ERROR_INVALID_HANDLE);
    NEED(event->state->context == context_of(stream), CUDA_ERROR_INVALID_HANDLE);
    std::shared_ptr<event_state> e = event->state;
    e->captured = stream ? stream->captured : nullptr;
    if (e->captured) {
        e->depends_on = stream->depends_on;
        return e->captured->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    }
    e->stream = stream;
    uint64_t count = ++e->recorded;
    return fake_enqueue(stream, "cuEventRecord", [=] {
        e->completed = count;
        e->time = seconds_now();
    });
}
/* External: a graph node that records the event at every replay. */
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    if (!(flags & CU_EVENT_RECORD_EXTERNAL)) return cuEventRecord(event, stream);
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED(fake_is_object("event", event) && stream && is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
    NEED(event->state->context == context_of(stream), CUDA_ERROR_INVALID_HANDLE);
    NEED(stream->captured, CUDA_ERROR_INVALID_VALUE);
    std::shared_ptr<event_state> e = event->state;
    e->captured = nullptr;
    e->stream = stream;
    return fake_enqueue(stream, "cuEventRecordWithFlags", [=] {
        e->completed = ++e->recorded;
        e->time = seconds_now();
    });
}
CUresult cuEventSynchronize(CUevent event) {
    fake_guard guard(fake_lock());
    NEED(fake_is_object("event", event), CUDA_ERROR_INVALID_HANDLE);
    NEED(!event->state->captured, CUDA_ERROR_CAPTURED_EVENT);
    const std::shared_ptr<event_state> e = event->state;
    while (!run_until_recorded(e, e->recorded)) wait_for_others();
    check_guards();
    return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
    fake_guard guard(fake_lock());
    NEED(fake_is_object("event", event), CUDA_ERROR_INVALID_HANDLE);
    NEED(!event->state->captured, CUDA_ERROR_CAPTURED_EVENT);
    return run_until_recorded(event->state, event->state->recorded) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    fake_guard guard(fake_lock());
    NEED(fake_is_object("event", start) && fake_is_object("event", end), CUDA_ERROR_INVALID_HANDLE);
    const event_state &a = *start->state, &b = *end->state;
    NEED(a.timed && b.timed && a.recorded && b.recorded, CUDA_ERROR_INVALID_HANDLE);
    NEED(a.completed == a.recorded && b.completed == b.recorded, CUDA_ERROR_NOT_READY);
    *milliseconds = (float)((b.time - a.time) * 1e3);
    return CUDA_SUCCESS;
}
/* If the event was recorded in a captured stream, the waiting stream joins the capture. */
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED(fake_is_object("event", event) && is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
    std::shared_ptr<event_state> e = event->state;
    if (e->captured) {
        NEED(!stream->captured || stream->captured == e->captured, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        if (!stream->captured) stream->depends_on.clear();
        stream->captured = e->captured;
        stream->depends_on.insert(e->depends_on.begin(), e->depends_on.end());
        return CUDA_SUCCESS;
    }
    if (stream->captured) {
        stream->captured->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    uint64_t count = e->recorded;
    return enqueue(stream, {"cuStreamWaitEvent", [] {}, {}, [=] { return run_until_recorded(e, count); }});
}

/* ---- Captures ---- */

CUresult check_not_captured() {
    for (CUstream stream : streams) {
        const capture *c = stream->captured.get();
        if (!c || c->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (c->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && c->thread != std::this_thread::get_id())
            continue;
        stream->captured->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult check_context_not_captured() {
    for (CUstream stream : streams)
        if (stream->captured && context_of(stream) == current_context()) {
            stream->captured->is_invalid = true;
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return CUDA_SUCCESS;
}

/* Also such a call takes some time if captures do (FAKE_CUDA_CAPTURE_PAUSE). */
CUresult synchronise_context(CUcontext context) {
    enum { PAUSES = 4 };
    fake_guard guard(fake_lock());
    NEED_NO_CAPTURE;
    for (int i = 0; i < PAUSES && fake_setting("FAKE_CUDA_CAPTURE_PAUSE", 0); i++) fake_pause();
    for (CUstream stream : streams)
        if (stream->captured && stream->context == context) stream->captured->is_invalid = true;
    return CUDA_SUCCESS;
}

bool fake_synchronise() {
    return synchronise_context(current_context()) == CUDA_SUCCESS;
}

/* True for the first FAKE_CUDA_INVALIDATE captures since that was set or changed. */
static bool breaks_next_capture() {
    static uint64_t captures, last_broken;
    uint64_t broken = fake_setting("FAKE_CUDA_INVALIDATE", 0);
    if (broken != last_broken) captures = 0;
    last_broken = broken;
    return captures++ < broken;
}

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED(stream && is_stream(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    NEED(!stream->captured, CUDA_ERROR_ILLEGAL_STATE);
    CUgraph graph = new CUgraph_st;
    fake_add_object("graph", graph);
    stream->captured = std::make_shared<capture>(
        capture{graph, stream, mode, std::this_thread::get_id(), false, breaks_next_capture()});
    stream->depends_on.clear();
    return CUDA_SUCCESS;
}
/* The pause lets other threads make calls that a capture forbids. */
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    CUresult result = begin_capture(stream, mode);
    std::this_thread::sleep_for(std::chrono::milliseconds(fake_setting("FAKE_CUDA_CAPTURE_PAUSE", 0)));
    return result;
}
/* Returns these nodes and all their direct and indirect dependencies. */
static node_set add_dependencies(const std::vector<item> &nodes, node_set nodes_found) {
    std::vector<size_t> left(nodes_found.begin(), nodes_found.end());
    while (!left.empty()) {
        size_t node = left.back();
        left.pop_back();
        for (size_t before : nodes[node].after)
            if (nodes_found.insert(before).second) left.push_back(before);
    }
    return nodes_found;
}

/* True if the origin stream depends on everything that other streams captured. */
static bool is_joined(const capture &c) {
    const node_set before = add_dependencies(c.graph->nodes, c.origin->depends_on);
    for (CUstream other : streams)
        if (other->captured.get() == &c)
            for (size_t node : other->depends_on)
                if (!before.count(node)) return false;
    return true;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    *graph = nullptr;
    NEED(is_stream(stream) && stream->captured && stream->captured->origin == stream,
         CUDA_ERROR_ILLEGAL_STATE);
    std::shared_ptr<capture> c = stream->captured;
    NEED(c->mode == CU_STREAM_CAPTURE_MODE_RELAXED || c->thread == std::this_thread::get_id(),
         CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    bool joined = is_joined(*c);
    for (CUstream other : streams)
        if (other->captured == c) other->captured = nullptr;
    bool is_invalid = c->is_invalid || c->breaks;
    if (is_invalid || !joined) {
        fake_remove_object("graph", c->graph);
        delete c->graph;
        return is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    *graph = c->graph;
    return CUDA_SUCCESS;
}

/* ---- Graphs ---- */

/* Returns the nodes in an order that runs the latest ready node first. */
static std::vector<item> in_reverse_order(const std::vector<item> &nodes) {
    std::vector<size_t> waits(nodes.size());
    std::vector<std::vector<size_t>> next(nodes.size());
    std::set<size_t, std::greater<size_t>> ready;
    for (size_t i = 0; i < nodes.size(); i++) {
        waits[i] = nodes[i].after.size();
        for (size_t before : nodes[i].after) next[before].push_back(i);
        if (!waits[i]) ready.insert(i);
    }
    std::vector<item> order;
    while (!ready.empty()) {
        size_t one = *ready.begin();
        ready.erase(ready.begin());
        order.push_back(nodes[one]);
        for (size_t after : next[one])
            if (--waits[after] == 0) ready.insert(after);
    }
    return order;
}

CUresult cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, unsigned long long) {
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED(fake_is_object("graph", graph), CUDA_ERROR_INVALID_VALUE);
    *executable = new CUgraphExec_st{in_reverse_order(graph->nodes)};
    fake_add_object("executable graph", *executable);
    return CUDA_SUCCESS;
}
CUresult cuGraphUpload(CUgraphExec executable, CUstream stream) {
    NEED(fake_is_object("executable graph", executable), CUDA_ERROR_INVALID_VALUE);
    return fake_enqueue(stream, "cuGraphUpload", [] {});
}
/* A launch that stops half way. */
static item hanging_launch(CUgraphExec executable) {
    auto started = std::make_shared<bool>(false);
    return {"cuGraphLaunch",
            [] {},
            {},
            [=] {
                for (size_t i = 0; !*started && i < executable->nodes.size() / 2; i++)
                    executable->nodes[i].run();
                *started = is_hung = true;
                return false;
            }};
}
/* Runs the nodes of a graph; a node that waits for another process is continued later. */
static begun_work launch_of(CUgraphExec executable) {
    return [=] {
        if (!fake_is_object("executable graph", executable)) fake_fail("a graph was destroyed before it had run");
        auto next = std::make_shared<size_t>(0);
        auto go_on = std::make_shared<std::function<bool()>>();
        return [=] {
            for (; *next < executable->nodes.size(); ++*next) {
                const item &node = executable->nodes[*next];
                if (node.begin && !*go_on) *go_on = node.begin();
                if (*go_on && !(*go_on)()) return false;
                *go_on = nullptr;
                node.run();
            }
            return true;
        };
    };
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    static uint64_t launches; /* since FAKE_CUDA_HANG was set */
    fake_guard guard(fake_lock());
    NEED_CONTEXT;
    NEED(fake_is_object("executable graph", executable), CUDA_ERROR_INVALID_VALUE);
    uint64_t hangs = fake_setting("FAKE_CUDA_HANG", 0);
    launches = hangs ? launches + 1 : 0;
    if (hangs && launches == hangs && is_stream(stream)) return enqueue(stream, hanging_launch(executable));
    return fake_enqueue_waiting(stream, "cuGraphLaunch", launch_of(executable));
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    NEED(fake_is_object("graph", graph) && !nodes, CUDA_ERROR_INVALID_VALUE);
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
    NEED(fake_remove_object("graph", graph), CUDA_ERROR_INVALID_VALUE);
    delete graph;
    return CUDA_SUCCESS;
}
/* Waits for launches in flight. */
CUresult cuGraphExecDestroy(CUgraphExec executable) {
    fake_guard guard(fake_lock());
    NEED(fake_is_object("executable graph", executable), CUDA_ERROR_INVALID_VALUE);
    finish_everything();
    fake_remove_object("executable graph", executable);
    delete executable;
    return CUDA_SUCCESS;
}
