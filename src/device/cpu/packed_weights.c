/* The cache of packed weights; see packed_weights.h. One lock guards it, also while weights are packed: that takes
 * milliseconds, when a model is loaded. */
#include "device/cpu/packed_weights.h"

#include <pthread.h>

#include "base/alloc.h"
#include "base/status.h"

struct cpu_packed_weights {
    cpu_packed_weights *next;
    uint64_t source; /* the id of the shared data */
    cpu_packed_layout layout;
    size_t references;
    void *data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cpu_packed_weights *all;

static bool is_same_layout(const cpu_packed_layout *a, const cpu_packed_layout *b) {
    return a->loops == b->loops && a->dot == b->dot && a->pack == b->pack && a->groups == b->groups &&
           a->depth == b->depth && a->columns == b->columns && a->group_step == b->group_step &&
           a->depth_step == b->depth_step && a->column_step == b->column_step && a->bytes == b->bytes;
}

static cpu_packed_weights *find(uint64_t source, const cpu_packed_layout *layout) {
    for (cpu_packed_weights *w = all; w; w = w->next)
        if (w->source == source && is_same_layout(&w->layout, layout)) return w;
    return NULL;
}

static cpu_packed_weights *make(const tu__shared_data *source, const cpu_packed_layout *layout) {
    cpu_packed_weights *w = tu__alloc(sizeof *w, "packed weights");
    void *data = w ? tu__alloc_aligned(layout->bytes, "packed weights") : NULL;
    if (!data) {
        tu__free(w);
        return NULL;
    }
    *w = (cpu_packed_weights){.next = all, .source = source->id, .layout = *layout, .data = data};
    layout->pack(layout, source->data, data);
    return all = w;
}

tu_status cpu_packed_weights_open(const tu__shared_data *source, const cpu_packed_layout *layout,
                                  cpu_packed_weights **weights) {
    pthread_mutex_lock(&lock);
    cpu_packed_weights *w = find(source->id, layout);
    if (!w) w = make(source, layout);
    if (w) w->references++;
    pthread_mutex_unlock(&lock);
    *weights = w;
    return w ? TU_OK : TU_NO_MEMORY;
}

static void remove_from_cache(const cpu_packed_weights *weights) {
    cpu_packed_weights **link = &all;
    while (*link != weights) link = &(*link)->next;
    *link = weights->next;
}

void cpu_packed_weights_close(cpu_packed_weights *weights) {
    if (!weights) return;
    pthread_mutex_lock(&lock);
    bool is_last = --weights->references == 0;
    if (is_last) remove_from_cache(weights);
    pthread_mutex_unlock(&lock);
    if (!is_last) return;
    tu__free_aligned(weights->data);
    tu__free(weights);
}

const void *cpu_packed_weights_data(const cpu_packed_weights *weights) {
    return weights->data;
}

size_t cpu_packed_weights_bytes(const cpu_packed_weights *weights) {
    return weights->layout.bytes;
}

size_t cpu_packed_weights_count(void) {
    size_t count = 0;
    pthread_mutex_lock(&lock);
    for (const cpu_packed_weights *w = all; w; w = w->next) count++;
    pthread_mutex_unlock(&lock);
    return count;
}
