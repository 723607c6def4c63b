/* Loaders: batches in a seeded order, prefetched by threads.
 *
 * Batches are numbered from the loader's start. The samples of batch n are a function of n, the seed and the data
 * set, so threads only need to agree on who fills which batch. A thread takes a number under the lock, fills slot n %
 * slot_count of a ring without it, and signals that it is filled. tu_loader_next returns slots in order. The lock is
 * taken twice per batch, never per sample, and batches are the same for any number of threads.
 *
 * Invariants, under the lock: `given` is the number of the batch that the caller gets next; slots of lower numbers
 * are free, except that of given - 1, which the caller uses until its next call. `taken` is the lowest number that no
 * thread has taken; taken - given is at most slot_count - 1. A slot contains batch n if slot.filled == n. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "base/start_thread.h"
#include "data/balance.h"
#include "data/dataset.h"
#include "data/permutation.h"
#include "data/validation.h"
#include "graph/graph.h"

enum { MAX_THREADS = 1024, MAX_DEPTH = 65536, MESSAGE_BYTES = 1024 };

typedef struct slot {
    int64_t filled; /* number of the batch in it; -1: none */
    tu_status status;
    char message[MESSAGE_BYTES]; /* error of the reading thread if status is not TU_OK */
    tu_batch batch;
    unsigned char *columns[TU_MAX_COLUMNS];
    int64_t *ordinals, *indices;
} slot;

struct tu_loader {
    const tu_dataset *dataset;
    tu_loader_options options;
    tu__image_split images; /* the images to iterate over … */
    int64_t count;          /* … and their number */
    tu__balance *balance;   /* NULL: samples are not balanced */
    int slot_count;
    slot *slots;
    pthread_mutex_t lock;
    pthread_cond_t filled, freed;
    int64_t given, taken;
    bool stop;
    int thread_count;
    pthread_t *threads;
};

/* ---- Contents of a batch ---- */

/* Sets epoch, first ordinal and size of batch `number`. The first epoch may start in its middle. */
static void locate_batch(const tu_loader *loader, int64_t number, tu_batch *batch) {
    int64_t count = loader->count, size = loader->options.batch;
    int64_t epoch = loader->options.start / count, position = loader->options.start % count;
    int64_t in_first = (count - position + size - 1) / size, in_each = (count + size - 1) / size;
    if (number < in_first) {
        position += number * size;
    } else {
        epoch += 1 + (number - in_first) / in_each;
        position = (number - in_first) % in_each * size;
    }
    batch->epoch = epoch;
    batch->first = epoch * count + position;
    batch->count = count - position < size ? count - position : size;
}

/* Returns the index of the window that is sample `ordinal`, at a position of its epoch. Windows of the training part
 * start at any token; others follow each other. */
static int64_t window_at(const tu_loader *loader, int64_t ordinal, int64_t position) {
    const tu__windows *w = &loader->dataset->windows;
    const tu_loader_options *o = &loader->options;
    int64_t starts = w->tokens[TU_TOKENS_TRAIN] - w->length;
    if (o->split == TU_TRAIN && o->validation == 0) starts += w->tokens[TU_TOKENS_VALIDATION];
    if (o->shuffle && !o->validation_only && o->split == TU_TRAIN)
        return tu__bootstrap(o->seed, ordinal, starts);
    int64_t window = tu__image_split_index(&loader->images, position),
            training = loader->dataset->info.count[TU_TRAIN] - loader->dataset->info.validation;
    if (o->split == TU_TEST || window < training) return window * w->length;
    return w->tokens[TU_TOKENS_TRAIN] + (window - training) * w->length;
}

/* Returns the index of the sample with an ordinal, at a position of its epoch. */
static int64_t index_at(const tu_loader *loader, const tu__permutation *order, int64_t ordinal,
                        int64_t position) {
    const tu_loader_options *o = &loader->options;
    if (loader->dataset->windows.length) return window_at(loader, ordinal, position);
    int64_t index = o->shuffle ? tu__permute(order, position) : position;
    if (loader->balance) return tu__balance_index(loader->balance, o->seed, ordinal / loader->count, index);
    if (o->bootstrap) index = tu__bootstrap(o->seed, index, loader->count);
    return tu__image_split_index(&loader->images, index);
}

/* Of a sample that is not read, classes are 0, because every element of a batch must be a valid class. */
static void clear_classes(const tu_loader *loader, slot *s, int64_t row) {
    const tu__columns *columns = &loader->dataset->columns;
    for (size_t c = 0; c < columns->count; c++)
        if (columns->column[c].kind == TU_COLUMN_CLASS)
            memset(s->columns[c] + (size_t)row * columns->column[c].bytes, 0, columns->column[c].bytes);
}

static tu_status read_sample(const tu_loader *loader, slot *s, int64_t row) {
    const tu__columns *columns = &loader->dataset->columns;
    void *elements[TU_MAX_COLUMNS];
    for (size_t c = 0; c < columns->count; c++)
        elements[c] = s->columns[c] + (size_t)row * columns->column[c].bytes;
    return tu_dataset_read_columns(loader->dataset, loader->options.split, s->indices[row], elements);
}

