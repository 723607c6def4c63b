/* Groups: consecutive kernels of a frozen graph, which compute a few samples at a time.
 *
 * With a large batch, a value of a convolution network is larger than the caches: each kernel reads its input from memory
 * and writes its result there. But the samples are independent of each other. So a run of kernels becomes one kernel, the
 * group: a thread takes a part of the samples, computes all kernels of the run for it, one after another, then takes the
 * next part. Values that only the group reads exist for the samples in work alone, one part per thread; they stay in the
 * caches, and the threads do not wait for each other between two kernels.
 *
 *     kernel by kernel         conv2d (32 samples)   max_pool (32 samples)   conv2d (32 samples)  …
 *     a group, one thread      conv2d (1), max_pool (1), conv2d (1), …,  conv2d (1), max_pool (1), conv2d (1), …
 *
 * A kernel joins a group if a part has enough samples for it (tu__kernel_samples.least): a layer with few pixels and large
 * weights would read its weights once per part.
 *
 * Bits do not change, since those of a frozen graph depend neither on the batch nor on threads (frozen.c). */
#include "device/cpu/sample_groups.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "device/cpu/chunks.h"
#include "device/cpu/ranges.h"

enum {
    PART_BYTES = 1 << 20,         /* of the operands of the first kernel, for several samples: an L2 cache */
    LEAST_SAVED_BYTES = 16 << 20, /* of the values that only the group reads: fewer stay in a cache anyway */
    LEAST_BALANCE = 85,           /* percent of the threads' time in which all have a part to compute */
    MAX_OPERANDS = 8,             /* of a kernel that it reads; it writes one */
    NAME_BYTES = 40,
};

/* ---- A group ---- */

typedef enum place { INSIDE, GROUP_READ, GROUP_WRITE } place;

typedef struct operand {
    place place;
    size_t offset; /* INSIDE: in the memory of a worker; otherwise the index in the group's operands */
    size_t step;   /* bytes between the parts of two parts of the samples; 0: all use the same */
} operand;

typedef struct member {
    tu__kernel *kernel;
    operand in[MAX_OPERANDS], out[1];
    size_t workspace; /* offset in the memory of a worker */
} member;

typedef struct group {
    member *members;
    uint32_t count;
    int64_t parts;
    size_t worker_bytes;
} group;

static void *address_of(const tu__kernel *k, const operand *o, char *memory, int64_t part) {
    if (o->place == INSIDE) return memory + o->offset;
    char *whole = (o->place == GROUP_READ ? k->in : k->out)[o->offset];
    return whole ? whole + o->step * (size_t)part : NULL;
}

static void run_member(const tu__kernel *k, const member *m, char *memory, int64_t part) {
    void *in[MAX_OPERANDS], *out[1];
    tu__kernel one = *m->kernel;
    for (uint32_t i = 0; i < one.read_count; i++) in[i] = address_of(k, &m->in[i], memory, part);
    out[0] = address_of(k, &m->out[0], memory, part);
    one.in = in;
    one.out = out;
    one.workspace = memory + m->workspace;
    (void)one.run(&one); /* it cannot fail: tu__kernel_samples.divide */
}

static void run_parts(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const group *g = k->data;
    char *memory = (char *)k->workspace + (size_t)worker * g->worker_bytes;
    tu__parallel_setting before = tu__parallel_begin(1); /* the members' loops run on this thread */
    for (int64_t part = first; part < last; part++)
        for (uint32_t i = 0; i < g->count; i++) run_member(k, &g->members[i], memory, part);
    tu__parallel_end(before);
}

static tu_status run_group(const tu__kernel *k) {
    const group *g = k->data;
    tu__parallel_for_stealing(g->parts, 1, run_parts, (void *)k);
    return TU_OK;
}

static void release_group(void *data) {
    const group *g = data;
    for (uint32_t i = 0; i < g->count; i++)
        if (g->members[i].kernel->release) g->members[i].kernel->release(g->members[i].kernel->data);
}

/* ---- Choosing groups ---- */

typedef struct block { /* memory of a worker: a value inside the group, or a workspace */
    size_t bytes, offset;
    uint32_t first, last; /* members that use it */
} block;

