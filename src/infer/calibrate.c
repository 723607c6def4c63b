/* Calibration: the distribution of activations over some batches. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "infer/quantizer.h"

/* ---- Histograms ---- */

/* Doubles the limit: pairs of bins are merged into the inner half. */
static void widen(tu__histogram *h) {
    enum { HALF = TU__HISTOGRAM_BINS / 2, QUARTER = HALF / 2 };
    uint64_t merged[TU__HISTOGRAM_BINS] = {0};
    for (int i = 0; i < TU__HISTOGRAM_BINS; i++) merged[QUARTER + i / 2] += h->bins[i];
    memcpy(h->bins, merged, sizeof merged);
    h->limit *= 2;
}

/* Makes [-limit, limit] contain the range. */
static void enclose(tu__histogram *h) {
    const double largest = fmax(-h->low, h->high);
    if (h->limit == 0 && largest > 0) {
        int exponent;
        frexp(largest, &exponent);
        h->limit = ldexp(1, exponent);
    }
    while (h->limit < largest) widen(h);
}

void tu__histogram_add(tu__histogram *h, const float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const double x = (double)values[i];
        if (!isfinite(x)) continue;
        h->low = x < h->low ? x : h->low;
        h->high = x > h->high ? x : h->high;
    }
    enclose(h);
    const double bins_per_unit = h->limit > 0 ? TU__HISTOGRAM_BINS / (2 * h->limit) : 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite((double)values[i])) continue;
        const int bin = (int)(((double)values[i] + h->limit) * bins_per_unit);
        h->bins[bin < TU__HISTOGRAM_BINS ? bin : TU__HISTOGRAM_BINS - 1]++;
        h->count++;
    }
}

void tu__histogram_range(const tu__histogram *h, double coverage, double *low, double *high) {
    const double outside = (double)h->count * (1 - coverage) / 2;
    const double bin_width = 2 * h->limit / TU__HISTOGRAM_BINS;
    int first = 0, last = TU__HISTOGRAM_BINS - 1;
    for (double sum = 0; first < last && (sum += (double)h->bins[first]) <= outside;) first++;
    for (double sum = 0; last > first && (sum += (double)h->bins[last]) <= outside;) last--;
    *low = fmin(0, fmax(h->low, first * bin_width - h->limit));
    *high = fmax(0, fmin(h->high, (last + 1) * bin_width - h->limit));
}

/* ---- Running the graph ---- */

static tu_status compile(tu__quantizer *q) {
    tu_value *fetch = tu__alloc_array(q->measured_count, sizeof *fetch, "values to calibrate");
    q->values = tu__alloc_array(q->measured_count, sizeof *q->values, "values to calibrate");
    if (!fetch || !q->values) {
        tu__free(fetch);
        return TU_NO_MEMORY;
    }
    tu_status status = TU_OK;
    for (size_t i = 0; i < q->measured_count && status == TU_OK; i++) {
        fetch[i] = tu__value((tu_graph *)q->graph, q->measured[i], 0);
        q->values[i] = tu__alloc_aligned(tu_type_bytes(tu_value_type(fetch[i])), "values to calibrate");
        if (!q->values[i]) status = TU_NO_MEMORY;
    }
    if (status == TU_OK)
        status = tu_compile((tu_graph *)q->graph, &q->program, .devices = "cpu:0", .fetch = fetch,
                            .fetch_count = q->measured_count);
    if (status == TU_OK) status = tu_state_new((tu_graph *)q->graph, &q->state);
    tu__free(fetch);
    return status;
}

tu_status tu__quantizer_calibrate(tu__quantizer *q, size_t feed_count, const tu_feed *feeds) {
    if (!q->program) TU_TRY(compile(q));
    TU_TRY(tu_run(q->program, q->state, feed_count, feeds, q->values));
    for (size_t i = 0; i < q->measured_count; i++) {
        const tu_type type = q->graph->nodes[q->measured[i]]->outputs[0];
        tu__histogram_add(&q->histograms[i], q->values[i], tu_shape_elements(type.shape));
    }
    q->batches++;
    return TU_OK;
}

/* ---- The quantizer ---- */

tu_status tu__quantizer_new(const tu_graph *frozen, tu__quantizer **quantizer) {
    *quantizer = NULL;
    tu__quantizer *q = tu__alloc(sizeof *q, "a quantizer");
    if (!q) return TU_NO_MEMORY;
    *q = (tu__quantizer){.graph = frozen, .arena = {.purpose = "a quantizer"}};
    tu_status status = tu__quantizer_find(q);
    if (status == TU_OK) {
        q->histograms = tu__alloc_array(q->measured_count, sizeof *q->histograms, "histograms");
        if (!q->histograms) status = TU_NO_MEMORY;
    }
    if (status == TU_OK)
        *quantizer = q;
    else
        tu__quantizer_free(q);
    return status;
}

void tu__quantizer_free(tu__quantizer *q) {
    if (!q) return;
    tu_program_free(q->program);
    tu_state_free(q->state);
    for (size_t i = 0; q->values && i < q->measured_count; i++) tu__free_aligned(q->values[i]);
    tu__free(q->values);
    tu__free(q->histograms);
    tu__arena_free(&q->arena);
    tu__free(q);
}

size_t tu__quantizer_layer_count(const tu__quantizer *q) {
    return q->layer_count;
}

const char *tu__quantizer_layer_name(const tu__quantizer *q, size_t layer) {
    return layer < q->layer_count ? q->graph->nodes[q->layers[layer].product]->name : NULL;
}
