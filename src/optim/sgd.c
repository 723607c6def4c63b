/* tu_add_sgd: gradient descent with momentum, for benchmarks and examples. It has no other options and does not check
 * for non-finite gradients. */
#include <math.h>

#include <tutti/ops.h>
#include <tutti/train.h>

tu_status tu_add_sgd(tu_value loss, double rate, double momentum) {
    if (!loss.graph) return tu_fail(TU_INVALID, "sgd: the loss is an uninitialised tu_value");
    TU_TRY(tu_graph_status(loss.graph));
    if (!(rate >= 0 && rate < HUGE_VAL))
        return tu_fail(TU_INVALID, "sgd: rate is %g, expected a finite number of at least 0", rate);
    return tu_add_optimizer(loss, NULL, .name = momentum == 0 ? "sgd" : "momentum", .momentum = momentum,
                            .rate = tu_fill(loss.graph, TU_F64, TU_SCALAR, rate), .unguarded = true);
}
