/* `tutti explain MODEL`: prints the device of each operation of a network, the reason, the copies and the memory.
 *
 * The network is compiled as `tutti train` and `tutti bench` compile it, but nothing is allocated and nothing runs.
 * Operations are summed up by layer; --all lists each of them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/run.h>

#include "cli/byte_size.h"
#include "cli/choices.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/explain_stack.h"
#include "cli/explain_summary.h"
#include "cli/memory_table.h"
#include "cli/network.h"
#include "cli/placement_notice.h"
#include "cli/processes.h"
#include "cli/report.h"
#include "cli/unequal_devices.h"

struct explain_values {
    const char *devices, *place, *lock, *central, *data;
    int64_t threads, batch, base, invariant, stack; /* stack 0: not given */
    int precision, strategy;                        /* strategy -1: not given */
    int strict_placement;                           /* no, yes */
    bool update_lock, infer, all, json;
};

static const struct explain_values defaults = {.devices = "all", .data = "generated", .strategy = -1};

static const char *const no_yes[] = {"no", "yes", NULL};

static const struct cli_option options[] = {
    CLI_STRING(struct explain_values, devices, "devices", 0, "LIST", CLI_HELP_DEVICES),
    CLI_STRING(struct explain_values, place, "place", 0, "RULES", CLI_HELP_PLACE),
    CLI_CHOICE(struct explain_values, strict_placement, "strict-placement", 0, "YES|NO", no_yes,
               CLI_HELP_STRICT_PLACEMENT),
    CLI_CHOICE(
        struct explain_values, strategy, "strategy", 0, "NAME", cli_strategies,
        CLI_HELP_STRATEGY
        " (default: mirrored for several devices of one kind without --place and --lock, otherwise single)"),
    CLI_STRING(struct explain_values, central, "central", 0, "DEVICE",
               CLI_HELP_CENTRAL " (default: the first CPU of the list)"),
    CLI_INT(struct explain_values, invariant, "invariant", 0, "K", 0, 1024, CLI_HELP_INVARIANT),
    CLI_INT(struct explain_values, threads, "threads", 't', "N", 0, 1024, CLI_HELP_THREADS),
    CLI_INT(struct explain_values, batch, "batch", 'b', "N", 1, 1048576, CLI_HELP_BATCH " (default: 128)"),
    CLI_INT(struct explain_values, base, "base", 0, "N", 0, 65536, CLI_HELP_BASE),
    CLI_CHOICE(struct explain_values, precision, "precision", 'p', "TYPE", cli_precisions,
               CLI_HELP_PRECISION),
    CLI_INT(struct explain_values, stack, "stack", 0, "N", 1, TU_MAX_ENSEMBLE,
            "measure how many of N members of an ensemble a device should train at once"),
    CLI_STRING(struct explain_values, data, "data", 'd', "SET", CLI_HELP_DATA " with --stack"),
    CLI_FLAG(struct explain_values, infer, "infer", 'i',
             "explain the inference graph, without gradients and updates"),
    CLI_FLAG(struct explain_values, all, "all", 'a', "list every operation instead of layers"),
    CLI_STRING(struct explain_values, lock, "lock", 0, "FILE", CLI_HELP_LOCK),
    CLI_FLAG(struct explain_values, update_lock, "update-lock", 0,
             "overwrite the file of --lock with this placement"),
    CLI_FLAG(struct explain_values, json, "json", 0, CLI_HELP_JSON),
    {0},
};

/* ---- Layers ---- */

struct layer {
    char name[96];
    const char *device, *reason; /* of its first operation that was not placed with its reader */
    size_t operations;
    uint64_t bytes_in, bytes_out;
};

struct layers {
    struct layer *rows;
    size_t count, capacity;
};

/* Stores the layer of a node: "conv1" of "conv1/conv2d", "grad/conv1" of "grad/conv1/conv2d/dx". A node without
 * scope is its own layer. */
static void layer_name(const char *node, char *name, size_t size) {
    size_t length = strcspn(node, "/");
    if (strncmp(node, "grad/", 5) == 0) length += 1 + strcspn(node + length + 1, "/");
    snprintf(name, size, "%.*s", (int)length, node);
}

