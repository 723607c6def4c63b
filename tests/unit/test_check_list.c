/* Tests of compile/check_list.c, which rejects command lists that break a rule of decision 41.
 *
 * The engine writes correct lists, so the checker would not be missed until a device or a change of the engine needs
 * it. Here correct lists are edited: each test breaks one rule and expects the message to name it, the queue and the
 * command. */
#include "edited_list.h"

/* ---- Rule 1: events and order ---- */

static void lists_of_the_engine_are_accepted(void **unused) {
    (void)unused;
    compile_exchange();
    assert_ok(check());
    end();
    compile_replicas("ref:0/3", "mirrored");
    assert_ok(check());
    end();
}

static void an_event_that_is_signalled_twice_is_rejected(void **unused) {
    (void)unused;
    compile_exchange();
    uint32_t queue = compute_queue(0), position = find(queue, TU_COMMAND_SIGNAL, 0);
    insert_command(queue, position, e.commands[queue][position]);
    expect_failure(1, queue, position + 1, "the event is signalled twice in a step");
    end();
}

/* Partition 0 receives nothing, so that nothing signals the end of its step, which is event 0. */
static void waiting_for_an_event_that_is_never_signalled_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = compute_queue(1);
    insert_command(queue, 1, (tu_command){.kind = TU_COMMAND_WAIT, .index = 0});
    expect_failure(1, queue, 1, "no command signals the event");
    e.commands[queue][1].kind = TU_COMMAND_WAIT_PREVIOUS;
    expect_failure(1, queue, 1, "no command signals the event");
    end();
}

static void queues_that_wait_for_each_other_are_rejected(void **unused) {
    (void)unused;
    compile_exchange();
    uint32_t queue = compute_queue(0), signal = find(queue, TU_COMMAND_SIGNAL, 0);
    move_command(queue, find(queue, TU_COMMAND_WAIT, 0), signal);
    expect_failure(1, queue, signal, "it waits for a command that never runs");
    end();
}

static void kernels_in_another_order_are_rejected(void **unused) {
    (void)unused;
    compile_exchange();
    uint32_t queue = compute_queue(0), first = find(queue, TU_COMMAND_LAUNCH, 0),
             second = find(queue, TU_COMMAND_LAUNCH, first + 1);
    tu_command launch = e.commands[queue][first];
    e.commands[queue][first] = e.commands[queue][second];
    e.commands[queue][second] = launch;
    expect_failure(1, queue, first, "it does not continue the partition's order of kernels");
    copy_list();
    e.commands[queue][second].count++;
    expect_failure(1, queue, second, "it does not continue the partition's order of kernels");
    copy_list();
    remove_command(queue, second);
    expect_message("rule 1: device 'ref:0.0' launches 1 of 2 kernels");
    end();
}

static void expect_index_out_of_range(uint32_t queue, uint32_t position) {
    e.commands[queue][position].index = UINT32_MAX;
    expect_failure(1, queue, position, "its index is out of range");
    copy_list();
}

static void an_index_out_of_range_is_rejected(void **unused) {
    (void)unused;
    static const tu_command_kind kinds[] = {TU_COMMAND_FEED,  TU_COMMAND_POST, TU_COMMAND_AWAIT,
                                            TU_COMMAND_FETCH, TU_COMMAND_WAIT, TU_COMMAND_SIGNAL};
    compile_collective();
    uint32_t copies = queue_from(0, 2), copy = find(copies, TU_COMMAND_COPY, 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        expect_index_out_of_range(compute_queue(0), find(compute_queue(0), kinds[i], 0));
    expect_index_out_of_range(copies, find(copies, TU_COMMAND_WAIT_PREVIOUS, 0));
    e.commands[copies][copy].from.buffer = UINT32_MAX;
    expect_failure(1, copies, copy, "its index is out of range");
    copy_list();
    e.commands[copies][copy].to.partition = 3;
    expect_failure(1, copies, copy, "its index is out of range");
    copy_list();
    e.commands[copies][copy].kind = (tu_command_kind)99;
    expect_failure(1, copies, copy, "its index is out of range");
    end();
}

static void a_command_in_a_queue_that_may_not_have_it_is_rejected(void **unused) {
    (void)unused;
    compile_exchange();
    uint32_t copies = queue_from(0, 1);
    insert_command(copies, 1, (tu_command){.kind = TU_COMMAND_LAUNCH, .count = 1});
    expect_failure(1, copies, 1, "it belongs to another queue");
    copy_list();
    insert_command(queue_from(1, 0), 1, e.commands[copies][find(copies, TU_COMMAND_COPY, 0)]);
    expect_failure(1, queue_from(1, 0), 1, "it belongs to another queue");
    copy_list();
    insert_command(compute_queue(1), 0,
                   e.commands[compute_queue(0)][find(compute_queue(0), TU_COMMAND_FEED, 0)]);
    expect_failure(1, compute_queue(1), 0, "it belongs to another queue");
    end();
}

/* ---- Rule 2: memory ---- */

static void a_kernel_that_does_not_wait_for_its_copy_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = compute_queue(1), wait = find(queue, TU_COMMAND_WAIT, 0);
    assert_int_equal(e.commands[queue][wait + 1].kind, TU_COMMAND_LAUNCH);
    remove_command(queue, wait);
    expect_failure(2, queue, wait, "command 5 of another queue (COPY ");
    end();
}

