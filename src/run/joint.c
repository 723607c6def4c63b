/* Multi-step calls that several devices execute together, without the engine between steps.
 *
 * In an ordinary run every device has a host thread, and threads wait for each other when values are copied. Devices
 * with `repeat_joint` instead get one list that describes a step of all devices, in an order in which no entry waits
 * for a later one. The list is merged from the steps of the partitions: one step of each in turn, unless it must
 * wait:
 *
 *     partition 0   launch a b | signal x | launch c | barrier | launch u        launch 0 a b
 *     partition 1   wait x | launch d | barrier | launch v                  ->   copy x 0 to 1, wait x
 *                                                                                launch 0 c, launch 1 d
 *                                                                                launch 0 u, launch 1 v
 *
 * A collective (collectives.h) is one entry, at the point where the last of its ranks posts its values. Each rank
 * waits for it where it would run it. It comes after everything that its ranks were given before, but since
 * partitions take turns, it delays nothing that an early rank could compute meanwhile.
 *
 * The barrier is left out: it ensures that a run that fails changes nothing, which multi-step calls do not guarantee.
 * Instead, a partition waits until other partitions have read its variables, before they are overwritten. Next values
 * that could not be written in place are copied at the end of a partition's step, after its results are saved.
 *
 * The list is written when the program is compiled; every call fills in the addresses. */
#include "run/joint.h"

#include <stdio.h>

#include "base/alloc.h"
#include "run/program.h"

struct tu__joint_source {
    uint32_t partition;               /* index in the program: the destination */
    const tu__receive *receive;       /* COPY between partitions */
    const tu__update *update;         /* COPY within a partition: a variable's next value */
    bool to_staging;                  /* the copy goes to the update's staging buffer */
    const tu__collective *collective; /* COLLECTIVE */
};

/* ---- Checking ---- */

static const tu_device_api *find_common_api(const tu_program *p) {
    const tu_device_api *api = NULL;
    for (size_t i = 0; i < p->device_count; i++) {
        if (p->partitions[i].is_idle) continue;
        if (api && p->partitions[i].device->api != api) return NULL;
        api = p->partitions[i].device->api;
    }
    return api && api->repeat_joint ? api : NULL;
}

/* True if devices can run all collectives without the engine. */
static bool can_run_collectives(const tu_program *p) {
    for (uint32_t i = 0; i < p->collectives.count; i++)
        if (p->collectives.list[i].path != TU__COLLECTIVE_ON_ONE_GPU &&
            p->collectives.list[i].path != TU__COLLECTIVE_PEER_TO_PEER)
            return false;
    return true;
}

/* True if all feeds and fetches belong to active partitions. */
static bool all_feeds_are_active(const tu_program *p) {
    for (size_t i = 0; i < p->feed_count; i++)
        if (p->partitions[p->feeds[i].partition].is_idle) return false;
    for (size_t i = 0; i < p->unit.fetch_count; i++)
        if (p->partitions[p->fetches[i].partition].is_idle) return false;
    return true;
}

/* ---- The list of moves ---- */

typedef struct move_writer {
    const tu_program *program;
    tu__joint *joint;
    uint32_t *next_step;       /* per partition of the program: its next step */
    uint32_t *copy_move;       /* per event: index of the copy's move; TU_NO_NODE: not written yet */
    uint32_t *posted;          /* per collective: number of ranks that have posted */
    uint32_t *collective_move; /* per collective: index of its move; TU_NO_NODE: not written yet */
    uint32_t rank_count;       /* of the collectives written so far */
} move_writer;

static uint32_t add_move(tu__joint *j, tu_joint_move move, tu__joint_source source) {
    j->moves[j->move_count] = move;
    j->sources[j->move_count] = source;
    return j->move_count++;
}

static void add_copy(move_writer *w, const tu__receive *receive) {
    const tu_joint_move move = {.kind = TU_JOINT_COPY,
                                .part = w->joint->part_index[receive->partition],
                                .other = w->joint->part_index[receive->source_partition]};
    w->copy_move[receive->received] =
        add_move(w->joint, move, (tu__joint_source){.partition = receive->partition, .receive = receive});
}

