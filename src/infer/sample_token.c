/* Drawing a token from logits: temperature, then top-k, then top-p (nucleus sampling, Holtzman et al. 2020).
 *
 * Candidates are in the order of their logits, equal ones in the order of tokens, so that a draw does not depend on how the
 * sort works. The random number is Philox of the seed and the position. */
#include "infer/sample_token.h"

#include <math.h>
#include <stdlib.h>

#include "base/philox.h"

static bool precedes(const tu__candidate *a, const tu__candidate *b) {
    return a->logit != b->logit ? a->logit > b->logit : a->token < b->token;
}

static int compare(const void *a, const void *b) {
    return precedes(a, b) ? -1 : precedes(b, a);
}

/* Moves the k first candidates to the front, in any order (Hoare's selection). */
static void select_first(tu__candidate *c, int64_t count, int64_t k) {
    int64_t low = 0, high = count - 1;
    while (low < high) {
        tu__candidate pivot = c[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (precedes(&c[i], &pivot)) i++;
            while (precedes(&pivot, &c[j])) j--;
            if (i > j) break;
            tu__candidate swapped = c[i];
            c[i++] = c[j];
            c[j--] = swapped;
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            return;
    }
}

/* Returns how many candidates of a sorted list have together at least the share `top_p` of all weights. */
static int64_t nucleus(const tu__candidate *c, int64_t count, double total, double top_p) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += c[i].weight;
        if (sum >= top_p * total) return i + 1;
    }
    return count;
}

static double uniform(uint64_t seed, int64_t position) {
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)((uint64_t)position >> 32), 0,
                                 0x67656e65 /* "gene" */};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t bits[4];
    tu__philox4x32(counter, key, bits);
    return (double)(((uint64_t)bits[0] << 32 | bits[1]) >> 11) * 0x1p-53;
}

static double sum_weights(const tu__candidate *c, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; i++) total += c[i].weight;
    return total;
}

int32_t tu__sample_token(const float *logits, int64_t count, double temperature, int64_t top_k, double top_p,
                         uint64_t seed, int64_t position, tu__candidate *c) {
    int64_t kept = 0, best = 0;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(logits[i])) continue;
        c[kept] = (tu__candidate){.token = (int32_t)i, .logit = logits[i]};
        if (precedes(&c[kept], &c[best])) best = kept;
        kept++;
    }
    if (kept == 0) return 0;
    tu__candidate first = c[best];
    if (temperature == 0 || isinf(first.logit)) return first.token;
    for (int64_t i = 0; i < kept; i++)
        c[i].weight = exp(((double)c[i].logit - (double)first.logit) / temperature);
    if (top_k > 0 && top_k < kept) {
        select_first(c, kept, top_k);
        kept = top_k;
    }
    if (top_p < 1 || (top_k > 0 && kept == top_k)) qsort(c, (size_t)kept, sizeof *c, compare);
    double total = sum_weights(c, kept);
    if (top_p < 1) {
        kept = nucleus(c, kept, total, top_p);
        total = sum_weights(c, kept);
    }
    double drawn = uniform(seed, position) * total, sum = 0;
    for (int64_t i = 0; i < kept; i++) {
        sum += c[i].weight;
        if (drawn < sum) return c[i].token;
    }
    return c[kept - 1].token;
}