static void a_sender_that_does_not_wait_at_the_end_of_its_step_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = compute_queue(0);
    remove_command(queue, find_last(queue, TU_COMMAND_WAIT));
    /* the input of the next step has the memory of h */
    expect_failure(2, queue, find(queue, TU_COMMAND_FEED, 0), "command 5 of another queue (COPY ");
    end();
}

static void a_copy_that_does_not_wait_for_the_previous_step_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = queue_from(0, 1);
    remove_command(queue, find(queue, TU_COMMAND_WAIT_PREVIOUS, 0));
    expect_failure(2, compute_queue(1), find(compute_queue(1), TU_COMMAND_LAUNCH, 0),
                   "command 4 of another queue (COPY ");
    end();
}

static void a_value_that_is_copied_before_it_is_computed_is_rejected(void **unused) {
    (void)unused;
    compile_exchange();
    uint32_t queue = compute_queue(0), launch = find(queue, TU_COMMAND_LAUNCH, 0);
    move_command(queue, find(queue, TU_COMMAND_SIGNAL, 0), launch);
    expect_failure(2, queue, launch + 1, "command 2 of another queue (COPY ");
    end();
}

static void a_sum_that_is_read_before_the_await_is_rejected(void **unused) {
    (void)unused;
    compile_collective();
    uint32_t queue = compute_queue(1), await = find(queue, TU_COMMAND_AWAIT, 0);
    move_command(queue, await, find_last(queue, TU_COMMAND_LAUNCH));
    expect_failure(2, queue, await, "collective 0 touches the same memory");
    end();
}

/* Asserts that a collective is rejected if the result of the first rank has the memory of its input, except for kinds
 * that can compute in place. */
static void check_aliased_result(tu__opcode op, bool is_accepted) {
    compile_collective_of(op);
    assert_ok(check());
    const tu__member *member = &e.program->collectives.list[0].members[0];
    tu__memory_plan *memory = &e.program->partitions[member->partition].memory;
    size_t before = memory->offset[member->out[0]];
    memory->offset[member->out[0]] = memory->offset[member->in[0]];
    if (is_accepted)
        assert_ok(check());
    else
        expect_message("breaks rule 2: collective 0 (");
    memory->offset[member->out[0]] = memory->offset[member->in[0]] + 4; /* never */
    expect_message("breaks rule 2: collective 0 (");
    memory->offset[member->out[0]] = before;
    assert_ok(check());
    end();
}

static void a_collective_that_overwrites_its_inputs_is_rejected(void **unused) {
    (void)unused;
    check_aliased_result(TU__OP_ALL_REDUCE, true);
    check_aliased_result(TU__OP_COLLECTIVE_BROADCAST, true);
    check_aliased_result(TU__OP_REDUCE_SCATTER, false);
    check_aliased_result(TU__OP_ALL_GATHER, false);
}

/* ---- Rule 3: variables ---- */

static void a_variable_that_changes_while_another_queue_reads_it_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = compute_queue(0), commit = find(queue, TU_COMMAND_COMMIT, 0);
    assert_int_equal(e.commands[queue][commit - 1].kind, TU_COMMAND_WAIT);
    remove_command(queue, commit - 1);
    expect_failure(3, queue, find(queue, TU_COMMAND_COPY, commit), "command 2 of another queue (COPY ");
    assert_non_null(strstr(tu_message(), "touches the same variable"));
    end();
}

static void a_kernel_that_changes_a_variable_before_commit_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = compute_queue(0), commit = find(queue, TU_COMMAND_COMMIT, 0);
    move_command(queue, commit, commit + 1);
    expect_failure(3, queue, commit, "it writes a variable or a constant before COMMIT");
    end();
}

static void a_copy_to_a_variable_before_commit_is_rejected(void **unused) {
    (void)unused;
    compile_swaps();
    uint32_t queue = compute_queue(0), commit = find(queue, TU_COMMAND_COMMIT, 0);
    move_command(queue, commit, find_last(queue, TU_COMMAND_COPY));
    expect_failure(3, queue, find(queue, TU_COMMAND_COPY, 0),
                   "it writes a variable or a constant before COMMIT");
    end();
}

