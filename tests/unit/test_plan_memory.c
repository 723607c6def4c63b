/* Tests of kernel order and memory plans, with random plans: every buffer is written before it is read, no two live
 * buffers overlap, kernels work in place if they can, and updates come last and write their variables. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "compile/plan_memory.h"
#include "compile/schedule.h"

enum { MAX_KERNELS = 64, MAX_REDUCED = 4 };

typedef struct random_plan {
    tu_plan plan;
    tu_buffer buffers[2 * MAX_KERNELS];
    tu_kernel kernels[MAX_KERNELS];
    uint32_t nodes[MAX_KERNELS], reads[MAX_KERNELS][3 + MAX_REDUCED], writes[MAX_KERNELS][1];
    int32_t in_place[MAX_KERNELS][1];
    bool is_external[2 * MAX_KERNELS], is_written_before_run[2 * MAX_KERNELS],
        is_read_after_run[2 * MAX_KERNELS], runs_last[MAX_KERNELS], sends[MAX_KERNELS];
    uint32_t assigned_to[2 * MAX_KERNELS], producer_order[2 * MAX_KERNELS], order[MAX_KERNELS],
        level[MAX_KERNELS], update_kernel_count;
    /* Number of buffers that no kernel writes; those that a kernel writes come next, then outputs of collectives. */
    uint32_t leaves;
    tu__collective_value reduced[MAX_REDUCED];
    uint32_t reduced_count;
} random_plan;

static uint64_t random_below(uint64_t *state, uint64_t below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

/* Creates inputs and variables first, then kernels that each write a buffer from up to three earlier ones. Node ids
 * are random, so that the order of kernels differs from that of nodes. */
static void create_plan(random_plan *p, uint64_t seed) {
    memset(p, 0, sizeof *p);
    uint32_t leaves = 1 + (uint32_t)random_below(&seed, 4),
             kernels = 1 + (uint32_t)random_below(&seed, MAX_KERNELS - 1);
    p->leaves = leaves;
    p->plan = (tu_plan){.struct_size = sizeof p->plan,
                        .buffer_count = leaves + kernels,
                        .kernel_count = kernels,
                        .buffers = p->buffers,
                        .kernels = p->kernels};
    for (uint32_t b = 0; b < p->plan.buffer_count; b++) {
        p->buffers[b] = (tu_buffer){.bytes = 64 * (1 + random_below(&seed, 40)) - random_below(&seed, 64),
                                    .value = {b, 0},
                                    .dense = true};
        p->assigned_to[b] = TU_NO_NODE;
        if (b < leaves) {
            p->is_external[b] = random_below(&seed, 2);
            p->is_written_before_run[b] = !p->is_external[b];
            if (p->is_written_before_run[b])
                p->producer_order[b] = b % 3; /* some are received from another device */
        }
        p->is_read_after_run[b] = random_below(&seed, 6) == 0;
    }
    for (uint32_t k = 0; k < kernels; k++) {
        uint32_t reads = 1 + (uint32_t)random_below(&seed, 3);
        for (uint32_t r = 0; r < reads; r++) p->reads[k][r] = (uint32_t)random_below(&seed, leaves + k);
        p->writes[k][0] = leaves + k;
        p->in_place[k][0] = random_below(&seed, 2) ? (int32_t)random_below(&seed, reads) : -1;
        p->nodes[k] = (uint32_t)random_below(&seed, 1000);
        p->sends[k] = p->nodes[k] % 5 == 0;
        p->kernels[k] = (tu_kernel){.name = "k",
                                    .node_count = 1,
                                    .nodes = &p->nodes[k],
                                    .read_count = reads,
                                    .reads = p->reads[k],
                                    .write_count = 1,
                                    .writes = p->writes[k],
                                    .in_place = p->in_place[k],
                                    .workspace = random_below(&seed, 3) ? 0 : 64 * random_below(&seed, 30)};
    }
}

/* Returns the number of kernels at the end. */
static uint32_t schedule(random_plan *p) {
    uint32_t last;
    tu__schedule_request request = {.plan = &p->plan,
                                    .level = p->level,
                                    .sends = p->sends,
                                    .runs_last = p->runs_last,
                                    .producer_order = p->producer_order};
    assert_int_equal(tu__schedule(&request, p->order, &last), TU_OK);
    return last;
}

static uint32_t position(const random_plan *p, uint32_t kernel) {
    for (uint32_t i = 0; i < p->plan.kernel_count; i++)
        if (p->order[i] == kernel) return i;
    fail_msg("kernel %u is not in the order", kernel);
    return 0;
}

static void every_buffer_is_written_before_it_is_read(void **unused) {
    (void)unused;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        random_plan p;
        create_plan(&p, seed);
        uint32_t leaves = p.plan.buffer_count - p.plan.kernel_count;
        assert_int_equal(schedule(&p), 0);
        for (uint32_t k = 0; k < p.plan.kernel_count; k++)
            for (uint32_t r = 0; r < p.kernels[k].read_count; r++)
                if (p.reads[k][r] >= leaves)
                    assert_true(position(&p, p.reads[k][r] - leaves) < position(&p, k));
    }
}

