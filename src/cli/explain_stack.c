/* Prints the table from which `tutti train --stack auto` chooses. See explain_stack.h. */
#include "cli/explain_stack.h"

#include <inttypes.h>
#include <stdio.h>

#include <tutti/command.h>

#include "cli/byte_size.h"
#include "cli/report.h"

enum { MAX_ROWS = 16 };

static double ms_per_member(const tu_stack_time *time) {
    return 1e3 * time->seconds / (double)time->members;
}

static void print_table(size_t count, const tu_stack_time *times, int64_t fastest, int64_t members) {
    printf("%8s  %10s  %14s  %8s  %10s\n", "members", "ms a step", "ms per member", "speedup", "memory");
    for (size_t i = 0; i < count; i++) {
        struct cli_bytes_text bytes = cli_format_bytes(times[i].bytes);
        printf("%8" PRId64 "  %10.4g  %14.4g  %8.2f  %10s%s\n", times[i].members, 1e3 * times[i].seconds,
               ms_per_member(&times[i]), ms_per_member(&times[0]) / ms_per_member(&times[i]), bytes.text,
               times[i].members == fastest ? "  chosen" : "");
    }
    if (times[count - 1].members < members)
        printf("\nmore than %" PRId64 " members do not fit the device\n", times[count - 1].members);
    printf("\n--stack auto trains %" PRId64 " member%s at once%s\n", fastest, fastest == 1 ? "" : "s",
           fastest == 1 ? ": no larger number is at least 3 % faster per member" : "");
}

static void print_json(size_t count, const tu_stack_time *times, int64_t fastest) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_i64(&json, "chosen", fastest);
    tu_json_begin_array(&json, "stacks");
    for (size_t i = 0; i < count; i++) {
        tu_json_begin_object(&json, NULL);
        tu_json_i64(&json, "members", times[i].members);
        tu_json_f64(&json, "ms_per_step", 1e3 * times[i].seconds);
        tu_json_f64(&json, "ms_per_member", ms_per_member(&times[i]));
        tu_json_u64(&json, "bytes", times[i].bytes);
        tu_json_end_object(&json);
    }
    tu_json_end_array(&json);
    tu_json_end_object(&json);
    putchar('\n');
}

int explain_stack(const char *model, const char *data, int64_t members, bool json,
                  const tu_train_options *options) {
    tu_stack_time times[MAX_ROWS];
    size_t count = 0;
    int64_t fastest = 1;
    tu_status status =
        tu_measure_stacks_with(model, data, members, MAX_ROWS, times, &count, &fastest, options);
    if (status != TU_OK) return cli_report(status);
    if (count > MAX_ROWS) count = MAX_ROWS;
    if (json)
        print_json(count, times, fastest);
    else
        print_table(count, times, fastest, members);
    return CLI_DONE;
}