static void a_queue_without_one_commit_is_rejected(void **unused) {
    (void)unused;
    compile_one_way();
    uint32_t queue = compute_queue(1), commit = find(queue, TU_COMMAND_COMMIT, 0);
    insert_command(queue, commit, e.commands[queue][commit]);
    expect_failure(3, queue, commit + 1, "the queue has committed before");
    copy_list();
    remove_command(queue, commit);
    expect_message("rule 3: the compute queue of device 'ref:0.1' has no COMMIT");
    end();
}

/* The engine interprets COMMIT as a barrier, which would never be reached. */
static void a_commit_that_waits_for_a_command_after_another_commit_is_rejected(void **unused) {
    (void)unused;
    compile_exchange();
    uint32_t queue = compute_queue(1), other = compute_queue(0);
    move_command(queue, find(queue, TU_COMMAND_SIGNAL, 0), find(queue, TU_COMMAND_COMMIT, 0));
    expect_failure(3, other, find(other, TU_COMMAND_COMMIT, 0),
                   "it waits for a command after the COMMIT of another queue");
    end();
}

/* ---- Rule 4: collectives ---- */

static void a_rank_that_posts_or_awaits_twice_is_rejected(void **unused) {
    (void)unused;
    compile_collective();
    uint32_t queue = compute_queue(0), post = find(queue, TU_COMMAND_POST, 0);
    insert_command(queue, post, e.commands[queue][post]);
    expect_failure(4, queue, post + 1, "the rank has posted before");
    copy_list();
    uint32_t await = find(queue, TU_COMMAND_AWAIT, 0);
    insert_command(queue, await, e.commands[queue][await]);
    expect_failure(4, queue, await + 1, "the rank has awaited the collective before");
    end();
}

static void a_partition_that_is_no_rank_may_not_post(void **unused) {
    (void)unused;
    compile_collective();
    uint32_t queue = compute_queue(2);
    insert_command(queue, 0, (tu_command){.kind = TU_COMMAND_POST});
    expect_failure(4, queue, 0, "the partition is no rank of the collective");
    e.commands[queue][0].kind = TU_COMMAND_AWAIT;
    expect_failure(4, queue, 0, "the partition is no rank of the collective");
    end();
}

static void an_await_before_its_post_is_rejected(void **unused) {
    (void)unused;
    compile_replicas("ref:0/3", "mirrored");
    uint32_t queue = compute_queue(1), post = find(queue, TU_COMMAND_POST, 0);
    move_command(queue, find(queue, TU_COMMAND_AWAIT, 0), post);
    expect_failure(4, queue, post, "the rank has not posted yet");
    end();
}

static void a_rank_that_does_not_take_part_is_rejected(void **unused) {
    (void)unused;
    compile_collective();
    uint32_t queue = compute_queue(1);
    remove_command(queue, find(queue, TU_COMMAND_AWAIT, 0));
    expect_message("rule 4: device 'ref:0.1' does not await collective 0");
    remove_command(queue, find(queue, TU_COMMAND_POST, 0));
    expect_message("rule 4: device 'ref:0.1' does not post its values of collective 0");
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_the_engine_are_accepted),
        cmocka_unit_test(a_collective_that_overwrites_its_inputs_is_rejected),
        cmocka_unit_test(an_event_that_is_signalled_twice_is_rejected),
        cmocka_unit_test(waiting_for_an_event_that_is_never_signalled_is_rejected),
        cmocka_unit_test(queues_that_wait_for_each_other_are_rejected),
        cmocka_unit_test(kernels_in_another_order_are_rejected),
        cmocka_unit_test(an_index_out_of_range_is_rejected),
        cmocka_unit_test(a_command_in_a_queue_that_may_not_have_it_is_rejected),
        cmocka_unit_test(a_kernel_that_does_not_wait_for_its_copy_is_rejected),
        cmocka_unit_test(a_sender_that_does_not_wait_at_the_end_of_its_step_is_rejected),
        cmocka_unit_test(a_copy_that_does_not_wait_for_the_previous_step_is_rejected),
        cmocka_unit_test(a_value_that_is_copied_before_it_is_computed_is_rejected),
        cmocka_unit_test(a_sum_that_is_read_before_the_await_is_rejected),
        cmocka_unit_test(a_variable_that_changes_while_another_queue_reads_it_is_rejected),
        cmocka_unit_test(a_kernel_that_changes_a_variable_before_commit_is_rejected),
        cmocka_unit_test(a_copy_to_a_variable_before_commit_is_rejected),
        cmocka_unit_test(a_queue_without_one_commit_is_rejected),
        cmocka_unit_test(a_commit_that_waits_for_a_command_after_another_commit_is_rejected),
        cmocka_unit_test(a_rank_that_posts_or_awaits_twice_is_rejected),
        cmocka_unit_test(a_partition_that_is_no_rank_may_not_post),
        cmocka_unit_test(an_await_before_its_post_is_rejected),
        cmocka_unit_test(a_rank_that_does_not_take_part_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
