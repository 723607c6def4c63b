/* Packs matrices into panels; see packed_panels.h. */
#include "device/cpu/packed_panels.h"

#include "device/cpu/chunks.h"

cpu_panel cpu_panel_at(const cpu_gemm_loops *loops, int64_t columns, int64_t i) {
    int64_t vectors = cpu_panel_vectors(loops, columns), panels = cpu_panel_count(loops, columns);
    int64_t first = chunk_start(vectors, panels, i) * loops->vector_elements;
    int64_t width = chunk_start(vectors, panels, i + 1) * loops->vector_elements - first;
    return (cpu_panel){first, min_i64(columns - first, width), width};
}

/* Packs the columns of a panel as pairs of bf16 numbers. */
static void pack_pairs(const cpu_packed_layout *layout, cpu_panel p, const uint16_t *source,
                       uint32_t *panel) {
    for (int64_t k = 0; k < layout->depth; k += 2, panel += p.width) {
        bool is_last = k + 1 == layout->depth;
        for (int64_t j = 0; j < p.width; j++) {
            const uint16_t *from = source + k * layout->depth_step + j * layout->column_step;
            if (j >= p.columns)
                panel[j] = 0;
            else
                panel[j] = from[0] | (is_last ? 0 : (uint32_t)from[layout->depth_step] << 16);
        }
    }
}

static void pack_panels(const cpu_packed_layout *layout, const void *source, void *packed) {
    const cpu_gemm_loops *loops = layout->loops;
    int64_t group_elements = cpu_panel_elements(loops, layout->depth, layout->columns);
    for (int64_t group = 0; group < layout->groups; group++)
        for (int64_t i = 0; i < cpu_panel_count(loops, layout->columns); i++) {
            cpu_panel p = cpu_panel_at(loops, layout->columns, i);
            int64_t to = group * group_elements + cpu_panel_depth(loops, layout->depth) * p.first;
            const char *from =
                (const char *)source +
                (group * layout->group_step + p.first * layout->column_step) * loops->operand_bytes;
            char *panel = (char *)packed + to * loops->element_bytes;
            if (loops->pair)
                pack_pairs(layout, p, (const void *)from, (void *)panel);
            else
                loops->pack(layout->depth, p.columns, from, layout->depth_step, layout->column_step, panel,
                            p.width);
        }
}

cpu_packed_layout cpu_panel_layout(const cpu_gemm_loops *loops, int64_t groups, int64_t depth,
                                   int64_t columns, int64_t depth_step, int64_t column_step) {
    return (cpu_packed_layout){
        .loops = loops,
        .pack = pack_panels,
        .groups = groups,
        .depth = depth,
        .columns = columns,
        .group_step = depth * columns,
        .depth_step = depth_step,
        .column_step = column_step,
        .bytes = (size_t)(groups * cpu_panel_elements(loops, depth, columns) * loops->element_bytes)};
}

void cpu_multiply_rows(const cpu_gemm_loops *loops, cpu_gemm_tile tile, int64_t rows) {
    int64_t max_rows = loops->max_rows[cpu_panel_vectors(loops, tile.columns)],
            chunks = divide_up(rows, max_rows);
    const char *a = tile.a, *residual = tile.residual;
    const char *next = tile.next;
    const int64_t panel_bytes = tile.depth * tile.blocks * tile.b_step * loops->element_bytes,
                  tile_bytes = tile.depth * tile.blocks * CPU_GEMM_NEXT_BYTES;
    char *c = tile.c;
    for (int64_t i = 0; i < chunks; i++) {
        int64_t first = chunk_start(rows, chunks, i);
        tile.rows = chunk_start(rows, chunks, i + 1) - first;
        tile.a = a + first * tile.a_row * loops->element_bytes;
        tile.c = c + first * tile.c_row * loops->element_bytes;
        if (residual) tile.residual = residual + first * tile.c_row * loops->element_bytes;
        tile.next = next && chunks > 1 && i * tile_bytes < panel_bytes ? next + i * tile_bytes : NULL;
        loops->tile(&tile);
    }
}
