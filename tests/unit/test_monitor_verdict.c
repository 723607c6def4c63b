/* Verdicts of the monitor: which rank of a table is blamed, and the words. And the messages that carry them. */
#include "comm/monitor_thread.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

enum { RANKS = 64 };

static tu__monitor_rank rows[RANKS];

/* Returns a table of ranks that wait in collective 7 after step 41 and were heard at time 100. */
static tu__monitor_table waiting_table(uint32_t size) {
    memset(rows, 0, sizeof rows);
    for (uint32_t r = 0; r < size; r++) {
        tu__monitor_rank *row = &rows[r];
        snprintf(row->host, sizeof row->host, "node%u", r / 4);
        snprintf(row->device, sizeof row->device, "gpu:%u", r % 4);
        row->report = (tu__monitor_report){.step = 41,
                                           .collective = 7,
                                           .entered = true,
                                           .waited_ms = 60000,
                                           .state = TU__MONITOR_IN_COLLECTIVE};
        snprintf(row->operation, sizeof row->operation, "all_reduce of 'w'");
        row->heard = 100;
    }
    return (tu__monitor_table){.size = size, .timeout = 60, .ranks = rows};
}

static void end_at(uint32_t rank, double time) {
    rows[rank].report.ended = true;
    rows[rank].ended = time;
}

static void the_first_rank_that_ended_is_blamed(void **state) {
    (void)state;
    tu__monitor_table table = waiting_table(4);
    tu__verdict verdict;
    end_at(1, 100.2);
    end_at(3, 100.1);
    rows[0].report.step = 42;
    tu__verdict_ended(&table, &verdict);
    assert_int_equal(verdict.rank, 3);
    assert_string_equal(
        verdict.line,
        "rank 3 (host node0, device gpu:3) ended unexpectedly after step 41, while in collective 7, "
        "all_reduce of 'w'; ended after it: rank 1; last steps: rank 0: 42, ranks 1-2: 41");
}

static void an_unknown_operation_is_that_of_a_rank_in_the_same_collective(void **state) {
    (void)state;
    tu__monitor_table table = waiting_table(4);
    tu__verdict verdict;
    rows[0].report.collective = 6;
    snprintf(rows[0].operation, sizeof rows[0].operation, "broadcast");
    rows[1].operation[0] = '\0';
    end_at(1, 100);
    tu__verdict_ended(&table, &verdict);
    assert_non_null(strstr(verdict.line, "while in collective 7, all_reduce of 'w'; last steps"));
    rows[1].report.collective = 5;
    tu__verdict_ended(&table, &verdict);
    assert_non_null(strstr(
        verdict.line, "while in collective 5; rank 0 waits for it in collective 6, broadcast; last steps"));
}

static void an_unknown_operation_is_one_that_this_rank_has_completed(void **state) {
    (void)state;
    tu__monitor_table table = waiting_table(3);
    tu__verdict verdict;
    table.recent[6 % TU__MONITOR_RECENT] = (tu__monitor_collective){6, "broadcast"};
    rows[2].report.collective = 6;
    rows[2].operation[0] = '\0';
    end_at(2, 100);
    tu__verdict_ended(&table, &verdict);
    assert_non_null(
        strstr(verdict.line, "while in collective 6, broadcast; rank 0 waits for it in collective 7"));
}

static void the_collective_in_which_others_wait_for_a_rank_that_ended_is_named(void **state) {
    (void)state;
    tu__monitor_table table = waiting_table(4);
    tu__verdict verdict;
    end_at(2, 100);
    rows[2].report.collective = 6;
    rows[2].report.state = TU__MONITOR_COMPUTING;
    rows[0].report.collective = 6; /* has completed it, and computes, too */
    rows[0].report.state = TU__MONITOR_COMPUTING;
    tu__verdict_ended(&table, &verdict);
    assert_string_equal(verdict.line,
                        "rank 2 (host node0, device gpu:2) ended unexpectedly after step 41, while "
                        "computing; rank 1 waits for it in collective 7, all_reduce of 'w'; last "
                        "steps: ranks 0-1: 41, rank 3: 41");
}

