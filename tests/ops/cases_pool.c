/* Cases of pooling. Results of linear operations are squared, so that the second derivatives are not all zero. */
#include "ops/cases.h"

/* Returns random pooling options, and an image shape that is large enough for them. */
static tu_pool_options random_pool_options(case_run *c, tu_shape *images) {
    tu_pool_options o = {.struct_size = sizeof o, .padding = (tu_padding)case_pick(c, "padding", 3)};
    bool strided = case_pick(c, "stride", 2);
    int64_t size[2];
    for (int axis = 0; axis < 2; axis++) {
        o.window[axis] = case_size(c, 1, 3);
        o.stride[axis] = strided ? case_size(c, 1, 3) : 0; /* 0: the window size */
        for (int side = 0; side < 2 && o.padding == TU_EXPLICIT; side++)
            o.pad[2 * axis + side] = case_size(c, 0, o.window[axis] - 1);
        int64_t min_size = o.padding == TU_VALID ? o.window[axis] : 1;
        while (o.padding == TU_EXPLICIT && min_size + o.pad[2 * axis] + o.pad[2 * axis + 1] < o.window[axis])
            min_size++;
        size[axis] = case_size(c, min_size, 5);
    }
    *images = TU_SHAPE(case_size(c, 1, 2), size[0], size[1], case_size(c, 1, 2));
    return o;
}

OP_CASE(max_pool, CASE_ALL_CHECKS) {
    tu_shape images;
    tu_pool_options o = random_pool_options(c, &images);
    case_output(c, tu_square(tu_max_pool_with(case_input_apart(c, images), &o)));
}

/* The result is the gradient of max_pool; its derivatives use max_pool_pick and the gradient of that. */
OP_CASE(max_pool_gradient, CASE_ALL_CHECKS) {
    tu_shape images;
    tu_pool_options o = random_pool_options(c, &images);
    tu_value x = case_input_apart(c, images), gradient;
    tu_value y = tu_max_pool_with(x, &o);
    tu_gradients(tu_sum(tu_mul(tu_square(y), y)), 1, &x, &gradient);
    case_output(c, gradient);
}

OP_CASE(avg_pool, CASE_ALL_CHECKS) {
    tu_shape images;
    tu_pool_options o = random_pool_options(c, &images);
    o.count_padding = case_pick(c, "count_padding", 2);
    case_output(c, tu_square(tu_avg_pool_with(case_input(c, images, -1, 1), &o)));
}

OP_CASE(max_pool_integers, CASE_NO_GRADIENT) {
    tu_shape images;
    tu_pool_options o = random_pool_options(c, &images);
    tu_dtype dtype = case_pick(c, "dtype", 2) ? TU_U8 : TU_I32;
    case_output(c, tu_max_pool_with(case_integers(c, dtype, images, 0, 200), &o));
}

OP_CASE(global_avg_pool, CASE_ALL_CHECKS) {
    case_output(c, tu_square(tu_global_avg_pool(case_input(c, case_shape(c, 4, 1, 3), -1, 1))));
}

OP_CASE(global_max_pool, CASE_ALL_CHECKS) {
    case_output(c, tu_square(tu_global_max_pool(case_input_apart(c, case_shape(c, 4, 1, 3)))));
}