/* Writes the collective once the last of its ranks has posted. */
static void count_posted_rank(move_writer *w, const tu__collective *collective) {
    size_t collective_index = (size_t)(collective - w->program->collectives.list);
    if (++w->posted[collective_index] < collective->ranks) return;
    uint32_t *ranks = w->joint->ranks + w->rank_count;
    for (uint32_t r = 0; r < collective->ranks; r++)
        ranks[r] = w->joint->part_index[collective->members[r].partition];
    w->rank_count += collective->ranks;
    w->collective_move[collective_index] =
        add_move(w->joint, (tu_joint_move){.kind = TU_JOINT_COLLECTIVE, .part = ranks[0], .ranks = ranks},
                 (tu__joint_source){.collective = collective});
}

/* Writes that a partition waits for a move; false if that move is not written yet. */
static bool wait_for(move_writer *w, uint32_t part_index, uint32_t move) {
    if (move == TU_NO_NODE) return false;
    add_move(w->joint, (tu_joint_move){.kind = TU_JOINT_WAIT, .part = part_index, .after = move},
             (tu__joint_source){0});
    return true;
}

/* Waits until other partitions have read the old values of this one's variables, before they are overwritten. */
static void wait_for_sends(move_writer *w, uint32_t index) {
    tu__joint *j = w->joint;
    uint32_t count = j->move_count;
    for (uint32_t i = 0; i < count; i++) {
        const tu__receive *receive = j->sources[i].receive;
        bool is_sent = receive && receive->source_partition == index &&
                       w->program->unit.graph->nodes[receive->source.node]->op->code == TU__OP_VARIABLE;
        if (is_sent) wait_for(w, j->part_index[index], i);
    }
}

/* Writes one step of a partition; false if it waits for a move that is not written yet. */
static bool write_step(move_writer *w, uint32_t index, const tu__step *step) {
    const tu__partition *partition = &w->program->partitions[index];
    uint32_t part_index = w->joint->part_index[index];
    const tu__collective *collectives = w->program->collectives.list;
    switch (step->kind) {
    case TU__STEP_LAUNCH:
        add_move(w->joint,
                 (tu_joint_move){
                     .kind = TU_JOINT_LAUNCH, .part = part_index, .first = step->first, .count = step->count},
                 (tu__joint_source){0});
        return true;
    case TU__STEP_SIGNAL: add_copy(w, step->receive); return true;
    case TU__STEP_WAIT: return wait_for(w, part_index, w->copy_move[step->receive->received]);
    case TU__STEP_POST:
        count_posted_rank(w, partition->collectives[step->membership].collective);
        return true;
    case TU__STEP_COLLECTIVE:
        return wait_for(
            w, part_index,
            w->collective_move[partition->collectives[step->membership].collective - collectives]);
    case TU__STEP_BARRIER: wait_for_sends(w, index); return true;
    }
    return true;
}

/* Writes the next step of a partition; false if there is none or it has to wait. */
static bool write_next_step(move_writer *w, uint32_t index) {
    const tu__partition *partition = &w->program->partitions[index];
    if (w->next_step[index] == partition->step_count ||
        !write_step(w, index, &partition->steps[w->next_step[index]]))
        return false;
    w->next_step[index]++;
    return true;
}

static tu_status merge_steps(move_writer *w) {
    bool progressed = true;
    while (progressed) {
        progressed = false;
        for (uint32_t i = 0; i < w->program->device_count; i++)
            if (!w->program->partitions[i].is_idle && write_next_step(w, i)) progressed = true;
    }
    for (uint32_t i = 0; i < w->program->device_count; i++)
        if (w->next_step[i] < w->program->partitions[i].step_count)
            return tu_fail(TU_INTERNAL, "the steps of device '%s' wait for each other",
                           w->program->partitions[i].device->name);
    return TU_OK;
}