static tu_status fill_samples(const tu_loader *loader, slot *s) {
    const tu_loader_options *o = &loader->options;
    tu_batch *batch = &s->batch;
    tu__permutation order = tu__permutation_of(o->seed, (uint64_t)batch->epoch, loader->count);
    int64_t position = batch->first - batch->epoch * loader->count;
    for (int64_t i = 0; i < batch->count; i++) {
        s->ordinals[i] = batch->first + i;
        s->indices[i] = index_at(loader, &order, batch->first + i, position + i);
        if (o->indices_only) continue;
        clear_classes(loader, s, i);
        if (o->is_used && !o->is_used(o->context, batch->count, i)) continue;
        TU_TRY(read_sample(loader, s, i));
    }
    return TU_OK;
}

static void fill_slot(const tu_loader *loader, int64_t number, slot *s) {
    bool has_pictures = tu__has_pictures(&loader->dataset->info);
    s->batch = (tu_batch){.images = has_pictures ? s->columns[0] : NULL,
                          .labels = has_pictures ? (const int32_t *)(const void *)s->columns[1] : NULL,
                          .columns = loader->options.indices_only ? NULL : (const void *const *)s->columns,
                          .ordinals = s->ordinals,
                          .indices = s->indices};
    locate_batch(loader, number, &s->batch);
    s->status = fill_samples(loader, s);
    if (s->status != TU_OK) snprintf(s->message, sizeof s->message, "%s", tu_message());
}

/* ---- Threads ---- */

