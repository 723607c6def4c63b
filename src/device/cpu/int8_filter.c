/* Packs filters for integer convolutions and products. */
#include "device/cpu/int8_filter.h"

static int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

int64_t cpu_int8_block_words(const cpu_int8_dot *dot, int64_t depth) {
    return divide_up(depth, CPU_INT8_WORD / dot->element_bytes);
}

int64_t cpu_int8_panel_columns(const cpu_int8_dot *dot) {
    return (int64_t)dot->max_vectors * dot->vector_words;
}

static int64_t word_count(const cpu_packed_layout *l) {
    const int64_t width = divide_up(l->columns, l->dot->vector_words) * l->dot->vector_words;
    return l->groups * cpu_int8_block_words(l->dot, l->depth) * width;
}

/* Returns word `word` of a column's block, and adds its weights to *sum. */
static uint32_t pack_word(const cpu_packed_layout *l, const int8_t *block, int64_t word, int32_t *sum) {
    const int bytes = l->dot->element_bytes, elements = CPU_INT8_WORD / bytes;
    uint32_t packed = 0;
    for (int e = 0; e < elements; e++) {
        const int64_t k = word * elements + e;
        if (k >= l->depth) break;
        const int32_t weight = +block[k * l->depth_step];
        const uint32_t mask = bytes == 1 ? 0xff : 0xffff;
        packed |= ((uint32_t)weight & mask) << (8 * bytes * e);
        *sum += weight;
    }
    return packed;
}

/* Packs the panel that begins with column `first` and has `columns` columns. */
static void pack_panel(const cpu_packed_layout *l, const int8_t *filter, int64_t first, int64_t columns,
                       uint32_t *words, int32_t *sums) {
    const int64_t block_words = cpu_int8_block_words(l->dot, l->depth);
    const int64_t width = divide_up(columns, l->dot->vector_words) * l->dot->vector_words;
    for (int64_t j = 0; j < columns; j++) {
        int32_t sum = 0;
        for (int64_t block = 0; block < l->groups; block++) {
            const int8_t *from = filter + block * l->group_step + (first + j) * l->column_step;
            for (int64_t w = 0; w < block_words; w++)
                words[(block * block_words + w) * width + j] = pack_word(l, from, w, &sum);
        }
        sums[j] = sum;
    }
    for (int64_t row = 0; row < l->groups * block_words; row++)
        for (int64_t j = columns; j < width; j++) words[row * width + j] = 0;
}

static void pack_filter(const cpu_packed_layout *l, const void *source, void *packed) {
    const int64_t rows = l->groups * cpu_int8_block_words(l->dot, l->depth);
    const int64_t panel = cpu_int8_panel_columns(l->dot);
    uint32_t *words = packed;
    int32_t *sums = (int32_t *)packed + word_count(l);
    for (int64_t first = 0; first < l->columns; first += panel) {
        const int64_t columns = l->columns - first < panel ? l->columns - first : panel;
        pack_panel(l, source, first, columns, words + rows * first, sums + first);
    }
}

cpu_packed_layout cpu_int8_layout(const cpu_int8_dot *dot, int64_t blocks, int64_t depth, int64_t columns,
                                  int64_t block_step, int64_t k_step, int64_t column_step) {
    cpu_packed_layout l = {.dot = dot,
                           .pack = pack_filter,
                           .groups = blocks,
                           .depth = depth,
                           .columns = columns,
                           .group_step = block_step,
                           .depth_step = k_step,
                           .column_step = column_step};
    l.bytes = (size_t)(word_count(&l) + columns) * CPU_INT8_WORD;
    return l;
}

cpu_int8_filter cpu_int8_filter_at(const cpu_packed_layout *layout, const void *packed) {
    return (cpu_int8_filter){packed, (const int32_t *)packed + word_count(layout)};
}