typedef struct buffer_use {
    bool is_exported;
    uint32_t readers, readers_inside; /* kernels of the plan; of the group */
    uint32_t writer;                  /* 1 + member; 0: none */
    uint32_t root;                    /* inside: the buffer whose memory it shares */
    block block;                      /* inside */
} buffer_use;

typedef struct grouping {
    tu__selection *s;
    tu__kernel_plan *plan;
    buffer_use *uses; /* per buffer */
    int threads;
    /* the group in work: kernels first … first + count - 1 */
    uint32_t first, count;
    int64_t samples, part; /* of the kernels; of a part */
} grouping;

static bool is_part_of_samples(const tu__kernel *k, uint32_t read) {
    return k->samples.reads >> read & 1;
}

static tu__kernel *member_of(const grouping *g, uint32_t i) {
    return g->plan->kernels[g->first + i];
}

static bool is_balanced(int64_t parts, int threads) {
    return parts > 1 && 100 * parts >= LEAST_BALANCE * divide_up(parts, threads) * threads;
}

/* Returns the samples of a part of a group that begins with the kernel; 0: there should be no group. */
static int64_t part_samples(const grouping *g, const tu__kernel *k) {
    int64_t bytes = 0, samples = k->samples.count;
    for (uint32_t i = 0; i < k->read_count; i++)
        if (is_part_of_samples(k, i)) bytes += (int64_t)g->plan->buffers[k->reads[i]].bytes / samples;
    for (uint32_t i = 0; i < k->write_count; i++)
        bytes += (int64_t)g->plan->buffers[k->writes[i]].bytes / samples;
    for (int64_t part = min_i64(samples, PART_BYTES / max_i64(bytes, 1)); part > 1; part--)
        if (samples % part == 0 && is_balanced(samples / part, g->threads)) return part;
    return is_balanced(samples, g->threads) ? 1 : 0;
}

/* Returns the highest level of the kernel's nodes, by which kernels are sorted. */
static uint32_t level_of(const grouping *g, const tu__kernel *k) {
    uint32_t level = 0;
    for (uint32_t i = 0; i < k->node_count; i++)
        if (g->plan->level[k->nodes[i]] > level) level = g->plan->level[k->nodes[i]];
    return level;
}

static bool can_join(const grouping *g, const tu__kernel *k) {
    return k->samples.count == g->samples && k->samples.least <= g->part && k->read_count <= MAX_OPERANDS &&
           k->write_count == 1 && level_of(g, k) == level_of(g, member_of(g, 0));
}

/* Finds the longest group that begins with kernel `first`. */
static void find_group(grouping *g, uint32_t first) {
    const tu__kernel_plan *p = g->plan;
    g->first = first;
    g->count = 0;
    g->samples = p->kernels[first]->samples.count;
    g->part = g->samples > 1 ? part_samples(g, p->kernels[first]) : 0;
    if (!g->part) return;
    while (first + g->count < p->kernel_count && can_join(g, p->kernels[first + g->count])) g->count++;
}

static void count_uses(grouping *g) {
    const tu__kernel_plan *p = g->plan;
    for (uint32_t b = 0; b < p->buffer_count; b++) {
        buffer_use *u = &g->uses[b];
        *u = (buffer_use){.is_exported = u->is_exported, .readers = u->readers, .root = b};
    }
    for (uint32_t i = 0; i < g->count; i++) {
        const tu__kernel *k = member_of(g, i);
        for (uint32_t r = 0; r < k->read_count; r++) {
            buffer_use *u = &g->uses[k->reads[r]];
            u->readers_inside++;
            u->block.last = i;
        }
        for (uint32_t w = 0; w < k->write_count; w++) {
            buffer_use *u = &g->uses[k->writes[w]];
            u->writer = i + 1;
            u->block.first = u->block.last = i;
            u->block.bytes = p->buffers[k->writes[w]].bytes / (size_t)(g->samples / g->part);
        }
    }
}

static bool is_inside(const buffer_use *u) {
    return u->writer && !u->is_exported && u->readers == u->readers_inside;
}

static size_t saved_bytes(const grouping *g) {
    size_t bytes = 0;
    for (uint32_t b = 0; b < g->plan->buffer_count; b++)
        if (is_inside(&g->uses[b])) bytes += g->plan->buffers[b].bytes;
    return bytes;
}

/* ---- The memory of a worker ---- */

