/* A network with a mistake, for tests/cli/common_mistakes.cases: .momentum = 0 would mean the default, 0.9. */
#include <tutti/tutti.h>

static tu_value build(tu_value x, const tu_network_options *o) {
    x = tu_batch_norm(x, .momentum = 0, .name = "norm");
    return tu_dense(tu_flatten(x), .units = o->classes, .name = "logits");
}

TU_NETWORK(.name = "zero-momentum", .summary = "batch normalisation whose momentum is written as 0",
           .defaults = TU_OPTIONS(tu_network_options, .height = 8, .width = 8, .channels = 3, .classes = 10,
                                  .base = 8),
           .build = build);