static void a_report_older_than_an_exchange_of_all_ranks_is_corrected(void **state) {
    (void)state;
    tu__monitor_table table = waiting_table(4);
    tu__verdict verdict;
    table.common_step = 44;
    rows[3].report.step = 45;
    end_at(0, 100);
    tu__verdict_ended(&table, &verdict);
    assert_non_null(strstr(verdict.line, "ended unexpectedly after step 44, while"));
    assert_non_null(strstr(verdict.line, "; last steps: ranks 1-2: 44, rank 3: 45"));
}

static void if_rank_0_is_silent_nothing_is_known_of_the_others(void **state) {
    (void)state;
    tu__monitor_table table = waiting_table(4);
    tu__verdict verdict;
    rows[2].heard = 160; /* this rank itself */
    tu__verdict_silent(&table, 0, 2, 160, &verdict);
    assert_null(strstr(verdict.line, "also silent"));
    rows[0].heard = 160;
    tu__verdict_silent(&table, 1, 0, 160, &verdict);
    assert_non_null(strstr(verdict.line, "; also silent: rank 3; it is needed"));
}

static void the_message_of_a_failing_rank_is_kept_on_one_line(void **state) {
    (void)state;
    tu__monitor_table table = waiting_table(3);
    tu__verdict verdict;
    rows[2].report.step = 0;
    end_at(0, 100);
    tu__verdict_failed(&table, 2, TU_IO, "disk full:\n/data", &verdict);
    assert_string_equal(verdict.line, "rank 2 (host node0, device gpu:2) failed before its first step: disk "
                                      "full:?/data; ended before that: rank 0; last steps: ranks 0-1: 41");
}

static void the_rank_that_has_not_answered_is_blamed(void **state) {
    (void)state;
    tu__monitor_table table = waiting_table(3);
    tu__verdict verdict;
    rows[0].heard = rows[2].heard = 160;
    rows[1].report.state = TU__MONITOR_COMPUTING;
    assert_true(tu__monitor_is_silent(&rows[1], 161.25));
    assert_true(tu__monitor_is_silent(&rows[2], 161.25));
    assert_false(tu__monitor_is_silent(&rows[2], 160.9));
    tu__verdict_silent(&table, 1, 0, 160.5, &verdict);
    assert_string_equal(
        verdict.line,
        "rank 1 (host node0, device gpu:1) has not answered for 60.5 s (last heard after step 41, "
        "computing): the process is stopped or its host is unreachable; it is needed in collective "
        "7, all_reduce of 'w', in which rank 0 has made no progress for 60.0 s (timeout 60 s); last steps: rank "
        "0: 41, rank 2: 41");
}

static void the_rank_that_is_farthest_behind_is_late(void **state) {
    (void)state;
    tu__monitor_table table = waiting_table(4);
    tu__verdict verdict;
    rows[1].report.state = TU__MONITOR_COMPUTING; /* has completed the collective: ahead */
    rows[2].report.collective = 6;
    rows[2].report.state = TU__MONITOR_COMPUTING;
    rows[3].report.collective = 6;
    snprintf(rows[3].operation, sizeof rows[3].operation, "broadcast");
    tu__verdict_late(&table, 0, &verdict);
    assert_int_equal(verdict.rank, 3);
    assert_string_equal(
        verdict.line,
        "rank 3 (host node0, device gpu:3) is late: alive, still in collective 6, broadcast, after step "
        "41; it has not reached collective 7, all_reduce of 'w', in which rank 0 has made no progress for 60.0 s "
        "(timeout 60 s); also late: rank 2; last steps: ranks 0-2: 41");
    rows[3].report.entered = false;
    rows[3].report.state = TU__MONITOR_LEAVING;
    tu__verdict_late(&table, 0, &verdict);
    assert_non_null(strstr(verdict.line,
                           "rank 3 (host node0, device gpu:3) has finished after step 41 and will not "
                           "reach collective 7"));
}