static uint32_t root_of(const grouping *g, uint32_t buffer) {
    while (g->uses[buffer].root != buffer) buffer = g->uses[buffer].root;
    return buffer;
}

/* Lets the result of member `i` reuse the memory of a value that no later member reads, if it can work in place. */
static void share_memory(const grouping *g, uint32_t i) {
    const tu__kernel *k = member_of(g, i);
    if (k->in_place[0] < 0) return;
    uint32_t in = k->reads[k->in_place[0]], times = 0;
    buffer_use *from = &g->uses[in], *to = &g->uses[k->writes[0]];
    for (uint32_t r = 0; r < k->read_count; r++) times += k->reads[r] == in;
    if (times > 1 || !is_inside(from) || from->block.last != i || !is_inside(to) ||
        to->block.bytes > from->block.bytes)
        return;
    to->root = in;
    block *shared = &g->uses[root_of(g, in)].block;
    if (shared->last < to->block.last) shared->last = to->block.last;
}

static bool overlap(const block *a, const block *b) {
    return a->first <= b->last && b->first <= a->last && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Places a block at the lowest offset at which it overlaps none of the `count` placed ones. */
static void place_block(block *new_block, block *const *placed, uint32_t count) {
    new_block->offset = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!overlap(new_block, placed[i])) continue;
        new_block->offset = cpu_round_up_to_line(placed[i]->offset + placed[i]->bytes);
        i = UINT32_MAX; /* all again */
    }
}

/* Places the results and workspaces of the members, in their order. Returns the bytes of a worker. */
static size_t place_blocks(const grouping *g, block *workspaces, block **placed) {
    size_t bytes = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        const tu__kernel *k = member_of(g, i);
        buffer_use *result = &g->uses[k->writes[0]];
        workspaces[i] = (block){.bytes = k->workspace_bytes, .first = i, .last = i};
        block *blocks[2] = {&workspaces[i],
                            is_inside(result) && result->root == k->writes[0] ? &result->block : NULL};
        for (int b = 0; b < 2; b++) {
            if (!blocks[b] || !blocks[b]->bytes) continue;
            place_block(blocks[b], placed, count);
            placed[count++] = blocks[b];
            if (bytes < blocks[b]->offset + blocks[b]->bytes) bytes = blocks[b]->offset + blocks[b]->bytes;
        }
    }
    return cpu_round_up_to_line(bytes);
}

/* ---- Making a group ---- */

/* Returns the operand for a buffer, and adds it to the reads or writes of the group's kernel `k` if it is there. */
static tu_status make_operand(const grouping *g, tu__kernel *k, uint32_t buffer, bool is_part, operand *o) {
    const buffer_use *u = &g->uses[buffer];
    size_t step = is_part ? g->plan->buffers[buffer].bytes / (size_t)(g->samples / g->part) : 0;
    if (is_inside(u)) {
        *o = (operand){INSIDE, g->uses[root_of(g, buffer)].block.offset, 0};
        return TU_OK;
    }
    const uint32_t *list = u->writer ? k->writes : k->reads;
    uint32_t count = u->writer ? k->write_count : k->read_count, i = 0;
    while (i < count && list[i] != buffer) i++;
    *o = (operand){u->writer ? GROUP_WRITE : GROUP_READ, i, step};
    if (i < count) return TU_OK;
    return u->writer ? tu__kernel_write_buffer(k, buffer) : tu__kernel_read_buffer(k, buffer);
}

static tu_status make_member(const grouping *g, tu__kernel *k, uint32_t i, const block *workspace,
                             member *m) {
    tu__kernel *of = member_of(g, i);
    *m = (member){.kernel = of, .workspace = workspace->offset};
    for (uint32_t n = i == 0 ? 1 : 0; n < of->node_count; n++)
        TU_TRY(tu__kernel_add_node(k, g->s->graph->nodes[of->nodes[n]]));
    for (uint32_t r = 0; r < of->read_count; r++)
        TU_TRY(make_operand(g, k, of->reads[r], is_part_of_samples(of, r), &m->in[r]));
    TU_TRY(make_operand(g, k, of->writes[0], true, &m->out[0]));
    k->flops += of->flops;
    k->resident_bytes += of->resident_bytes;
    return TU_OK;
}

