/* The table of the devices' memory. See memory_table.h. */
#include "cli/memory_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/byte_size.h"

enum { MAX_DEVICES = 64 }; /* of a program */

struct memory_row {
    char device[64];
    uint64_t scratch, constants, variables, overhead, need; /* bytes */
};

struct process_rows {
    uint64_t count;
    struct memory_row rows[MAX_DEVICES];
};

struct memory_table {
    uint32_t processes; /* 0: a process alone */
    struct process_rows *of_process;
};

static void collect(const tu_program *program, struct process_rows *own) {
    tu_memory_report m = TU_SIZED(tu_memory_report);
    while (own->count < MAX_DEVICES && own->count < tu_program_device_count(program) &&
           tu_program_memory(program, (size_t)own->count, &m) == TU_OK) {
        struct memory_row *row = &own->rows[own->count++];
        *row = (struct memory_row){.scratch = m.scratch_bytes,
                                   .constants = m.constant_bytes,
                                   .variables = m.variable_bytes,
                                   .overhead = m.overhead_bytes,
                                   .need = m.need_bytes};
        snprintf(row->device, sizeof row->device, "%s", m.device);
    }
}

static tu_status gather(tu_process_group *group, const struct process_rows *own, struct memory_table *table) {
    tu_process_info info = TU_SIZED(tu_process_info);
    uint32_t count = 1;
    if (group) {
        TU_TRY(tu_process_group_describe(group, &info));
        count = table->processes = info.size;
    }
    table->of_process = calloc(count, sizeof *table->of_process);
    if (!table->of_process) return tu_fail(TU_NO_MEMORY, "explain: out of memory");
    if (group) return tu_process_group_gather(group, own, sizeof *own, table->of_process);
    *table->of_process = *own;
    return TU_OK;
}

tu_status memory_table_new(const tu_program *program, tu_process_group *group, struct memory_table **table) {
    struct process_rows *own = calloc(1, sizeof *own);
    struct memory_table *created = calloc(1, sizeof *created);
    *table = created;
    if (!own || !created) {
        free(own);
        return tu_fail(TU_NO_MEMORY, "explain: out of memory for the table of devices");
    }
    collect(program, own);
    tu_status status = gather(group, own, created);
    free(own);
    return status;
}

void memory_table_free(struct memory_table *table) {
    if (table) free(table->of_process);
    free(table);
}

/* ---- Output ---- */

static void print_row(const struct memory_row *r) {
    printf("%-8s  %10s  %10s  %10s  %10s  %10s\n", r->device, cli_format_bytes(r->scratch).text,
           cli_format_bytes(r->constants).text, cli_format_bytes(r->variables).text,
           cli_format_bytes(r->overhead).text, cli_format_bytes(r->need).text);
}

void memory_table_print(const struct memory_table *table) {
    const char *rank_title = table->processes ? "rank  " : "";
    printf("\n%s%-8s  %10s  %10s  %10s  %10s  %10s\n", rank_title, "device", "scratch", "constants",
           "variables", "overhead", "peak");
    for (uint32_t p = 0; p < (table->processes ? table->processes : 1); p++)
        for (uint64_t i = 0; i < table->of_process[p].count; i++) {
            if (table->processes) printf("%4" PRIu32 "  ", p);
            print_row(&table->of_process[p].rows[i]);
        }
}

void memory_table_put(const struct memory_table *table, tu_json *json) {
    tu_json_begin_array(json, "devices");
    for (uint32_t p = 0; p < (table->processes ? table->processes : 1); p++)
        for (uint64_t i = 0; i < table->of_process[p].count; i++) {
            const struct memory_row *r = &table->of_process[p].rows[i];
            tu_json_begin_object(json, NULL);
            if (table->processes) tu_json_u64(json, "rank", p);
            tu_json_string(json, "name", r->device);
            tu_json_u64(json, "scratch_bytes", r->scratch);
            tu_json_u64(json, "constant_bytes", r->constants);
            tu_json_u64(json, "variable_bytes", r->variables);
            tu_json_u64(json, "overhead_bytes", r->overhead);
            tu_json_u64(json, "peak_bytes", r->need);
            tu_json_end_object(json);
        }
    tu_json_end_array(json);
}
