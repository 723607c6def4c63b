/* The first and the last kernel of a replayed step: copy inputs from ring slots, and results to ring slots.
 *
 * A replayed step has fixed addresses, so its slot must be found on the device, by a step counter. One launch copies
 * all inputs, another all results. Their words are numbered consecutively, so that a batch of 10 MB and a few labels
 * are divided evenly among threads, 16 bytes each if sizes allow.
 *
 * The counter has two fields, since a block cannot know whether other blocks of its launch have read what it
 * changes. ring_in copies `next_step` to `current_step`; ring_out sets `next_step` to `current_step` + 1. Each launch
 * changes only the field that its blocks do not read. Both must run in every step, even without feeds or
 * fetches (then with one block).
 */
#include "extent.cuh"
#include "ring_args.h"

template <typename T> __device__ inline void copy_word(void *to, i64 target, const void *from, i64 source) {
    ((T *)to)[target] = ((const T *)from)[source];
}

__device__ inline void copy_word_of(int bytes, void *to, i64 target, const void *from, i64 source) {
    if (bytes == 16)
        copy_word<u128>(to, target, from, source);
    else if (bytes == 8)
        copy_word<u64>(to, target, from, source);
    else if (bytes == 4)
        copy_word<u32>(to, target, from, source);
    else if (bytes == 2)
        copy_word<u16>(to, target, from, source);
    else
        copy_word<u8>(to, target, from, source);
}

/* Returns the index in `from` of word `i` of the feed. */
__device__ inline i64 feed_word_index(const ring_feed &feed, i64 slot, i64 i) {
    if (!feed.rows) return slot * feed.stride + i;
    u32 row = (u32)i, column = divmod_in_place(row, feed.row);
    return (i64)feed.rows[slot * feed.stride + row] * feed.row.value + column;
}

__global__ void ring_in(const __grid_constant__ ring_in_args a) {
    u32 step = a.count->next_step;
    if (global_thread_index() == 0) a.count->current_step = step;
    for (i64 i = global_thread_index(); i < a.words; i += grid_thread_count()) {
        int f = 0;
        i64 begin = 0;
        while (i >= a.feed[f].end) begin = a.feed[f++].end;
        const ring_feed &feed = a.feed[f];
        i64 slot = step % feed.slots;
        copy_word_of(feed.word, feed.to, i - begin, feed.from, feed_word_index(feed, slot, i - begin));
    }
}

__global__ void ring_out(const __grid_constant__ ring_out_args a) {
    u32 step = a.count->current_step;
    if (global_thread_index() == 0) a.count->next_step = step + 1;
    for (i64 i = global_thread_index(); i < a.words; i += grid_thread_count()) {
        int f = 0;
        i64 begin = 0;
        while (i >= a.fetch[f].end) begin = a.fetch[f++].end;
        const ring_fetch &fetch = a.fetch[f];
        i64 slot = step % fetch.slots;
        copy_word_of(fetch.word, fetch.to, slot * fetch.stride + i - begin, fetch.from, i - begin);
    }
}
