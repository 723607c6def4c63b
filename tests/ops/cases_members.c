/* Operation test cases: operations over several networks at once, which only stacks make (decision 45). */
#include "graph/graph.h"
#include "ops/cases.h"

OP_CASE(conv2d_members, CASE_ALL_CHECKS) {
    int64_t members = case_size(c, 1, 3), images = case_size(c, 1, 2),
            groups = case_pick(c, "groups", 2) ? 2 : 1;
    int64_t channels = groups * case_size(c, 1, 3), filters = groups * case_size(c, 1, 3);
    int64_t size = case_size(c, 3, 6), side = case_size(c, 1, 3), stride = case_pick(c, "stride", 2) ? 2 : 1;
    int64_t pad = side > 1 && case_pick(c, "pad", 2);
    struct tu__conv2d_attrs attrs = {.stride = {stride, stride},
                                     .pad = {pad, pad, pad, pad},
                                     .dilation = {1, 1},
                                     .groups = groups,
                                     .members = members};
    tu_value x = case_input(c, TU_SHAPE(members * images, size, size, channels), -1, 1);
    tu_value f = case_input(c, TU_SHAPE(members * filters, side, side, channels / groups), -1, 1);
    tu_value y = tu__apply(CONV2D, &attrs, x, f);
    if (case_pick(c, "bias", 2)) { /* a bias per member, as a stacked layer has it */
        tu_shape shape = tu_value_shape(y);
        tu_value bias = case_input(c, TU_SHAPE(members, 1, 1, 1, filters), -1, 1);
        tu_value split = tu_reshape(y, TU_SHAPE(members, images, shape.dim[1], shape.dim[2], shape.dim[3]));
        y = tu_sigmoid(tu_add(split, bias));
    }
    case_output(c, y);
}

OP_CASE(batch_norm_members, CASE_ALL_CHECKS) {
    int64_t members = case_size(c, 1, 3), channels = case_size(c, 1, 5), images = case_size(c, 2, 4);
    struct tu__batch_norm_attrs attrs = {.epsilon = 0.1, .members = members};
    bool is_image = case_pick(c, "image", 2);
    tu_shape shape =
        is_image ? TU_SHAPE(members * images, 2, 3, channels) : TU_SHAPE(members * images, channels);
    tu_dtype dtype = case_dtype(c), statistics = dtype == TU_BF16 || dtype == TU_F16 ? TU_F32 : dtype;
    tu_value x = case_input(c, shape, -2, 2);
    tu_value gamma = tu_cast(case_input(c, TU_SHAPE(members * channels), 0.5, 2), statistics);
    tu_value beta = tu_cast(case_input(c, TU_SHAPE(members * channels), -1, 1), statistics);
    tu_value y = tu__apply(BATCH_NORM, &attrs, x, gamma, beta);
    case_output(c, y);
    case_output(c, tu_output_of(y, 1));
    case_output(c, tu_output_of(y, 2));
}

OP_CASE(random_members, CASE_NO_GRADIENT) {
    tu_graph *g = case_graph(c);
    int64_t members = case_size(c, 1, 4), samples = case_size(c, 1, 5), row = case_size(c, 1, 9);
    bool per_sample = case_pick(c, "per_sample", 2);
    int distribution = case_pick(c, "distribution", 3);
    static const int64_t kinds[] = {0, 1, 3}; /* uniform, normal, bernoulli */
    struct tu__random_members_attrs attrs = {.dtype = distribution == 2 ? TU_BOOL : case_dtype(c),
                                             .shape = TU_SHAPE(samples, row),
                                             .distribution = kinds[distribution],
                                             .key = 12345};
    tu_value ordinals =
        case_integers(c, TU_I64, per_sample ? TU_SHAPE(members, samples) : TU_SHAPE(members), 0, 1000);
    tu_value seeds = case_integers(c, TU_I64, TU_SHAPE(members), -5, 1000000);
    double numbers[2][4];
    for (int i = 0; i < 4; i++)
        numbers[0][i] = case_uniform(c, 0.1, 0.9), numbers[1][i] = case_uniform(c, 1, 2);
    tu_value a = tu_constant(g, TU_F64, TU_SHAPE(members), numbers[0]);
    tu_value b = tu_constant(g, TU_F64, TU_SHAPE(members), numbers[1]);
    case_output(c, tu__apply(RANDOM_MEMBERS, &attrs, ordinals, seeds, a, b));
}