static void copy_updates(const tu_program *p, tu__joint *j, uint32_t index, bool to_staging) {
    const tu__partition *partition = &p->partitions[index];
    uint32_t part_index = j->part_index[index];
    for (uint32_t i = 0; i < partition->update_count; i++) {
        const tu__update *u = &partition->updates[i];
        if (u->in_place || (to_staging && !tu__update_needs_staging(partition, u))) continue;
        add_move(j, (tu_joint_move){.kind = TU_JOINT_COPY, .part = part_index, .other = part_index},
                 (tu__joint_source){.partition = index, .update = u, .to_staging = to_staging});
    }
}

static void write_partition_end(const tu_program *p, tu__joint *j, uint32_t index) {
    uint32_t part_index = j->part_index[index];
    add_move(j, (tu_joint_move){.kind = TU_JOINT_KEEP, .part = part_index}, (tu__joint_source){0});
    copy_updates(p, j, index, true);
    copy_updates(p, j, index, false);
}

static void index_partitions(const tu_program *p, tu__joint *j) {
    for (size_t i = 0; i < p->device_count; i++) {
        const tu__partition *partition = &p->partitions[i];
        j->part_index[i] = partition->is_idle ? TU_NO_NODE : j->part_count;
        if (partition->is_idle) continue;
        if (!j->part_count) j->first = (uint32_t)i;
        j->parts[j->part_count++] =
            (tu_joint_part){.device = partition->device->instance, .plan = partition->plan};
    }
}

static size_t count_ranks(const tu_program *p) {
    size_t count = 0;
    for (uint32_t i = 0; i < p->collectives.count; i++) count += p->collectives.list[i].ranks;
    return count;
}

/* Upper bound: one move per step, one more wait per receive before variables change, two copies per update. */
static size_t max_moves(const tu_program *p) {
    size_t count = 0;
    for (size_t i = 0; i < p->device_count; i++)
        count += p->partitions[i].step_count + p->partitions[i].receive_count +
                 2 * (size_t)p->partitions[i].update_count + 1;
    return count;
}

static tu_status write_moves(const tu_program *p, tu__joint *j) {
    tu__arena arena = {.purpose = "steps of all devices"};
    size_t events = p->sync.event_count;
    move_writer w = {.program = p,
                     .joint = j,
                     .next_step = tu__arena_alloc(&arena, p->device_count * sizeof *w.next_step),
                     .copy_move = tu__arena_alloc(&arena, events * sizeof *w.copy_move),
                     .posted = tu__arena_alloc(&arena, p->collectives.count * sizeof *w.posted),
                     .collective_move =
                         tu__arena_alloc(&arena, p->collectives.count * sizeof *w.collective_move)};
    tu_status status = w.next_step && w.copy_move && w.posted && w.collective_move ? TU_OK : TU_NO_MEMORY;
    for (uint32_t i = 0; i < p->collectives.count && status == TU_OK; i++) w.collective_move[i] = TU_NO_NODE;
    for (size_t i = 0; i < events && status == TU_OK; i++) w.copy_move[i] = TU_NO_NODE;
    if (status == TU_OK) status = merge_steps(&w);
    for (uint32_t i = 0; i < p->device_count && status == TU_OK; i++)
        if (!p->partitions[i].is_idle) write_partition_end(p, j, i);
    tu__arena_free(&arena);
    return status;
}

/* ---- Creating and freeing ---- */

static tu_status build_list(const tu_program *p, tu__joint *j) {
    const char *purpose = "steps of all devices";
    size_t moves = max_moves(p);
    j->parts = tu__alloc_array(p->device_count, sizeof *j->parts, purpose);
    j->part_index = tu__alloc_array(p->device_count, sizeof *j->part_index, purpose);
    j->moves = tu__alloc_array(moves, sizeof *j->moves, purpose);
    j->sources = tu__alloc_array(moves, sizeof *j->sources, purpose);
    j->feeds = tu__alloc_array(p->feed_count, sizeof *j->feeds, purpose);
    j->fetches = tu__alloc_array(p->unit.fetch_count, sizeof *j->fetches, purpose);
    j->ranks = tu__alloc_array(count_ranks(p), sizeof *j->ranks, purpose);
    if (!j->parts || !j->part_index || !j->moves || !j->sources || !j->feeds || !j->fetches || !j->ranks)
        return TU_NO_MEMORY;
    index_partitions(p, j);
    return write_moves(p, j);
}

