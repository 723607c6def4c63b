/* Tests how the devices of a host are divided among its processes: tu_process_group_devices. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/process_group.h"

enum {
    MAX_SIZE = 9,
    MAX_DEVICE = 16,
    TEXT = 1024,
    PARTS = 5040
}; /* 5040: divisible by all numbers below 11 */

/* Returns the share of a process: all processes are on one host and may use the same cores. */
static void share_of(uint32_t rank, uint32_t size, const char *list, char devices[TEXT]) {
    static tu__process processes[MAX_SIZE];
    const tu_process_group group = {
        .info = {.rank = rank, .size = size, .host_rank = rank, .host_size = size, .host = "here"},
        .processes = processes};
    assert_int_equal(tu_process_group_devices(&group, list, devices, TEXT), TU_OK);
}

static void assert_share(uint32_t rank, uint32_t size, const char *list, const char *expected) {
    char devices[TEXT];
    share_of(rank, size, list, devices);
    assert_string_equal(devices, expected);
}

static void processes_get_whole_devices_if_there_are_enough(void **state) {
    (void)state;
    assert_share(3, 8, "gpu:0-7", "gpu:3");
    assert_share(1, 2, "gpu:0-7", "gpu:4,gpu:5,gpu:6,gpu:7");
    assert_share(1, 2, "gpu:0,gpu:2", "gpu:2");
    assert_share(1, 2, "gpu:0-1,gpu:5-6", "gpu:5,gpu:6");
    assert_share(0, 2, "gpu:0-2", "gpu:0");
    assert_share(1, 2, "gpu:0-2", "gpu:1,gpu:2");
}

static void whole_devices_may_be_divided_into_logical_ones(void **state) {
    (void)state;
    const char *expected[] = {"gpu:0/2", "gpu:1/2", "gpu:2/2", "gpu:3/2"};
    for (uint32_t r = 0; r < 4; r++) assert_share(r, 4, "gpu:0-3/2", expected[r]);
    assert_share(1, 4, "gpu:0-7/2", "gpu:2/2,gpu:3/2");
    assert_share(1, 2, "cpu:0.0/2,cpu:0.1/2", "cpu:0.1/2");
}

static void several_processes_divide_a_device(void **state) {
    (void)state;
    assert_share(1, 4, "cpu:0", "cpu:0.1/4");
    assert_share(1, 2, "cpu:0/2", "cpu:0.2/4,cpu:0.3/4");
    assert_share(3, 4, "gpu:0-1", "gpu:1.1/2");
    assert_share(2, 3, "gpu:0-1", "gpu:1");
    assert_share(1, 2, "cpu:0.1/2", "cpu:0.3/4"); /* not a part of the other half */
}

static void kinds_are_divided_by_themselves(void **state) {
    (void)state;
    assert_share(1, 2, "gpu:0-1,cpu:0", "gpu:1,cpu:0.1/2");
    assert_share(1, 2, "ref,cpu:0", "ref,cpu:0.1/2");
}

static void what_cannot_be_opened_is_kept_for_its_message(void **state) {
    (void)state;
    const char *const lists[] = {"gpu:0,gpu:0",       "gpu:0-3,gpu:2", "gpu:3-1", "gpu:x",
                                 "gpu:0/0",           "gpu:0.2/2",     "gpu:-1",  "cpu:99999999",
                                 "gpu:0-99999999999", "cpu:0/99999999"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) assert_share(1, 2, lists[i], lists[i]);
}

/* ---- All combinations ---- */

/* Marks what a list of devices of one kind contains. Returns the number of devices, logical ones counted one by one. */
static uint32_t mark(const char *devices, uint8_t owners[MAX_DEVICE][PARTS]) {
    uint32_t count = 0;
    for (const char *text = devices; *text; text += strcspn(text, ","), text += *text == ',') {
        char *rest;
        long device = strtol(strchr(text, ':') + 1, &rest, 10), index = -1, logical = 1;
        if (*rest == '.') index = strtol(rest + 1, &rest, 10);
        if (*rest == '/') logical = strtol(rest + 1, &rest, 10);
        assert_true((*rest == ',' || !*rest) && device < MAX_DEVICE && PARTS % logical == 0);
        long first = index < 0 ? 0 : index * PARTS / logical, parts = index < 0 ? PARTS : PARTS / logical;
        for (long i = first; i < first + parts; i++) owners[device][i]++;
        count += index < 0 ? (uint32_t)logical : 1;
    }
    return count;
}

/* Every part of the devices belongs to one process. If the devices are a multiple of the processes, or the reverse,
 * all processes have equally many. */
static void check_division(uint32_t first, uint32_t devices, uint32_t logical, uint32_t size) {
    static uint8_t owners[MAX_DEVICE][PARTS];
    char list[TEXT], share[TEXT];
    uint32_t least = UINT32_MAX, most = 0;
    memset(owners, 0, sizeof owners);
    int length = snprintf(list, sizeof list, "gpu:%u-%u", first, first + devices - 1);
    if (logical > 1) snprintf(list + length, sizeof list - (size_t)length, "/%u", logical);
    for (uint32_t r = 0; r < size; r++) {
        share_of(r, size, list, share);
        uint32_t count = mark(share, owners);
        if (count < least) least = count;
        if (count > most) most = count;
    }
    for (uint32_t d = 0; d < MAX_DEVICE; d++)
        for (uint32_t i = 0; i < PARTS; i++)
            if (owners[d][i] != (d >= first && d < first + devices))
                fail_msg("%s over %u processes: device %u has %u owners", list, size, d, owners[d][i]);
    if (least == 0) fail_msg("%s over %u processes: one has none", list, size);
    if ((devices % size == 0 || size % devices == 0) && least != most)
        fail_msg("%s over %u processes: %u to %u devices", list, size, least, most);
}

static void no_device_loses_or_gains_a_share(void **state) {
    (void)state;
    for (uint32_t size = 1; size <= MAX_SIZE; size++)
        for (uint32_t devices = 1; devices <= 9; devices++)
            for (uint32_t logical = 1; logical <= 3; logical++)
                if (PARTS % (logical * ((size + devices - 1) / devices)) == 0)
                    check_division(devices % 3, devices, logical, size);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_get_whole_devices_if_there_are_enough),
        cmocka_unit_test(whole_devices_may_be_divided_into_logical_ones),
        cmocka_unit_test(several_processes_divide_a_device),
        cmocka_unit_test(kinds_are_divided_by_themselves),
        cmocka_unit_test(what_cannot_be_opened_is_kept_for_its_message),
        cmocka_unit_test(no_device_loses_or_gains_a_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
