/* Prints the summary of a placed program: operations, copied bytes and memory peak of each device, and the operations
 * that the preferred device does not support. */
#include "cli/explain_summary.h"

#include <inttypes.h>
#include <string.h>

#include "cli/byte_size.h"

enum { SHOWN_FALL_BACKS = 3 };

struct device_totals {
    size_t operations;
    uint64_t copied_in, copied_out; /* bytes per step */
};

static struct device_totals sum_device_totals(const tu_program *program, const char *device) {
    struct device_totals totals = {0};
    tu_placement p = TU_SIZED(tu_placement);
    for (size_t i = 0;
         i < tu_program_placement_count(program) && tu_program_placement(program, i, &p) == TU_OK; i++) {
        bool here = strcmp(p.device, device) == 0;
        if (!p.from) {
            totals.operations += here;
        } else {
            if (here) totals.copied_in += p.bytes_in;
            if (strcmp(p.from, device) == 0) totals.copied_out += p.bytes_in;
        }
    }
    return totals;
}

/* All-reduces per step. */
struct collective_totals {
    size_t count;
    uint64_t bytes;
};

static struct collective_totals sum_collectives(const tu_program *program) {
    struct collective_totals sums = {0};
    tu_collective_report m = TU_SIZED(tu_collective_report);
    for (; sums.count < tu_program_collective_count(program) &&
           tu_program_collective(program, sums.count, &m) == TU_OK;
         sums.count++)
        sums.bytes += m.bytes;
    return sums;
}

/* ---- As text ---- */

static const char *size_or_dash(uint64_t bytes, struct cli_bytes_text *text) {
    *text = cli_format_bytes(bytes);
    return bytes ? text->text : "-";
}

static void print_devices(const tu_program *program) {
    tu_memory_report m = TU_SIZED(tu_memory_report);
    printf("%-8s  %10s  %10s  %10s  %10s\n", "device", "operations", "copied in", "copied out", "peak");
    for (size_t i = 0; i < tu_program_device_count(program) && tu_program_memory(program, i, &m) == TU_OK;
         i++) {
        struct device_totals device = sum_device_totals(program, m.device);
        struct cli_bytes_text in, out;
        printf("%-8s  %10zu  %10s  %10s  %10s\n", m.device, device.operations,
               size_or_dash(device.copied_in, &in), size_or_dash(device.copied_out, &out),
               cli_format_bytes(m.need_bytes).text);
    }
}

/* Prints the first few; print_unsupported() in explain.c prints all of them. */
static void print_fall_backs(const tu_program *program) {
    tu_placement p = TU_SIZED(tu_placement);
    size_t count = 0;
    for (size_t i = 0;
         i < tu_program_placement_count(program) && tu_program_placement(program, i, &p) == TU_OK; i++) {
        if (!p.unsupported_on) continue;
        if (count++ < SHOWN_FALL_BACKS)
            printf("fall-back: %s '%s' on %s: %s\n", p.operation, p.node, p.device, p.unsupported_on);
    }
    if (count > SHOWN_FALL_BACKS) printf("fall-back: %zu more\n", count - SHOWN_FALL_BACKS);
}

tu_status explain_print_summary(const tu_program *program) {
    tu_placement_totals totals = TU_SIZED(tu_placement_totals);
    TU_TRY(tu_program_placement_totals(program, &totals));
    struct collective_totals sums = sum_collectives(program);
    printf("%zu operations, %zu moved, %zu %s (%s in total) per step\n", totals.operations, totals.moved,
           totals.copies, totals.copies == 1 ? "copy" : "copies",
           totals.copies ? cli_format_bytes(totals.copied_bytes).text : "0 bytes");
    if (sums.count)
        printf("%zu collective%s (%s in total) per step\n", sums.count, sums.count == 1 ? "" : "s",
               cli_format_bytes(sums.bytes).text);
    print_devices(program);
    print_fall_backs(program);
    putchar('\n');
    return TU_OK;
}

/* ---- As JSON ---- */

static void put_devices(tu_json *json, const tu_program *program) {
    tu_memory_report m = TU_SIZED(tu_memory_report);
    tu_json_begin_array(json, "devices");
    for (size_t i = 0; i < tu_program_device_count(program) && tu_program_memory(program, i, &m) == TU_OK;
         i++) {
        struct device_totals device = sum_device_totals(program, m.device);
        tu_json_begin_object(json, NULL);
        tu_json_string(json, "name", m.device);
        tu_json_u64(json, "operations", device.operations);
        tu_json_u64(json, "copied_in_bytes", device.copied_in);
        tu_json_u64(json, "copied_out_bytes", device.copied_out);
        tu_json_u64(json, "peak_bytes", m.need_bytes);
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
}

static void put_fall_backs(tu_json *json, const tu_program *program) {
    tu_placement p = TU_SIZED(tu_placement);
    tu_json_begin_array(json, "fall_backs");
    for (size_t i = 0;
         i < tu_program_placement_count(program) && tu_program_placement(program, i, &p) == TU_OK; i++) {
        if (!p.unsupported_on) continue;
        tu_json_begin_object(json, NULL);
        tu_json_string(json, "name", p.node);
        tu_json_string(json, "operation", p.operation);
        tu_json_string(json, "device", p.device);
        tu_json_string(json, "refused", p.unsupported_on);
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
}

tu_status explain_put_summary(tu_json *json, const tu_program *program) {
    tu_placement_totals totals = TU_SIZED(tu_placement_totals);
    TU_TRY(tu_program_placement_totals(program, &totals));
    struct collective_totals sums = sum_collectives(program);
    tu_json_begin_object(json, "summary");
    tu_json_u64(json, "operations", totals.operations);
    tu_json_u64(json, "copied_bytes", totals.copied_bytes);
    tu_json_u64(json, "summed_bytes", sums.bytes);
    put_devices(json, program);
    put_fall_backs(json, program);
    tu_json_end_object(json);
    return TU_OK;
}