/* A rank that enters the collective when others have waited for too long may be about to complete it, or receives values
 * over a slow network. */
static void the_network_is_blamed_only_when_no_rank_makes_progress(void **state) {
    (void)state;
    tu__monitor m = {.size = 3, .started = 0, .table = waiting_table(3)};
    rows[2].report.waited_ms = 300; /* when it was heard, at 100 */
    assert_true(tu__monitor_excuses_late(&m, 0, 100.1));
    assert_true(tu__monitor_excuses_late(&m, 0, 159.6));
    assert_false(tu__monitor_excuses_late(&m, 0, 159.8));
    rows[2].report.waited_ms = 59800; /* no later than the others, as far as is known */
    assert_false(tu__monitor_excuses_late(&m, 0, 100.1));
    m.table.timeout = 0.1;
    rows[2].report.waited_ms = 300;
    assert_true(tu__monitor_excuses_late(&m, 0, 100.1));
    assert_false(tu__monitor_excuses_late(&m, 0, 100.8));
}

/* A rank that is behind may have got the values of its last collective later than the others. */
static void a_rank_that_has_made_progress_later_than_the_one_that_waits_has_time(void **state) {
    (void)state;
    tu__monitor m = {.size = 3, .started = 0, .table = waiting_table(3)};
    for (int is_computing = 0; is_computing < 2; is_computing++) {
        rows[2].report.collective = 6;
        rows[2].report.begun = true;
        rows[2].report.state = is_computing ? TU__MONITOR_COMPUTING : TU__MONITOR_IN_COLLECTIVE;
        rows[2].report.waited_ms = 20000;
        assert_true(tu__monitor_excuses_late(&m, 0, 139));
        assert_false(tu__monitor_excuses_late(&m, 0, 141));
        rows[2].report.waited_ms = 61000;
        assert_false(tu__monitor_excuses_late(&m, 0, 100));
    }
    rows[2].report.waited_ms = 20000;
    rows[2].report.ended = true;
    assert_false(tu__monitor_excuses_late(&m, 0, 139));
}

static void a_rank_before_its_first_step_has_time(void **state) {
    (void)state;
    tu__monitor m = {.size = 3, .started = 50, .table = waiting_table(3)};
    rows[2].report.collective = 6;
    assert_true(tu__monitor_excuses_late(&m, 0, 640));
    assert_false(tu__monitor_excuses_late(&m, 0, 660));
    rows[2].report.begun = true;
    assert_false(tu__monitor_excuses_late(&m, 0, 640));
}

static void collective_0_is_after_the_start(void **state) {
    (void)state;
    tu__monitor_table table = waiting_table(2);
    tu__verdict verdict;
    rows[0].report.collective = rows[1].report.collective = 0;
    rows[1].report.entered = false;
    rows[1].report.state = TU__MONITOR_COMPUTING;
    tu__verdict_late(&table, 0, &verdict);
    assert_int_equal(verdict.rank, 1);
    rows[1].report.entered = true;
    tu__verdict_late(&table, 0, &verdict);
    assert_int_equal(verdict.kind, TU__VERDICT_STALLED);
}

static void steps_of_many_ranks_are_summarized(void **state) {
    (void)state;
    tu__monitor_table table = waiting_table(RANKS);
    tu__verdict verdict;
    rows[63].report.step = 40;
    end_at(20, 100);
    tu__verdict_ended(&table, &verdict);
    assert_non_null(strstr(verdict.line, "; last steps: ranks 0-19: 41, ranks 21-62: 41, rank 63: 40"));
    for (uint32_t r = 0; r < RANKS; r++) rows[r].report.step = 100 + r % 3;
    rows[17].report.step = 99;
    rows[20].report.step = 7;
    tu__verdict_ended(&table, &verdict);
    assert_non_null(strstr(verdict.line, "; last steps of the others: 99 (rank 17) to 102 (rank 2)"));
}