/* Of kernels that depend on nothing, those whose output another device waits for come first. */
static void kernels_that_others_wait_for_come_first(void **unused) {
    (void)unused;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        random_plan p;
        create_plan(&p, seed);
        for (uint32_t k = 0; k < p.plan.kernel_count; k++) {
            p.kernels[k].read_count = 1;
            p.reads[k][0] = 0;
        }
        schedule(&p);
        for (uint32_t i = 1; i < p.plan.kernel_count; i++)
            assert_true(p.sends[p.order[i - 1]] || !p.sends[p.order[i]]);
    }
}

/* Returns the highest producer order of the receives that a kernel depends on. */
static uint32_t latest_producer(const random_plan *p, uint32_t kernel) {
    uint32_t latest = 0;
    for (uint32_t r = 0; r < p->kernels[kernel].read_count; r++) {
        uint32_t b = p->reads[kernel][r],
                 producer_order = b < p->leaves ? p->producer_order[b] : latest_producer(p, b - p->leaves);
        if (producer_order > latest) latest = producer_order;
    }
    return latest;
}

static void kernels_that_depend_on_late_receives_come_late(void **unused) {
    (void)unused;
    for (uint64_t seed = 0; seed < 300; seed++) {
        random_plan p;
        create_plan(&p, seed);
        if (p.plan.kernel_count > 12) continue; /* `latest_producer` takes exponential time */
        memset(p.sends, 0, sizeof p.sends);
        for (uint32_t b = 0; b < p.leaves; b++) p.producer_order[b] = (uint32_t)(seed >> b) % 5;
        schedule(&p);
        for (uint32_t i = 1; i < p.plan.kernel_count; i++)
            assert_true(latest_producer(&p, p.order[i - 1]) <= latest_producer(&p, p.order[i]));
    }
}

static void assert_has_stamp(const random_plan *p, unsigned char *const *addresses, uint32_t b) {
    assert_non_null(addresses[b]);
    assert_true(addresses[b][0] == b && addresses[b][p->buffers[b].bytes - 1] == b);
}

/* Other ranks write outputs as early, and read inputs as late as possible. */
static void check_reduced(const random_plan *p, unsigned char *const *addresses, uint32_t position) {
    for (uint32_t i = 0; i < p->reduced_count; i++) {
        const tu__collective_value *s = &p->reduced[i];
        bool is_same_memory = addresses[s->in] == addresses[s->out];
        assert_true(!is_same_memory || s->in_place);
        if (s->post_position == position) {
            assert_has_stamp(p, addresses, s->in);
            memset(addresses[s->out], (int)s->out, p->buffers[s->out].bytes);
        }
        if (s->wait_position != position) continue;
        if (!is_same_memory) assert_has_stamp(p, addresses, s->in);
        assert_has_stamp(p, addresses, s->out);
    }
}

/* Simulates the run: a write stamps the bytes, and a read must find the stamp of its buffer. */
static void check_by_running(const random_plan *p, const tu__memory_plan *m) {
    static unsigned char memory[1 << 20], variables[2 * MAX_KERNELS][4096];
    uint32_t count = p->plan.buffer_count, leaves = p->leaves;
    unsigned char *addresses[2 * MAX_KERNELS] = {0};
    assert_true(m->scratch_bytes <= sizeof memory);
    for (uint32_t b = 0; b < count; b++) {
        if (m->alias_of[b] != TU_NO_NODE)
            addresses[b] = variables[m->alias_of[b]];
        else if (m->storage[b] == TU__STORAGE_EXTERNAL)
            addresses[b] = variables[b];
        else if (m->storage[b] == TU__STORAGE_SCRATCH) {
            assert_true(m->offset[b] % 64 == 0 && m->offset[b] + p->buffers[b].bytes <= m->scratch_bytes);
            addresses[b] = memory + m->offset[b];
        }
    }
    for (uint32_t b = 0; b < leaves; b++)
        if (addresses[b]) memset(addresses[b], (int)b, p->buffers[b].bytes);
    for (uint32_t i = 0; i < p->plan.kernel_count; i++) {
        uint32_t k = p->order[i];
        check_reduced(p, addresses, i);
        for (uint32_t r = 0; r < p->kernels[k].read_count; r++) {
            uint32_t b = p->reads[k][r];
            assert_non_null(addresses[b]);
            assert_true(addresses[b][0] == b && addresses[b][p->buffers[b].bytes - 1] == b);
        }
        if (p->kernels[k].workspace) {
            assert_true(m->workspace_offset[k] + p->kernels[k].workspace <= m->scratch_bytes);
            memset(memory + m->workspace_offset[k], 0xff, p->kernels[k].workspace);
            /* A workspace overlaps no input of its kernel. */
            for (uint32_t r = 0; r < p->kernels[k].read_count; r++)
                assert_true(addresses[p->reads[k][r]][0] == p->reads[k][r]);
        }
        if (addresses[leaves + k])
            memset(addresses[leaves + k], (int)(leaves + k), p->buffers[leaves + k].bytes);
    }
    check_reduced(p, addresses, p->plan.kernel_count);
    for (uint32_t b = 0; b < count; b++)
        if (p->is_read_after_run[b] && addresses[b])
            assert_true(addresses[b][0] == b && addresses[b][p->buffers[b].bytes - 1] == b);
}

