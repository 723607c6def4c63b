/* Balanced sampling. See balance.h. */
#include "data/balance.h"

#include "base/alloc.h"

struct tu__balance {
    int64_t classes;  /* that have samples */
    int64_t *first;   /* [classes + 1]: the samples of class c are indices[first[c]] … */
    int64_t *indices; /* of all samples, by class */
};

static tu_status read_class(const tu_dataset *dataset, size_t column, tu_split split, int64_t index,
                            int32_t *class) {
    const int32_t *classes = dataset->data[split][column];
    void *elements[TU_MAX_COLUMNS] = {0};
    if (classes) {
        *class = classes[index];
        return TU_OK;
    }
    elements[column] = class;
    return tu_dataset_read_columns(dataset, split, index, elements);
}

/* Counting sort of the samples by class; classes without samples are left out. */
static void sort_by_class(tu__balance *b, const tu__image_split *samples, const int32_t *class_of,
                          int64_t classes, int64_t *next) {
    for (int64_t i = 0; i < samples->count; i++) next[class_of[i]]++;
    int64_t total = 0;
    for (int64_t c = 0; c < classes; c++) {
        int64_t count = next[c];
        next[c] = total;
        if (count) b->first[b->classes++] = total;
        total += count;
    }
    b->first[b->classes] = total;
    for (int64_t i = 0; i < samples->count; i++)
        b->indices[next[class_of[i]]++] = tu__image_split_index(samples, i);
}

static tu_status fill(const tu_dataset *dataset, size_t column, const tu__image_split *samples,
                      tu__balance *b) {
    int64_t classes = dataset->columns.column[column].classes;
    int32_t *class_of = tu__alloc_array((size_t)samples->count, sizeof *class_of, "the classes of samples");
    int64_t *next = tu__alloc_array((size_t)classes, sizeof *next, "the classes of samples");
    b->first = tu__alloc_array((size_t)classes + 1, sizeof *b->first, "the classes of samples");
    b->indices = tu__alloc_array((size_t)samples->count, sizeof *b->indices, "the samples by class");
    tu_status status = class_of && next && b->first && b->indices ? TU_OK : TU_NO_MEMORY;
    for (int64_t i = 0; status == TU_OK && i < samples->count; i++)
        status = read_class(dataset, column, samples->split, tu__image_split_index(samples, i), &class_of[i]);
    if (status == TU_OK) sort_by_class(b, samples, class_of, classes, next);
    tu__free(class_of);
    tu__free(next);
    return status;
}

tu_status tu__balance_new(const tu_dataset *dataset, const tu__image_split *samples, tu__balance **balance) {
    const tu__column *target = tu__columns_target(&dataset->columns);
    if (!target || target->kind != TU_COLUMN_CLASS)
        return tu_fail(TU_INVALID, "data set '%s' has no classes, which balanced batches need",
                       dataset->info.name);
    tu__balance *created = tu__alloc(sizeof *created, "balanced batches");
    if (!created) return TU_NO_MEMORY;
    tu_status status = fill(dataset, (size_t)(target - dataset->columns.column), samples, created);
    if (status != TU_OK) {
        tu__balance_free(created);
        return status;
    }
    *balance = created;
    return TU_OK;
}

void tu__balance_free(tu__balance *b) {
    if (!b) return;
    tu__free(b->first);
    tu__free(b->indices);
    tu__free(b);
}

int64_t tu__balance_index(const tu__balance *b, uint64_t seed, int64_t epoch, int64_t position) {
    int64_t class = position % b->classes, each = (b->first[b->classes] - 1) / b->classes + 1;
    int64_t number = epoch * each + position / b->classes; /* of the class's samples, since the run began */
    int64_t count = b->first[class + 1] - b->first[class], pass = number / count;
    uint64_t order =
        ((uint64_t)pass << 20) ^ (uint64_t) class; /* every pass over a class has an order of its own */
    tu__permutation within = tu__permutation_of(seed ^ 0x62616c616e6365u, order, count);
    return b->indices[b->first[class] + tu__permute(&within, number % count)];
}
