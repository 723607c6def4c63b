/* A network that leaves tu_scope() blocks by break and return, for tests/cli/common_mistakes.cases. The scopes
 * must be closed anyway. */
#include <tutti/tutti.h>

static tu_value relu_in_scope(tu_value x) {
    tu_scope(x.graph, "returned") return tu_relu(x);
    return x;
}

static tu_value build(tu_value x, const tu_network_options *o) {
    tu_scope(x.graph, "left") {
        x = tu_dense(tu_flatten(x), .units = o->base, .name = "hidden");
        if (o->base > 0) break;
        x = tu_relu(x);
    }
    return tu_dense(relu_in_scope(x), .units = o->classes, .name = "logits");
}

TU_NETWORK(.name = "left-scope", .summary = "a block of tu_scope left by break, another by return",
           .defaults = TU_OPTIONS(tu_network_options, .height = 8, .width = 8, .channels = 3, .classes = 10,
                                  .base = 8),
           .build = build);