static tu_status plan(random_plan *p, tu__memory_plan *m) {
    schedule(p);
    tu__memory_request request = {.plan = &p->plan,
                                  .order = p->order,
                                  .is_external = p->is_external,
                                  .is_written_before_run = p->is_written_before_run,
                                  .is_read_after_run = p->is_read_after_run,
                                  .assigned_to = p->assigned_to,
                                  .update_kernel_count = p->update_kernel_count,
                                  .collective_value_count = p->reduced_count,
                                  .collective_values = p->reduced};
    return tu__plan_memory(&request, m);
}

static void live_buffers_do_not_overlap(void **unused) {
    (void)unused;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        random_plan p;
        tu__memory_plan m;
        create_plan(&p, seed);
        assert_int_equal(plan(&p, &m), TU_OK);
        check_by_running(&p, &m);
        tu__memory_plan_free(&m);
    }
}

static bool is_read(const random_plan *p, uint32_t buffer) {
    for (uint32_t k = 0; k < p->plan.kernel_count; k++)
        for (uint32_t r = 0; r < p->kernels[k].read_count; r++)
            if (p->reads[k][r] == buffer) return true;
    for (uint32_t i = 0; i < p->reduced_count; i++)
        if (p->reduced[i].in == buffer) return true;
    return p->is_read_after_run[buffer];
}

/* Adds an all-reduce of an existing buffer; some kernels after it read its output. */
static void add_reduced(random_plan *p, uint64_t *seed) {
    uint32_t kernels = p->plan.kernel_count, in = (uint32_t)random_below(seed, p->leaves + kernels);
    uint32_t post_position = in < p->leaves ? 0 : position(p, in - p->leaves) + 1;
    uint32_t kernels_after = post_position < kernels ? kernels - post_position : 0;
    uint32_t wait_position = post_position + (uint32_t)random_below(seed, kernels_after + 1),
             out = p->plan.buffer_count++;
    p->buffers[out] = p->buffers[in];
    p->assigned_to[out] = TU_NO_NODE;
    p->is_read_after_run[out] = random_below(seed, 4) == 0;
    p->reduced[p->reduced_count] = (tu__collective_value){
        in, out, post_position, wait_position, in >= p->leaves && !is_read(p, in), false};
    for (uint32_t i = 0; i < p->reduced_count; i++) /* a value that is reduced twice cannot be in place */
        if (p->reduced[i].in == in) p->reduced[i].in_place = false;
    p->reduced_count++;
    for (uint32_t i = wait_position; i < kernels; i++) {
        tu_kernel *k = &p->kernels[p->order[i]];
        if (random_below(seed, 3)) continue;
        p->reads[p->order[i]][k->read_count++] = out;
        if (random_below(seed, 2)) p->in_place[p->order[i]][0] = (int32_t)k->read_count - 1;
    }
}

static void reduced_values_overlap_nothing_while_in_use(void **unused) {
    (void)unused;
    int in_place = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        random_plan p;
        tu__memory_plan m;
        create_plan(&p, seed);
        schedule(&p);
        uint64_t random = seed;
        for (uint64_t i = 0; i < 1 + seed % MAX_REDUCED; i++) add_reduced(&p, &random);
        assert_int_equal(plan(&p, &m), TU_OK);
        check_by_running(&p, &m);
        for (uint32_t i = 0; i < p.reduced_count; i++)
            in_place += m.storage[p.reduced[i].in] == TU__STORAGE_SCRATCH && p.reduced[i].in_place &&
                        m.offset[p.reduced[i].in] == m.offset[p.reduced[i].out];
        tu__memory_plan_free(&m);
    }
    assert_true(in_place > 100); /* not all of them can */
}

/* Creates a chain instead of a random plan: kernel k reads buffer k and writes the next one; the first `in_place`
 * kernels can write in place. */