static void *read_ahead(void *argument) {
    tu_loader *loader = argument;
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop) {
        /* The caller uses one slot, so the ring holds slot_count - 1 batches from `given` on. */
        if (loader->taken - loader->given >= loader->slot_count - 1) {
            pthread_cond_wait(&loader->freed, &loader->lock);
            continue;
        }
        int64_t number = loader->taken++;
        slot *s = &loader->slots[number % loader->slot_count];
        pthread_mutex_unlock(&loader->lock);
        fill_slot(loader, number, s);
        pthread_mutex_lock(&loader->lock);
        s->filled = number;
        pthread_cond_signal(&loader->filled);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static tu_status start_threads(tu_loader *loader) {
    int wanted = loader->options.threads, failure = 0;
    while (loader->thread_count < wanted && failure == 0) {
        failure = tu__start_thread(&loader->threads[loader->thread_count], read_ahead, loader);
        if (failure == 0) loader->thread_count++;
    }
    if (failure == 0) return TU_OK;
    return tu_fail(TU_NO_MEMORY, "loader: cannot start thread %d of %d: %s; use fewer threads",
                   loader->thread_count + 1, wanted, strerror(failure));
}

/* ---- Creating and freeing ---- */

static tu_status fail_option(const char *what, long long value, const char *expected) {
    return tu_fail(TU_INVALID, "loader: %s %lld: expected %s", what, value, expected);
}

static tu_status check_validation(const tu_dataset *dataset, const tu_loader_options *o) {
    if (o->validation == 0 && !o->validation_only) return TU_OK;
    if (o->split != TU_TRAIN) return fail_option("split", o->split, "TU_TRAIN for a validation split");
    if (dataset->windows.length && o->validation != dataset->info.validation)
        return tu_fail(
            TU_INVALID,
            "loader: validation split of %lld windows: data set '%s' has its own validation tokens, %lld "
            "windows",
            (long long)o->validation, dataset->info.name, (long long)dataset->info.validation);
    if (o->validation < 1 || o->validation >= dataset->info.count[TU_TRAIN])
        return tu_fail(TU_INVALID, "loader: validation split of %lld images: expected 1 to %lld",
                       (long long)o->validation, (long long)dataset->info.count[TU_TRAIN] - 1);
    return TU_OK;
}

static tu_status check_options(const tu_dataset *dataset, tu_loader_options *o) {
    if (o->split != TU_TRAIN && o->split != TU_TEST)
        return fail_option("split", o->split, "TU_TRAIN or TU_TEST");
    if (dataset->info.count[o->split] == 0)
        return tu_fail(TU_INVALID, "data set '%s' has no %s samples: expected at least one",
                       dataset->info.name, o->split == TU_TRAIN ? "training" : "test");
    TU_TRY(check_validation(dataset, o));
    if (o->batch == 0) o->batch = 128;
    int64_t bytes;
    if (o->batch < 0 ||
        __builtin_mul_overflow(o->batch, (int64_t)tu__sample_bytes(&dataset->columns), &bytes))
        return fail_option("batch of", o->batch, "a number of samples that fits into memory");
    int64_t count = tu__image_split_of(&dataset->info, o->split, o->validation, o->validation_only).count;
    if (o->batch > count) o->batch = count;
    if (o->start < 0 || o->start > INT64_MAX / 2)
        return fail_option("start at sample", o->start, "a number of at least 0");
    if (o->threads > MAX_THREADS) return fail_option("threads", o->threads, "at most 1024");
    if (o->threads == 0) o->threads = 1;
    if (o->threads < 0 || o->indices_only) o->threads = 0;
    if (o->depth < 0 || o->depth > MAX_DEPTH) return fail_option("depth", o->depth, "0 to 65536");
    if (o->depth == 0) o->depth = o->threads > 3 ? o->threads + 1 : 4;
    if (o->balanced && (!o->shuffle || o->bootstrap))
        return tu_fail(TU_INVALID, "loader: balanced: expected with shuffle and without bootstrap");
    return TU_OK;
}

static tu_status allocate_slot(const tu_loader *loader, slot *s) {
    size_t batch = (size_t)loader->options.batch;
    s->filled = -1;
    s->ordinals = tu__alloc_aligned(batch * sizeof *s->ordinals, "a batch of ordinals");
    s->indices = tu__alloc_aligned(batch * sizeof *s->indices, "a batch of indices");
    if (!s->ordinals || !s->indices) return TU_NO_MEMORY;
    if (loader->options.indices_only) return TU_OK;
    const tu__columns *columns = &loader->dataset->columns;
    for (size_t c = 0; c < columns->count; c++) {
        s->columns[c] = tu__alloc_aligned(batch * columns->column[c].bytes, "a batch of samples");
        if (!s->columns[c]) return TU_NO_MEMORY;
    }
    return TU_OK;
}

static tu_status start_loader(tu_loader *loader) {
    loader->slot_count = loader->options.threads ? loader->options.depth + 1 : 1;
    loader->slots = tu__alloc_array((size_t)loader->slot_count, sizeof *loader->slots, "a loader");
    loader->threads =
        tu__alloc_array((size_t)loader->options.threads, sizeof *loader->threads, "a loader's threads");
    if (!loader->slots || !loader->threads) return TU_NO_MEMORY;
    for (int i = 0; i < loader->slot_count; i++) TU_TRY(allocate_slot(loader, &loader->slots[i]));
    return start_threads(loader);
}

tu_status tu_loader_new_with(const tu_dataset *dataset, tu_loader **loader,
                             const tu_loader_options *options) {
    TU__OPTIONS(tu_loader_options, o, options);
    TU_TRY(check_options(dataset, &o));
    tu_loader *created = tu__alloc(sizeof *created, "a loader");
    if (!created) return TU_NO_MEMORY;
    created->dataset = dataset;
    created->options = o;
    created->images = tu__image_split_of(&dataset->info, o.split, o.validation, o.validation_only);
    created->count = created->images.count;
    pthread_mutex_init(&created->lock, NULL);
    pthread_cond_init(&created->filled, NULL);
    pthread_cond_init(&created->freed, NULL);
    tu_status status = o.balanced ? tu__balance_new(dataset, &created->images, &created->balance) : TU_OK;
    if (status == TU_OK) status = start_loader(created);
    if (status != TU_OK) {
        tu_loader_free(created);
        return status;
    }
    *loader = created;
    return TU_OK;
}

void tu_loader_free(tu_loader *loader) {
    if (!loader) return;
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->freed);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->thread_count; i++) pthread_join(loader->threads[i], NULL);
    for (int i = 0; loader->slots && i < loader->slot_count; i++) {
        for (size_t c = 0; c < TU_MAX_COLUMNS; c++) tu__free_aligned(loader->slots[i].columns[c]);
        tu__free_aligned(loader->slots[i].ordinals);
        tu__free_aligned(loader->slots[i].indices);
    }
    pthread_cond_destroy(&loader->freed);
    pthread_cond_destroy(&loader->filled);
    pthread_mutex_destroy(&loader->lock);
    tu__balance_free(loader->balance);
    tu__free(loader->threads);
    tu__free(loader->slots);
    tu__free(loader);
}

/* ---- Returning batches ---- */

/* Waits until batch `given` is filled and returns its slot. */
static slot *wait_for_slot(tu_loader *loader) {
    slot *s = &loader->slots[loader->given % loader->slot_count];
    if (loader->thread_count == 0) {
        fill_slot(loader, loader->given, s);
        return s;
    }
    pthread_mutex_lock(&loader->lock);
    while (s->filled != loader->given) pthread_cond_wait(&loader->filled, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
    return s;
}

/* A batch that cannot be read is not skipped: the next call fails again. */
tu_status tu_loader_next(tu_loader *loader, tu_batch *batch) {
    TU_TRY(TU__CHECK_SIZED(tu_batch, batch));
    slot *s = wait_for_slot(loader);
    if (s->status != TU_OK) return tu_fail(s->status, "%s", s->message);
    TU__COPY_SIZED(batch, s->batch);
    pthread_mutex_lock(&loader->lock);
    loader->given++; /* frees the slot of the previous batch */
    pthread_cond_signal(&loader->freed);
    pthread_mutex_unlock(&loader->lock);
    return TU_OK;
}
