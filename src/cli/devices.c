/* `tutti devices`: lists the devices, and why one cannot be used. */
#include <inttypes.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/device.h>

#include "cli/byte_size.h"
#include "cli/command.h"
#include "cli/common_options.h"

struct devices_values {
    bool all, json;
};

static const struct cli_option options[] = {
    CLI_FLAG(struct devices_values, all, "all", 'a',
             "also list the null devices, which plan programs and compute nothing"),
    CLI_FLAG(struct devices_values, json, "json", 0, CLI_HELP_JSON),
    {0},
};

/* Finds the next device to list, starting at *index. Null devices are listed only if `all` is true. */
static bool next_device(size_t *index, bool all, tu_device_info *info) {
    for (size_t count = tu_device_count(); *index < count && tu_device((*index)++, info) == TU_OK;)
        if (all || strcmp(info->kind, "null") != 0) return true;
    return false;
}

static void print_row(const char *name, const char *kind, const char *cores, const char *memory,
                      const char *description) {
    printf("%-10s  %-6s  %5s  %10s  %s\n", name, kind, cores, memory, description);
}

static void print_table(bool all) {
    tu_device_info info = TU_SIZED(tu_device_info);
    size_t index = 0;
    print_row("name", "kind", "cores", "memory", "description");
    while (next_device(&index, all, &info)) {
        char cores[16] = "-";
        if (info.cores) snprintf(cores, sizeof cores, "%d", info.cores);
        print_row(info.name, info.kind, cores,
                  info.memory_bytes ? cli_format_bytes(info.memory_bytes).text : "-", info.description);
        if (info.unusable) printf("%-10s  cannot be used: %s\n", "", info.unusable);
    }
}

/* Writes null for zero, which means unknown or not applicable. */
static void put_number(tu_json *json, const char *key, uint64_t number) {
    if (number)
        tu_json_u64(json, key, number);
    else
        tu_json_null(json, key);
}

static void print_json(bool all) {
    tu_device_info info = TU_SIZED(tu_device_info);
    size_t index = 0;
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_begin_array(&json, "devices");
    while (next_device(&index, all, &info)) {
        tu_json_begin_object(&json, NULL);
        tu_json_string(&json, "name", info.name);
        tu_json_string(&json, "kind", info.kind);
        tu_json_string(&json, "description", info.description);
        put_number(&json, "cores", (uint64_t)info.cores);
        put_number(&json, "memory_bytes", info.memory_bytes);
        tu_json_bool(&json, "usable", !info.unusable);
        tu_json_string(&json, "unusable", info.unusable);
        tu_json_end_object(&json);
    }
    tu_json_end_array(&json);
    tu_json_end_object(&json);
    putchar('\n');
}

static int run(const void *values, int operand_count, char **operands) {
    const struct devices_values *devices = values;
    (void)operand_count;
    (void)operands;
    if (devices->json)
        print_json(devices->all);
    else
        print_table(devices->all);
    return CLI_DONE;
}

const struct cli_command cli_command_devices = {
    .name = "devices",
    .summary = "lists the devices, and why one cannot be used",
    .usage = "[OPTIONS]",
    .description = "Lists the devices: name, kind, cores, memory and description. For a device that\n"
                   "cannot be used, prints the reason and what to do about it.",
    .options = options,
    .values_size = sizeof(struct devices_values),
    .run = run,
};
