/* Runs the kernel of one network for all members of a stack. See members.h. */
#include "device/kit/members.h"

void tu__members_of(tu__members *members, tu__selection *s, const tu__node *node, int64_t count) {
    *members = (tu__members){.count = count};
    if (!count) return;
    for (uint32_t i = 0; i < node->input_count; i++)
        members->in[i] = tu_type_bytes(tu_edge_type(s->graph, node->inputs[i])) / (size_t)count;
    for (uint32_t i = 0; i < node->output_count; i++)
        members->out[i] = tu_type_bytes(node->outputs[i]) / (size_t)count;
}

void tu__members_add_bias(tu__members *members, tu__selection *s, tu__edge bias, int64_t channels,
                          int index) {
    tu_type type = *tu__type_of(s, bias);
    bool is_shared = tu_shape_elements(type.shape) == channels;
    if (members->count) members->in[index] = is_shared ? 0 : tu_type_bytes(type) / (size_t)members->count;
}

static void offset_operands(uint32_t count, void *const *from, const size_t *blocks, int64_t member,
                            void **to) {
    for (uint32_t i = 0; i < count; i++)
        to[i] = from[i] ? (char *)from[i] + (size_t)member * blocks[i] : NULL;
}

void tu__bind_member(const tu__kernel *k, const tu__members *members, int64_t member,
                     tu__member_kernel *bound) {
    bound->kernel = *k;
    bound->kernel.in = bound->in;
    bound->kernel.out = bound->out;
    offset_operands(k->read_count, k->in, members->in, member, bound->in);
    offset_operands(k->write_count, k->out, members->out, member, bound->out);
}

tu_status tu__run_members(const tu__kernel *k, const tu__members *members,
                          tu_status (*run)(const tu__kernel *k)) {
    if (!members->count) return run(k);
    tu__member_kernel one;
    for (int64_t member = 0; member < members->count; member++) {
        tu__bind_member(k, members, member, &one);
        TU_TRY(run(&one.kernel));
    }
    return TU_OK;
}