static void create_chain(random_plan *p, uint32_t kernels, uint32_t in_place) {
    create_plan(p, 1);
    p->plan.kernel_count = kernels;
    p->plan.buffer_count = kernels + 1;
    for (uint32_t b = 0; b <= kernels; b++) {
        p->buffers[b].bytes = 4096;
        p->is_external[b] = false;
        p->is_written_before_run[b] = b == 0;
        p->is_read_after_run[b] = b == kernels;
    }
    for (uint32_t k = 0; k < kernels; k++) {
        p->reads[k][0] = k;
        p->writes[k][0] = k + 1;
        p->in_place[k][0] = k < in_place ? 0 : -1;
        p->kernels[k].read_count = 1;
        p->kernels[k].workspace = 0;
    }
}

/* A chain of in-place kernels needs the memory of one buffer. */
static void an_in_place_chain_needs_one_buffer(void **unused) {
    (void)unused;
    random_plan p;
    create_chain(&p, 10, 10);
    tu__memory_plan m;
    assert_int_equal(plan(&p, &m), TU_OK);
    assert_int_equal(m.scratch_bytes, 4096);
    tu__memory_plan_free(&m);
}

static void the_peak_lists_live_buffers(void **unused) {
    (void)unused;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        random_plan p;
        tu__memory_plan m;
        create_plan(&p, seed);
        assert_int_equal(plan(&p, &m), TU_OK);
        size_t sum = 0;
        for (uint32_t i = 0; i < m.live_at_peak_count; i++) {
            const tu__live_block *r = &m.live_at_peak[i];
            size_t bytes =
                r->buffer == TU_NO_NODE ? p.kernels[r->kernel].workspace : p.buffers[r->buffer].bytes;
            assert_true(r->bytes >= bytes);
            if (r->buffer != TU_NO_NODE) assert_int_equal(m.storage[r->buffer], TU__STORAGE_SCRATCH);
            sum += r->bytes;
        }
        assert_true(sum <= m.scratch_bytes);
        assert_true(m.scratch_bytes == 0 || sum > 0);
        tu__memory_plan_free(&m);
    }
}

/* Kernel 0 overwrites the input. The memory is free after kernel 1 has read it, so the last buffer reuses it. */
static void an_overwritten_input_is_freed(void **unused) {
    (void)unused;
    random_plan p;
    create_chain(&p, 3, 1);
    tu__memory_plan m;
    assert_int_equal(plan(&p, &m), TU_OK);
    assert_int_equal(m.scratch_bytes, 2 * 4096);
    tu__memory_plan_free(&m);
}

/* w' = f(w, g) in place needs no scratch memory, and its memory is the variable's; except if w is read later, or if
 * the kernel runs before the barrier, when the run may still fail. */
static void an_update_is_written_into_its_variable(void **unused) {
    (void)unused;
    for (int round = 0; round < 3; round++) {
        bool is_read_later = round == 1, computing = round == 2;
        random_plan p;
        create_plan(&p, 1);
        p.update_kernel_count = computing ? 0 : 1;
        p.plan.kernel_count = 1;
        p.plan.buffer_count = 3; /* 0: the variable, 1: the gradient, 2: the next value */
        for (uint32_t b = 0; b < 3; b++) {
            p.buffers[b].bytes = 256;
            p.is_external[b] = b == 0;
            p.is_written_before_run[b] = b == 1;
            p.is_read_after_run[b] = b == 2 || (b == 0 && is_read_later);
            p.assigned_to[b] = b == 2 ? 0 : TU_NO_NODE;
        }
        p.reads[0][0] = 0;
        p.reads[0][1] = 1;
        p.writes[0][0] = 2;
        p.in_place[0][0] = 0;
        p.kernels[0].read_count = 2;
        p.kernels[0].workspace = 0;
        tu__memory_plan m;
        assert_int_equal(plan(&p, &m), TU_OK);
        bool is_in_place = !is_read_later && !computing;
        assert_int_equal(m.alias_of[2], is_in_place ? 0 : TU_NO_NODE);
        assert_int_equal(m.scratch_bytes, is_in_place ? 256 : 512);
        tu__memory_plan_free(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_buffer_is_written_before_it_is_read),
        cmocka_unit_test(kernels_that_others_wait_for_come_first),
        cmocka_unit_test(kernels_that_depend_on_late_receives_come_late),
        cmocka_unit_test(live_buffers_do_not_overlap),
        cmocka_unit_test(reduced_values_overlap_nothing_while_in_use),
        cmocka_unit_test(an_in_place_chain_needs_one_buffer),
        cmocka_unit_test(the_peak_lists_live_buffers),
        cmocka_unit_test(an_overwritten_input_is_freed),
        cmocka_unit_test(an_update_is_written_into_its_variable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