/* There may be only one device: one that computes all shards of a batch and reduces them in a collective with a
 * single rank. */
static void write_notice(const tu_program *p, char *notice, size_t capacity) {
    if (p->device_count == 1)
        snprintf(notice, capacity, "device '%s' runs one step per call", p->devices[0]->name);
    else
        snprintf(notice, capacity, "the program has %zu devices, which exchange values in every step",
                 p->device_count);
}

tu_status tu__joint_init(tu_program *p, char *notice, size_t capacity) {
    const tu_device_api *api = find_common_api(p);
    if (!api || !all_feeds_are_active(p) || !can_run_collectives(p)) {
        write_notice(p, notice, capacity);
        return TU_OK;
    }
    tu__joint *j = &p->multi_step.joint;
    TU_TRY(build_list(p, j));
    tu_status status = api->repeat_joint(j->part_count, j->parts, j->move_count, j->moves, 0);
    if (status == TU_UNSUPPORTED)
        snprintf(notice, capacity, "the program's devices run one step per call: %.200s", tu_message());
    return status == TU_UNSUPPORTED ? TU_OK : status;
}

void tu__joint_free(tu__joint *j) {
    tu__free(j->parts);
    tu__free(j->part_index);
    tu__free(j->moves);
    tu__free(j->sources);
    tu__free(j->ranks);
    tu__free(j->feeds);
    tu__free(j->fetches);
}

/* ---- A call ---- */

static void fill_receive(const tu_program *p, const tu__joint_source *s, tu_joint_move *m) {
    const tu__receive *receive = s->receive;
    const tu__partition *partition = &p->partitions[s->partition];
    m->from = p->partitions[receive->source_partition].addresses[receive->source_buffer];
    m->to = partition->addresses[receive->buffer];
    m->bytes = partition->plan->buffers[receive->buffer].bytes;
}

static void fill_update(const tu_program *p, const tu__joint_source *s, tu_joint_move *m) {
    const tu__update *u = s->update;
    void *variable = u->mirror ? u->mirror->data : u->target->data;
    m->from = u->staging && !s->to_staging ? u->staging : p->partitions[s->partition].addresses[u->buffer];
    m->to = s->to_staging ? u->staging : variable;
    m->bytes = tu_type_bytes(u->target->type);
}

static void fill_moves(const tu_program *p) {
    const tu__joint *j = &p->multi_step.joint;
    for (uint32_t i = 0; i < j->move_count; i++) {
        const tu__joint_source *s = &j->sources[i];
        if (s->receive) fill_receive(p, s, &j->moves[i]);
        if (s->update) fill_update(p, s, &j->moves[i]);
        if (s->collective) {
            j->moves[i].combination_count = s->collective->combination_count;
            j->moves[i].combinations = s->collective->combinations;
        }
    }
}

/* Distributes the feeds and fetches that tu_run_many lists to the partitions. */
static void fill_repetitions(const tu_program *p) {
    const tu__joint *j = &p->multi_step.joint;
    tu_repeat_feed *feed = j->feeds;
    tu_repeat_fetch *fetch = j->fetches;
    for (uint32_t i = 0; i < p->device_count; i++) {
        if (j->part_index[i] == TU_NO_NODE) continue;
        tu_repetition repetition = {.struct_size = sizeof repetition, .feeds = feed, .fetches = fetch};
        for (size_t k = 0; k < p->feed_count; k++)
            if (p->feeds[k].partition == i) *feed++ = p->multi_step.feeds[k], repetition.feed_count++;
        for (uint32_t k = 0; k < p->multi_step.fetch_count; k++)
            if (p->fetches[p->multi_step.fetched[k]].partition == i)
                *fetch++ = p->multi_step.fetches[k], repetition.fetch_count++;
        j->parts[j->part_index[i]].what = repetition;
    }
}

tu_status tu__joint_run(tu_program *p, uint32_t steps) {
    fill_moves(p);
    fill_repetitions(p);
    return tu__program_repeat_joint(p, steps);
}