/* Returns the row of a layer on a device; adds one if there is none. Returns NULL if memory runs out. */
static struct layer *find_layer(struct layers *layers, const char *name, const char *device) {
    for (size_t i = layers->count; i-- > 0;)
        if (strcmp(layers->rows[i].name, name) == 0 && strcmp(layers->rows[i].device, device) == 0)
            return &layers->rows[i];
    if (layers->count == layers->capacity) {
        size_t capacity = layers->capacity ? 2 * layers->capacity : 64;
        struct layer *rows = realloc(layers->rows, capacity * sizeof *rows);
        if (!rows) return NULL;
        layers->rows = rows;
        layers->capacity = capacity;
    }
    struct layer *row = &layers->rows[layers->count++];
    *row = (struct layer){.device = device};
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

/* ---- As a table ---- */

static const char *size_or_dash(uint64_t bytes, struct cli_bytes_text *text) {
    *text = cli_format_bytes(bytes);
    return bytes ? text->text : "-";
}

static void print_operation(const char *name, size_t count, const char *device, uint64_t in, uint64_t out,
                            const char *reason) {
    struct cli_bytes_text in_text, out_text;
    printf("%-36s  %5zu  %-8s  %10s  %10s  %s\n", name, count, device, size_or_dash(in, &in_text),
           size_or_dash(out, &out_text), reason);
}

/* True for variables and constants that were placed with the operation that reads them. A layer shows the reason of
 * another operation if it has one. */
static bool is_placed_with_reader(const char *reason) {
    return strncmp(reason, "with its ", 9) == 0 || strncmp(reason, "placed with its ", 16) == 0;
}

static tu_status print_layers(const tu_program *program) {
    struct layers layers = {0};
    tu_placement p = TU_SIZED(tu_placement);
    char name[96];
    for (size_t i = 0;
         i < tu_program_placement_count(program) && tu_program_placement(program, i, &p) == TU_OK; i++) {
        if (p.from) continue;
        layer_name(p.node, name, sizeof name);
        struct layer *row = find_layer(&layers, name, p.device);
        if (!row) {
            free(layers.rows);
            return tu_fail(TU_NO_MEMORY, "explain: out of memory");
        }
        if (!row->operations++ || is_placed_with_reader(row->reason)) row->reason = p.reason;
        row->bytes_in += p.bytes_in;
        row->bytes_out += p.bytes_out;
    }
    for (size_t i = 0; i < layers.count; i++) {
        const struct layer *row = &layers.rows[i];
        print_operation(row->name, row->operations, row->device, row->bytes_in, row->bytes_out, row->reason);
    }
    free(layers.rows);
    return TU_OK;
}

static tu_status print_operations(const tu_program *program) {
    tu_placement p = TU_SIZED(tu_placement);
    for (size_t i = 0;
         i < tu_program_placement_count(program) && tu_program_placement(program, i, &p) == TU_OK; i++)
        if (!p.from) print_operation(p.node, 1, p.device, p.bytes_in, p.bytes_out, p.reason);
    return TU_OK;
}

static void print_unsupported(const tu_program *program) {
    tu_placement p = TU_SIZED(tu_placement);
    bool any = false;
    for (size_t i = 0;
         i < tu_program_placement_count(program) && tu_program_placement(program, i, &p) == TU_OK; i++) {
        if (!p.unsupported_on) continue;
        if (!any) printf("\nnot supported\n");
        any = true;
        printf("%s '%s', on %s: %s\n", p.operation, p.node, p.device, p.unsupported_on);
    }
}

static void print_copies(const tu_program *program) {
    tu_placement p = TU_SIZED(tu_placement);
    bool any = false;
    for (size_t i = 0;
         i < tu_program_placement_count(program) && tu_program_placement(program, i, &p) == TU_OK; i++) {
        if (!p.from) continue;
        if (!any) printf("\n%-48s  %-8s  %-8s  %10s\n", "copy", "from", "to", "bytes");
        any = true;
        printf("%-48s  %-8s  %-8s  %10s%s%s\n", p.node, p.from, p.device, cli_format_bytes(p.bytes_in).text,
               p.copy_path ? "  " : "", p.copy_path ? p.copy_path : "");
    }
}

static void print_collectives(const tu_program *program) {
    tu_collective_report m = TU_SIZED(tu_collective_report);
    for (size_t i = 0;
         i < tu_program_collective_count(program) && tu_program_collective(program, i, &m) == TU_OK; i++) {
        if (i == 0)
            printf("\n%-48s  %-20s  %7s  %7s  %10s\n", "collective", "operation", "values", "devices",
                   "bytes");
        printf("%-48s  %-20s  %7" PRIu32 "  %7" PRIu32 "  %10s%s", m.value, m.operation, m.values, m.ranks,
               cli_format_bytes(m.bytes).text,
               m.through_host   ? "  through the host"
               : m.peer_to_peer ? "  peer to peer"
                                : "");
        if (m.processes) printf("  of %" PRIu32 " processes", m.processes);
        putchar('\n');
    }
}

static tu_status print_table(const tu_program *program, const struct memory_table *memory, bool all) {
    TU_TRY(explain_print_summary(program));
    printf("%-36s  %5s  %-8s  %10s  %10s  %s\n", all ? "operation" : "layer", "count", "device", "in", "out",
           "reason");
    TU_TRY(all ? print_operations(program) : print_layers(program));
    print_unsupported(program);
    print_copies(program);
    print_collectives(program);
    memory_table_print(memory);
    return TU_OK;
}

/* ---- As JSON ---- */

static void put_operations(tu_json *json, const tu_program *program, bool copies) {
    tu_placement p = TU_SIZED(tu_placement);
    tu_json_begin_array(json, copies ? "copies" : "operations");
    for (size_t i = 0;
         i < tu_program_placement_count(program) && tu_program_placement(program, i, &p) == TU_OK; i++) {
        if (copies != (p.from != NULL)) continue;
        tu_json_begin_object(json, NULL);
        tu_json_string(json, "name", p.node);
        if (copies) {
            tu_json_string(json, "from", p.from);
            tu_json_string(json, "to", p.device);
            tu_json_u64(json, "bytes", p.bytes_in);
            tu_json_string(json, "way", p.copy_path);
        } else {
            tu_json_string(json, "operation", p.operation);
            tu_json_string(json, "device", p.device);
            tu_json_string(json, "reason", p.reason);
            tu_json_string(json, "refused", p.unsupported_on);
            tu_json_bool(json, "moved", p.moved);
            tu_json_u64(json, "bytes_in", p.bytes_in);
            tu_json_u64(json, "bytes_out", p.bytes_out);
        }
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
}

static void put_collectives(tu_json *json, const tu_program *program) {
    tu_collective_report m = TU_SIZED(tu_collective_report);
    tu_json_begin_array(json, "collectives");
    for (size_t i = 0;
         i < tu_program_collective_count(program) && tu_program_collective(program, i, &m) == TU_OK; i++) {
        tu_json_begin_object(json, NULL);
        tu_json_i64(json, "number", m.number);
        tu_json_string(json, "name", m.value);
        tu_json_string(json, "operation", m.operation);
        tu_json_u64(json, "values", m.values);
        tu_json_u64(json, "devices", m.ranks);
        tu_json_u64(json, "bytes", m.bytes);
        tu_json_bool(json, "through_host", m.through_host);
        tu_json_bool(json, "peer_to_peer", m.peer_to_peer);
        if (m.processes) tu_json_u64(json, "processes", m.processes);
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
}

static tu_status print_json(const tu_program *program, const struct memory_table *memory, const char *model,
                            const struct explain_values *values) {
    tu_placement_totals totals = TU_SIZED(tu_placement_totals);
    TU_TRY(tu_program_placement_totals(program, &totals));
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "model", model);
    tu_json_string(&json, "precision", cli_precisions[values->precision]);
    tu_json_bool(&json, "training", !values->infer);
    TU_TRY(explain_put_summary(&json, program));
    memory_table_put(memory, &json);
    put_operations(&json, program, false);
    put_operations(&json, program, true);
    put_collectives(&json, program);
    tu_json_begin_object(&json, "totals");
    tu_json_u64(&json, "operations", totals.operations);
    tu_json_u64(&json, "moved", totals.moved);
    tu_json_u64(&json, "copies", totals.copies);
    tu_json_u64(&json, "copied_bytes", totals.copied_bytes);
    tu_json_end_object(&json);
    tu_json_end_object(&json);
    putchar('\n');
    return TU_OK;
}

/* ---- The command ---- */

/* Returns the given strategy, or the default one as `tutti train` chooses it. */
static const char *choose_strategy(const struct explain_values *values, const tu_process_group *group) {
    if (values->strategy >= 0) return cli_strategies[values->strategy];
    if (group) return "mirrored";
    return tu_default_strategy(values->devices, values->place || values->lock, values->invariant);
}

/* Removes the results with a row per sample: each process has only its own rows. */
static size_t keep_scalars(size_t count, tu_value *results) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (tu_value_shape(results[i]).rank == 0) results[kept++] = results[i];
    return kept;
}

static tu_status compile_plan(const struct explain_values *values, tu_process_group *group, tu_graph *graph,
                              tu_program **program) {
    enum { MAX_RESULTS = 4096 };
    static tu_value results[MAX_RESULTS];
    char own_devices[1024];
    size_t count = tu_outputs(graph, MAX_RESULTS, results);
    if (count > MAX_RESULTS) count = MAX_RESULTS;
    if (group) {
        count = keep_scalars(count, results);
        TU_TRY(tu_process_group_devices(group, values->devices, own_devices, sizeof own_devices));
    }
    return tu_compile(graph, program, .devices = group ? own_devices : values->devices,
                      .threads = (int)values->threads, .precision = cli_precisions[values->precision],
                      .place = values->place, .strict_placement = values->strict_placement,
                      .strategy = choose_strategy(values, group), .central = values->central,
                      .invariant = (int)values->invariant, .fetch = count ? results : NULL,
                      .fetch_count = count, .updates = !values->infer, .no_updates = values->infer,
                      .plan_only = true, .group = group);
}

static int print_program(const tu_program *program, const struct memory_table *memory, const char *model,
                         const struct explain_values *values) {
    int result = cli_apply_placement_lock(program, values->lock, values->update_lock);
    if (result == CLI_DONE)
        result = cli_report(values->json ? print_json(program, memory, model, values)
                                         : print_table(program, memory, values->all));
    if (result == CLI_DONE) cli_print_placement_notice(program);
    if (result == CLI_DONE && !values->json) cli_warn_unequal_devices(program, (int)values->threads, 0);
    return result;
}

/* Of several processes, rank 0 prints its program, and the memory of all. */
static int explain(const char *model, const struct explain_values *values, tu_process_group *group) {
    struct network_request request = {.command = "explain",
                                      .name_or_path = model,
                                      .batch = values->batch,
                                      .base = values->base,
                                      .train = !values->infer};
    tu_graph *graph;
    tu_program *program = NULL;
    struct memory_table *memory = NULL;
    tu_status status = network_load(&request, &graph);
    if (status == TU_OK) status = compile_plan(values, group, graph, &program);
    if (group) status = tu_process_group_agree(group, status);
    if (status == TU_OK) status = memory_table_new(program, group, &memory);
    if (group && status != TU_OK) tu_process_group_fail(group, status, tu_message());
    int result = cli_prints(group) ? cli_report(status) : cli_exit_status(status);
    if (result == CLI_DONE && cli_prints(group)) result = print_program(program, memory, model, values);
    memory_table_free(memory);
    tu_program_free(program);
    tu_graph_free(graph);
    return result;
}

static int run(const void *given, int operand_count, char **operands) {
    const struct explain_values *values = given;
    (void)operand_count;
    if (values->update_lock && !values->lock)
        return cli_input_error("explain: --update-lock needs --lock FILE");
    if (values->stack)
        return explain_stack(operands[0], values->data, values->stack, values->json,
                             &(tu_train_options){.struct_size = sizeof(tu_train_options),
                                                 .devices = values->devices,
                                                 .threads = values->threads,
                                                 .batch = values->batch,
                                                 .base = values->base,
                                                 .precision = cli_precisions[values->precision]});
    tu_process_group *group;
    int result = cli_join_processes(0, NULL, &group);
    if (result != CLI_DONE) return result;
    if (group && values->lock)
        result = cli_input_error("explain: --lock is for the devices of one process: start it without mpirun "
                                 "or srun");
    else
        result = explain(operands[0], values, group);
    cli_leave_processes(group);
    return result;
}

const struct cli_command cli_command_explain = {
    .name = "explain",
    .summary = "prints the device of each operation of a network, and why",
    .usage = "MODEL [OPTIONS]",
    .description = "Prints on which device each operation of MODEL's training step would run and\n"
                   "why, which devices do not support it, what is copied between devices, and the\n"
                   "memory peak of each device. A summary comes first. Nothing is run. Started by\n"
                   "mpirun or srun, it explains the program of rank 0 and the memory of all ranks.\n"
                   "\n"
                   "With --stack N, runs and times training steps of 1, 2, 4, ... members of an\n"
                   "ensemble as one program, and prints what 'tutti train --stack auto' chooses.",
    .lists_models = true,
    .options = options,
    .values_size = sizeof(struct explain_values),
    .defaults = &defaults,
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};