static void long_lines_are_cut(void **state) {
    (void)state;
    tu__monitor_table table = waiting_table(RANKS);
    tu__verdict verdict;
    char why[3000];
    memset(why, 'x', sizeof why - 1);
    why[sizeof why - 1] = '\0';
    for (uint32_t r = 0; r < RANKS; r++) {
        memset(rows[r].operation, 'o', sizeof rows[r].operation - 1);
        rows[r].report.step = INT64_MAX - r;
        end_at(r, r);
    }
    tu__verdict_failed(&table, 5, TU_IO, why, &verdict);
    assert_true(strlen(verdict.line) < sizeof verdict.line);
    assert_non_null(strstr(verdict.line, "; ended before that: rank 0, rank 1, "));
    assert_non_null(strstr(verdict.line, " and 51 more; last steps of the others: "));
    tu__verdict_ended(&table, &verdict);
    tu__verdict_silent(&table, 1, 2, 1000, &verdict);
    tu__verdict_late(&table, 2, &verdict);
    assert_true(strlen(verdict.line) < sizeof verdict.line);
}

static void a_message_is_decoded_only_when_it_is_whole(void **state) {
    (void)state;
    uint8_t bytes[2000];
    size_t used;
    tu__monitor_message decoded,
        message = {.type = TU__MONITOR_VERDICT, .rank = 3, .kind = TU__VERDICT_LATE, .cause = TU_LOST};
    tu__monitor_set_text(&message, "rank 3 is\tlate");
    size_t count = tu__monitor_encode(&message, bytes, sizeof bytes);
    assert_true(count > 0);
    for (size_t part = 0; part < count; part++)
        assert_int_equal(tu__monitor_decode(bytes, part, 4, &decoded, &used), TU__MONITOR_PARTIAL);
    assert_int_equal(tu__monitor_decode(bytes, sizeof bytes, 4, &decoded, &used), TU__MONITOR_WHOLE);
    char text[64];
    tu__monitor_copy_text(&decoded, text, sizeof text);
    assert_string_equal(text, "rank 3 is?late");
    assert_int_equal(used, count);
    assert_int_equal(decoded.rank, 3);
    assert_int_equal(decoded.cause, TU_LOST);
    for (size_t i = 0; i < TU__MONITOR_HEADER_BYTES; i++) {
        bytes[i] ^= 0x80;
        assert_int_not_equal(tu__monitor_decode(bytes, count, 4, &decoded, &used), TU__MONITOR_WHOLE);
        bytes[i] ^= 0x80;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_rank_that_ended_is_blamed),
        cmocka_unit_test(an_unknown_operation_is_that_of_a_rank_in_the_same_collective),
        cmocka_unit_test(an_unknown_operation_is_one_that_this_rank_has_completed),
        cmocka_unit_test(the_collective_in_which_others_wait_for_a_rank_that_ended_is_named),
        cmocka_unit_test(a_report_older_than_an_exchange_of_all_ranks_is_corrected),
        cmocka_unit_test(if_rank_0_is_silent_nothing_is_known_of_the_others),
        cmocka_unit_test(the_message_of_a_failing_rank_is_kept_on_one_line),
        cmocka_unit_test(the_rank_that_has_not_answered_is_blamed),
        cmocka_unit_test(the_rank_that_is_farthest_behind_is_late),
        cmocka_unit_test(the_network_is_blamed_only_when_no_rank_makes_progress),
        cmocka_unit_test(a_rank_that_has_made_progress_later_than_the_one_that_waits_has_time),
        cmocka_unit_test(a_rank_before_its_first_step_has_time),
        cmocka_unit_test(collective_0_is_after_the_start),
        cmocka_unit_test(steps_of_many_ranks_are_summarized),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(a_message_is_decoded_only_when_it_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
