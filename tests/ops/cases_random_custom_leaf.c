/* Operation test cases: random numbers, dropout, custom operations, variables and constants. */
#include <math.h>
#include <string.h>

#include "ops/cases.h"

OP_CASE(random, CASE_NO_GRADIENT) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 6);
    bool per_sample = case_pick(c, "per_sample", 2);
    tu_graph *g = case_graph(c);
    switch (case_pick(c, "distribution", 3)) {
    case 0:
        case_output(c, tu_random_uniform(g, case_dtype(c), shape, -2, 3, .per_sample = per_sample));
        break;
    case 1:
        case_output(c, tu_random_normal(g, case_dtype(c), shape, 1, 0.5, .per_sample = per_sample));
        break;
    default: case_output(c, tu_random_bernoulli(g, TU_BOOL, shape, 0.3, .per_sample = per_sample)); break;
    }
}

OP_CASE(dropout, CASE_ALL_CHECKS) {
    tu_value x = case_input(c, case_shape(c, case_size(c, 1, 3), 1, 5), -2, 2);
    tu_set_training(case_graph(c), case_pick(c, "training", 2));
    case_output(c, tu_dropout(x, case_pick(c, "rate", 2) ? 0.5 : 0.1));
}

/* A custom operation x^3, whose gradient is built from graph operations. */
static tu_status cube_shape(const tu_custom_call *call, tu_type *outputs) {
    if (call->input_count != 1) return tu_fail(TU_INVALID, "cube expects one input");
    outputs[0] = call->inputs[0];
    return TU_OK;
}

static tu_status cube_run(const tu_custom_call *call, const void *const *in, void *const *out) {
    int64_t count = tu_shape_elements(call->inputs[0].shape);
    if (call->inputs[0].dtype == TU_F64) {
        const double *x = in[0];
        for (int64_t i = 0; i < count; i++) ((double *)out[0])[i] = x[i] * x[i] * x[i];
    } else if (call->inputs[0].dtype == TU_F32) {
        const float *x = in[0];
        for (int64_t i = 0; i < count; i++) ((float *)out[0])[i] = x[i] * x[i] * x[i];
    } else {
        return tu_fail(TU_UNSUPPORTED, "cube supports only f32 and f64");
    }
    return TU_OK;
}

static tu_status cube_gradient(const tu_custom_call *call, const tu_value *in, const tu_value *out,
                               const tu_value *out_gradients, tu_value *in_gradients) {
    (void)call, (void)out;
    in_gradients[0] = tu_mul(out_gradients[0], tu_scale(tu_square(in[0]), 3));
    return TU_OK;
}

static const tu_custom_op cube = {.struct_size = sizeof cube,
                                  .name = "cube",
                                  .outputs = 1,
                                  .shape = cube_shape,
                                  .run = cube_run,
                                  .gradient = cube_gradient};

OP_CASE(custom, CASE_NO_16_BIT | CASE_CPU_ONLY) {
    tu_custom_register(&cube);
    tu_value x = case_input(c, case_shape(c, case_size(c, 0, 3), 1, 4), -2, 2);
    case_output(c, tu_custom("cube", 1, &x));
}

/* A variable in an expression, and an assignment to it. */
OP_CASE(variable, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 0, 2), 1, 4);
    tu_value x = case_input(c, shape, -2, 2);
    tu_init_kind kinds[] = {TU_INIT_ZEROS,         TU_INIT_CONSTANT,         TU_INIT_UNIFORM,
                            TU_INIT_NORMAL,        TU_INIT_TRUNCATED_NORMAL, TU_INIT_XAVIER_UNIFORM,
                            TU_INIT_XAVIER_NORMAL, TU_INIT_HE_UNIFORM,       TU_INIT_HE_NORMAL};
    /* a and b: the constant; the bounds; or mean and standard deviation. Other kinds ignore them. */
    tu_value w = tu_variable(case_graph(c), "w", case_dtype(c), shape,
                             .init = {kinds[case_pick(c, "init", 9)], .a = 0.5, .b = 1});
    tu_assign(w, tu_add(w, x));
    case_output(c, tu_mul(w, x));
}

OP_CASE(constant, CASE_ALL_CHECKS) {
    tu_shape shape = TU_SHAPE(2, 3);
    tu_value x = case_input(c, shape, -2, 2);
    const double numbers[] = {1, -2, 0.5, 4, 0, 3};
    tu_value k = tu_constant(case_graph(c), TU_F64, shape, numbers);
    case_output(c, tu_mul(x, tu_cast(k, case_dtype(c))));
}
