/* Random numbers. The key depends on the state's seed, which is read when the kernel is enqueued: if the seed
 * changes, the plan is captured again. The sample ordinals, or the step, are read on the device. */
#include <math.h>

#include <tutti/ops.h>

#include "base/draw.h"
#include "device/cuda/ops/extent.h"
#include "device/cuda/ops/ops.h"
#include "device/cuda/runtime/cuda.h"

#include "device/cuda/kernels/random_args.h"

_Static_assert((int)DRAW_UNIFORM == (int)TU__UNIFORM && (int)DRAW_NORMAL == (int)TU__NORMAL &&
                   (int)DRAW_TRUNCATED_NORMAL == (int)TU__TRUNCATED_NORMAL &&
                   (int)DRAW_BERNOULLI == (int)TU__BERNOULLI,
               "kernels must number distributions as base/draw.h does");

typedef struct draw_data {
    draw_args args;
    uint64_t operation; /* hash of the scoped name */
    cuda_function *function;
} draw_data;

static tu_status run_draw(const tu__kernel *k) {
    const draw_data *d = k->data;
    draw_args a = d->args;
    tu__draw_key key = tu__draw_key_of(*k->seed, d->operation);
    a.key[0] = key.word[0], a.key[1] = key.word[1];
    a.ordinals = k->in[0], a.y = k->out[0];
    return cuda_launch(k, d->function, cuda_grid_for(k, a.blocks), &a);
}

/* Returns how many of the 2^24 numbers n / 2^24 are below p. Exact, since scaling by a power of two is. */
static unsigned count_below(double p) {
    return (unsigned)ceil(fmin(fmax(p, 0), 1) * 0x1p24);
}

tu_status cuda_lower_random(tu__selection *s, const tu__node *node) {
    tu__kernel *k = tu__kernel_new(s, node, "random", run_draw);
    draw_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    const struct tu__random_attrs *attrs = tu__attrs(node, random);
    int64_t samples = tu_shape_elements(tu__type_of(s, node->inputs[0])->shape);
    int64_t elements = tu_shape_elements(attrs->shape) / samples, blocks = (elements + 3) / 4;
    d->operation = (uint64_t)attrs->key;
    d->args = (draw_args){.blocks = samples * blocks,
                          .blocks_per_sample = cuda_extent(blocks),
                          .elements_per_sample = elements,
                          .a = attrs->a,
                          .b = attrs->distribution == TU__UNIFORM ? attrs->b - attrs->a : attrs->b,
                          .threshold = count_below(attrs->a)};
    d->function = cuda_request(s, "random", "fill_random<%s, %d, %s>", cuda_type((tu_dtype)attrs->dtype),
                               (int)attrs->distribution, cuda_index_type(d->args.blocks));
    if (!d->function) return TU_NO_MEMORY;
    k->bytes_moved = (int64_t)tu_type_bytes(node->outputs[0]);
    TU_TRY(tu__kernel_read(k, node->inputs[0]));
    return tu__kernel_write(k, (tu__edge){node->id, 0}, -1);
}

typedef struct draw_members_data {
    draw_members_args args;
    cuda_function *function;
} draw_members_data;

static tu_status run_draw_members(const tu__kernel *k) {
    const draw_members_data *d = k->data;
    draw_members_args a = d->args;
    a.draw.ordinals = k->in[0], a.draw.y = k->out[0];
    a.seeds = k->in[1], a.a = k->in[2], a.b = k->in[3];
    return cuda_launch(k, d->function, cuda_grid_for(k, a.draw.blocks), &a);
}

tu_status cuda_lower_random_members(tu__selection *s, const tu__node *node) {
    tu__kernel *k = tu__kernel_new(s, node, "random_members", run_draw_members);
    draw_members_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    const struct tu__random_members_attrs *attrs = tu__attrs(node, random_members);
    tu_shape ordinals = tu__type_of(s, node->inputs[0])->shape;
    int64_t samples = tu_shape_elements(ordinals), member_samples = samples / ordinals.dim[0];
    int64_t elements = tu_shape_elements(attrs->shape) / member_samples, blocks = (elements + 3) / 4;
    d->args = (draw_members_args){.draw = {.blocks = samples * blocks,
                                           .blocks_per_sample = cuda_extent(blocks),
                                           .elements_per_sample = elements},
                                  .samples_per_member = cuda_extent(member_samples),
                                  .operation = (uint64_t)attrs->key};
    d->function =
        cuda_request(s, "random", "fill_random_members<%s, %d, %s>", cuda_type((tu_dtype)attrs->dtype),
                     (int)attrs->distribution, cuda_index_type(d->args.draw.blocks));
    if (!d->function) return TU_NO_MEMORY;
    k->bytes_moved = (int64_t)tu_type_bytes(node->outputs[0]);
    for (uint32_t i = 0; i < 4; i++) TU_TRY(tu__kernel_read(k, node->inputs[i]));
    return tu__kernel_write(k, (tu__edge){node->id, 0}, -1);
}
