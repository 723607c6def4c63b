/* Drawing a token from logits. */
#ifndef TU__INFER_SAMPLE_TOKEN_H
#define TU__INFER_SAMPLE_TOKEN_H

#include <tutti/generate.h>

/* A token that may be drawn, and its probability, up to a common factor. */
typedef struct tu__candidate {
    int32_t token;
    float logit;
    double weight;
} tu__candidate;

/* Draws a token below `count` from its logits. The draw is a function of the seed and `position`. `scratch` has room for
 * `count` candidates. Temperature, top_k and top_p as in tu_generate_options, with defaults filled in: a temperature of 0
 * means the most probable token, top_k 0 and top_p 1 all tokens. Logits that are NaN are never drawn. */
int32_t tu__sample_token(const float *logits, int64_t count, double temperature, int64_t top_k, double top_p,
                         uint64_t seed, int64_t position, tu__candidate *scratch);

#endif
