/* Messages about devices that fail or are late: what a partition is doing, in words. */
#include <stdio.h>

#include "run/execution.h"

/* Writes the first operation of a kernel: "matmul 'fc1/matmul'". */
static int write_operation(const tu__execution *e, const tu__part *part, uint32_t position, char *text,
                           size_t capacity) {
    const tu_kernel *kernel = &part->partition->plan->kernels[part->partition->order[position]];
    if (!kernel->node_count) return snprintf(text, capacity, "%s", kernel->name);
    const tu__node *node = e->program->unit.graph->nodes[kernel->nodes[0]];
    return snprintf(text, capacity, "%s '%.100s'", node->op->name, node->name);
}

tu__phrase tu__part_kernels(const tu__execution *e, const tu__part *part, uint32_t first, uint32_t count) {
    tu__phrase p;
    size_t room = sizeof p.text, used = 0;
    if (count > 1) used = (size_t)snprintf(p.text, room, "its %u kernels from ", count);
    used += (size_t)write_operation(e, part, first, p.text + used, room - used);
    if (count > 1 && used < room) used += (size_t)snprintf(p.text + used, room - used, " to ");
    if (count > 1 && used < room) write_operation(e, part, first + count - 1, p.text + used, room - used);
    return p;
}

static const char *name_of(const tu__execution *e, uint32_t node) {
    return e->program->unit.graph->nodes[node]->name;
}

static void describe_command(const tu__execution *e, tu__part *part, uint32_t index, tu__phrase *p) {
    const tu_command *command = &part->partition->commands[index];
    const tu_program *program = e->program;
    switch (command->kind) {
    case TU_COMMAND_FEED:
        snprintf(p->text, sizeof p->text, "it is uploading '%.200s'",
                 name_of(e, program->feeds[command->index].node));
        break;
    case TU_COMMAND_WAIT:
        snprintf(p->text, sizeof p->text, "it is waiting for '%.200s'",
                 name_of(e, program->list.events[command->index].receive->source.node));
        break;
    case TU_COMMAND_LAUNCH:
        snprintf(p->text, sizeof p->text, "it is executing %.300s",
                 tu__part_kernels(e, part, command->first, tu__launch_count(e, part, index)).text);
        break;
    case TU_COMMAND_POST:
    case TU_COMMAND_AWAIT:
        snprintf(p->text, sizeof p->text, "it is executing collective %lld",
                 (long long)program->collectives.list[command->index].id);
        break;
    default:
        snprintf(p->text, sizeof p->text, "%s",
                 command->kind == TU_COMMAND_COMMIT && atomic_load(&part->is_committing)
                     ? "it is waiting for the other devices"
                     : "its kernels are still running");
        break;
    }
}

tu__phrase tu__part_activity(const tu__execution *e, tu__part *part) {
    tu__phrase p = {"it has finished all its commands"};
    uint32_t index = atomic_load(&part->current_command);
    if (index < part->partition->tail) describe_command(e, part, index, &p);
    return p;
}

/* ---- Failures ---- */

/* An internal error reported by a device is an error of the device, not of the engine. */
static tu_status as_device_error(tu_status status) {
    return status == TU_INTERNAL ? TU_DEVICE : status;
}

tu_status tu__part_fail(const tu__part *part, tu_status status) {
    return tu_fail(as_device_error(status), "device '%s' failed: %.768s", part->device->name, tu_message());
}

tu_status tu__part_fail_at(const tu__part *part, const char *activity, const char *name, tu_status status) {
    return tu_fail(as_device_error(status), "device '%s' failed at %s '%.100s': %.768s", part->device->name,
                   activity, name, tu_message());
}
