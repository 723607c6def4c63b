/* Data shared by graphs: a block of memory with a count of references. See shared_data.h. */
#include "graph/shared_data.h"

#include "base/alloc.h"

tu__shared_data *tu__shared_data_new(size_t bytes, const char *purpose) {
    static atomic_uint_fast64_t next_id = 1;
    tu__shared_data *shared = tu__alloc(sizeof *shared, purpose);
    if (!shared) return NULL;
    shared->data = tu__alloc_aligned(bytes ? bytes : 1, purpose);
    if (!shared->data) {
        tu__free(shared);
        return NULL;
    }
    atomic_init(&shared->references, 1);
    shared->id = atomic_fetch_add(&next_id, 1);
    shared->bytes = bytes;
    return shared;
}

tu__shared_data *tu__shared_data_keep(tu__shared_data *data) {
    atomic_fetch_add_explicit(&data->references, 1, memory_order_relaxed);
    return data;
}

void tu__shared_data_release(tu__shared_data *data) {
    if (!data || atomic_fetch_sub_explicit(&data->references, 1, memory_order_acq_rel) > 1) return;
    tu__free_aligned(data->data);
    tu__free(data);
}
