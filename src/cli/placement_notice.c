/* Prints notices about the placement of a program, and the device of a model. See placement_notice.h. */
#include "cli/placement_notice.h"

#include "cli/report.h"

void cli_print_placement_notice(const tu_program *program) {
    tu_placement_totals totals = TU_SIZED(tu_placement_totals);
    if (tu_program_placement_totals(program, &totals) == TU_OK && totals.notice)
        fprintf(stderr, "tutti: %s\n", totals.notice);
}

void cli_print_model_notice(const tu_model *model) {
    tu_device_report report = TU_SIZED(tu_device_report);
    if (tu_program_device(tu_model_program(model, 0), 0, &report) == TU_OK && report.notice)
        fprintf(stderr, "tutti: notice: %s\n", report.notice);
}

int cli_apply_placement_lock(const tu_program *program, const char *lock, bool update) {
    if (!lock) return CLI_DONE;
    char *diff;
    tu_status status = tu_program_check_placement(program, lock, update, &diff);
    int result = cli_report(status);
    if (diff) fputs(diff, stderr);
    tu_bytes_free(diff);
    return result;
}