/* Replaces the members by `k`, which is the last kernel of the plan. */
static void replace_members(const grouping *g, tu__kernel *k) {
    tu__kernel **kernels = g->plan->kernels;
    uint32_t end = g->first + g->count;
    g->plan->kernel_count--;
    kernels[g->first] = k;
    memmove(&kernels[g->first + 1], &kernels[end], (g->plan->kernel_count - end) * sizeof(tu__kernel *));
    g->plan->kernel_count -= g->count - 1;
}

static tu_status fill_group(const grouping *g, tu__kernel *k, block *workspaces, block **placed) {
    group *made = tu__kernel_data(k, sizeof *made);
    member *members = tu__arena_alloc(&g->s->arena, g->count * sizeof *members);
    if (!made || !members) return TU_NO_MEMORY;
    *made = (group){.members = members, .count = g->count, .parts = g->samples / g->part};
    for (uint32_t i = 0; i < g->count; i++) TU_TRY(member_of(g, i)->samples.divide(member_of(g, i), g->part));
    for (uint32_t i = 0; i < g->count; i++) share_memory(g, i);
    made->worker_bytes = place_blocks(g, workspaces, placed);
    for (uint32_t i = 0; i < g->count; i++) TU_TRY(make_member(g, k, i, &workspaces[i], &members[i]));
    for (uint32_t r = 0; r < k->read_count; r++)
        k->bytes_moved += (int64_t)g->plan->buffers[k->reads[r]].bytes;
    for (uint32_t w = 0; w < k->write_count; w++)
        k->bytes_moved += (int64_t)g->plan->buffers[k->writes[w]].bytes;
    k->workspace_bytes = made->worker_bytes * (size_t)min_i64(g->threads, made->parts);
    return TU_OK;
}

static tu_status make_group(const grouping *g) {
    char *name = tu__arena_alloc(&g->s->arena, NAME_BYTES);
    if (!name) return TU_NO_MEMORY;
    snprintf(name, NAME_BYTES, "group of %u kernels", g->count);
    tu__kernel *k = tu__kernel_new(g->s, g->s->graph->nodes[member_of(g, 0)->nodes[0]], name, run_group);
    block *workspaces = tu__alloc_array(g->count, sizeof *workspaces, "a plan");
    block **placed = tu__alloc_array(2 * (size_t)g->count, sizeof *placed, "a plan");
    tu_status status = k && workspaces && placed ? fill_group(g, k, workspaces, placed) : TU_NO_MEMORY;
    tu__free(workspaces);
    tu__free(placed);
    if (status != TU_OK) return status;
    k->release = release_group; /* only now: until here the members are kernels of the plan */
    replace_members(g, k);
    return TU_OK;
}

/* ---- The plan ---- */

static void mark_exports(const grouping *g) {
    const tu_partition *partition = g->plan->partition;
    for (uint32_t i = 0; i < partition->export_count; i++) {
        tu__edge values[2] = {partition->exports[i], tu__root_of(g->s, partition->exports[i])};
        for (int v = 0; v < 2; v++) {
            uint32_t buffer = tu__plan_value_of(g->s, values[v])->dense;
            if (buffer != TU__NONE) g->uses[buffer].is_exported = true;
        }
    }
}

static void count_readers(const grouping *g) {
    for (uint32_t i = 0; i < g->plan->kernel_count; i++)
        for (uint32_t r = 0; r < g->plan->kernels[i]->read_count; r++)
            g->uses[g->plan->kernels[i]->reads[r]].readers++;
}

static tu_status group_kernels(grouping *g) {
    mark_exports(g);
    count_readers(g);
    for (uint32_t first = 0; first < g->plan->kernel_count; first++) {
        find_group(g, first);
        if (g->count < 2) continue;
        count_uses(g);
        if (saved_bytes(g) >= LEAST_SAVED_BYTES)
            TU_TRY(make_group(g));
        else
            first += g->count - 1;
    }
    return TU_OK;
}

tu_status cpu_group_samples(tu__selection *s) {
    if (!s->graph->is_frozen || !s->plan->kernel_count) return TU_OK;
    grouping g = {.s = s, .plan = s->plan, .threads = cpu_of(s)->threads};
    g.uses = tu__alloc_array(g.plan->buffer_count + 1, sizeof *g.uses, "a plan");
    tu_status status = g.uses ? group_kernels(&g) : TU_NO_MEMORY;
    tu__free(g.uses);
    return status;
}
