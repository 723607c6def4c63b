/* Fused pointwise kernels: generates their sources, compiles and launches them.
 *
 * There are three forms of kernels:
 *   one subkernel     threads process packs with a grid stride;
 *   many subkernels   independent subkernels, such as the updates of all parameters, share one launch. A block finds
 *                     its subkernel by its block index. Subkernels with the same program share its code;
 *   with sums         values are summed as they are computed. Over the rows (the gradient of a bias): a block handles
 *                     a chunk of rows, a thread a pack of columns in some of them; in a stack, blocks along z sum the
 *                     rows of different networks. Along rows: a warp per row, or
 *                     blocks for long rows. If several blocks hold partial sums, a second launch adds them
 *                     (kernels/sums.cu).
 * The order of sums depends only on sizes and the GPU model, so results are bitwise reproducible.
 */
#include "device/cuda/ops/pointwise.h"
#include "device/cuda/ops/ops.h"

#include <string.h>

#include "base/text.h"

#include "device/cuda/kernels/sums_args.h"

enum {
    THREADS = 256,
    WARP = 32,
    MAX_PARAMETERS = 32764,    /* bytes: CUDA's limit */
    MAX_ARGUMENTS = 28 * 1024, /* bytes, of several subkernels in one launch */
    MAX_SUBKERNEL_BLOCKS = 1024,
    SINGLE_BLOCK_ROWS = 256,    /* up to here one block sums faster than several blocks and a second launch */
    SINGLE_BLOCK_LANES = 8,     /* per row in such a block: 16 bytes each make one cache line */
    SINGLE_BLOCK_THREADS = 512, /* maximum */
};

/* ---- Launch plans ---- */

typedef struct launch_plan {
    const cuda_function *function;
    const cuda_subkernel *subkernels;
    uint32_t count;
    cuda_grid grid;
    unsigned char *arguments; /* all but the addresses, which each run adds to a copy */
    size_t bytes;
    size_t *offsets; /* of the subkernels in `arguments` */
    /* for sums */
    size_t tail;   /* offset of sum_tail in `arguments` */
    int64_t parts; /* partial sums per sum; 1: the kernel finishes it */
    const cuda_function *finish[TU__MAX_SUMS];
} launch_plan;

typedef struct fused {
    uint32_t count;
    launch_plan *launches;
} fused;

/* Follows the subkernel's structure in the arguments of a kernel with sums. Must match the text below. */
typedef struct sum_tail {
    int64_t rows, chunk;
    uint32_t row_packs, lanes, split, parts;
    void *partial;
    void *out[TU__MAX_SUMS];
    double divisor[TU__MAX_SUMS];
} sum_tail;

static const char sum_tail_text[] =
    "struct arguments { program0::subkernel p; i64 rows, chunk; u32 row_packs, lanes, split, parts; void *partial; "
    "void *out[4]; double divisor[4]; };\n";

/* ---- Arguments ---- */

static void *address_of(const tu__kernel *k, uint32_t index) {
    return index >= CUDA_WRITE ? k->out[index - CUDA_WRITE] : k->in[index];
}

static void append_bytes(unsigned char **end, const void *bytes, size_t size) {
    memcpy(*end, bytes, size);
    *end += size;
}

/* An empty list still has one entry: C++ has no empty arrays. */
static void skip_if_empty(unsigned char **end, uint32_t count, size_t size) {
    if (count == 0) *end += size;
}

void cuda_write_arguments(const tu__kernel *k, const cuda_subkernel *p, unsigned char *end) {
    for (uint32_t i = 0; i < p->address_count; i++) {
        void *address = k->in ? address_of(k, p->address[i]) : NULL;
        append_bytes(&end, &address, sizeof address);
    }
    skip_if_empty(&end, p->address_count, 8);
    append_bytes(&end, &p->packs, sizeof p->packs);
    append_bytes(&end, p->strides, p->stride_count * sizeof *p->strides);
    skip_if_empty(&end, p->stride_count, 8);
    append_bytes(&end, p->numbers, p->number_count * sizeof *p->numbers);
    skip_if_empty(&end, p->number_count, 8);
    append_bytes(&end, p->axes, p->axis_count * sizeof *p->axes);
}

/* ---- Sources ---- */

static void begin_source(tu__text *text) {
    tu__text_printf(text, "#include \"prelude.cuh\"\n#define K(n) ((C)(n))\n");
}

static void add_program(tu__text *text, uint32_t index, const char *body) {
    tu__text_printf(text, "namespace program%u {\n%s}\n", index, body);
}

static const cuda_function *request_text(tu__selection *s, tu__text *text) {
    const cuda_function *f = text->failed ? NULL : cuda_request_source(s, tu__text_string(text), "fused");
    tu__text_free(text);
    return f;
}

static const cuda_function *request_single(tu__selection *s, const cuda_subkernel *subkernel) {
    tu__text text = {0};
    begin_source(&text);
    add_program(&text, 0, subkernel->body);
    tu__text_printf(&text,
                    "extern \"C\" __global__ void fused(const __grid_constant__ program0::subkernel p) {\n"
                    "    typedef program0::I I;\n"
                    "    for (I i = (I)global_thread_index(); i < (I)p.packs; i += (I)grid_thread_count())\n"
                    "        program0::run(p, i);\n"
                    "}\n");
    return request_text(s, &text);
}

/* Returns the index of a subkernel's program among the distinct programs. */
static uint32_t program_of(const cuda_subkernel *subkernels, uint32_t count, uint32_t index) {
    uint32_t program = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first = 0;
        while (strcmp(subkernels[first].body, subkernels[i].body) != 0) first++;
        if (strcmp(subkernels[i].body, subkernels[index].body) == 0) return program;
        program += first == i;
    }
    return program;
}

static bool is_first(const cuda_subkernel *subkernels, uint32_t index) {
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(subkernels[i].body, subkernels[index].body) == 0) return false;
    return true;
}

static const cuda_function *request_horizontal(tu__selection *s, const launch_plan *l, size_t blob) {
    tu__text text = {0};
    begin_source(&text);
    uint32_t programs = 0;
    for (uint32_t i = 0; i < l->count; i++)
        if (is_first(l->subkernels, i)) add_program(&text, programs++, l->subkernels[i].body);
    tu__text_printf(
        &text,
        "struct arguments { u32 first[%u], offset[%u], program[%u]; alignas(8) u8 blob[%zu]; };\n"
        "extern \"C\" __global__ void fused(const __grid_constant__ arguments a) {\n"
        "    u32 low = 0, high = %u;\n"
        "    while (high - low > 1) {\n"
        "        u32 middle = (low + high) / 2;\n"
        "        if (a.first[middle] <= blockIdx.x) low = middle; else high = middle;\n"
        "    }\n"
        "    u32 blocks = a.first[low + 1] - a.first[low];\n"
        "    i64 start = (i64)(blockIdx.x - a.first[low]) * blockDim.x + threadIdx.x, step = (i64)blocks * "
        "blockDim.x;\n"
        "    switch (a.program[low]) {\n",
        l->count + 1, l->count, l->count, blob, l->count);
    for (uint32_t i = 0; i < programs; i++)
        tu__text_printf(
            &text,
            "    case %u: {\n"
            "        const program%u::subkernel &p = *(const program%u::subkernel *)(a.blob + a.offset[low]);\n"
            "        for (i64 i = start; i < p.packs; i += step) program%u::run(p, (program%u::I)i);\n"
            "        break;\n"
            "    }\n",
            i, i, i, i, i);
    tu__text_printf(&text, "    }\n}\n");
    return request_text(s, &text);
}

/* Writes code that stores a finished sum, or a partial sum at index `part`. */
static void write_sum_store(tu__text *text, const cuda_subkernel *subkernel, const char *which,
                            const char *column, const char *part) {
    tu__text_printf(
        text, "            if (a.parts > 1) ((C *)a.partial)[%s] = total;\n            else switch (%s) {\n",
        part, which);
    for (uint32_t i = 0; i < subkernel->sum_count; i++)
        tu__text_printf(
            text,
            "            case %u: ((%s *)a.out[%u])[%s] = narrow<%s>(total / (C)a.divisor[%u]); break;\n", i,
            cuda_type(subkernel->sum[i].dtype), i, column, cuda_type(subkernel->sum[i].dtype), i);
    tu__text_printf(text, "            }\n");
}

static void write_column_kernel(tu__text *text, const cuda_subkernel *subkernel) {
    bool grouped = subkernel->groups > 1;
    const char *row_index = grouped ? "((i64)blockIdx.z * a.rows + r)" : "r",
               *group = grouped ? "(i64)blockIdx.z * a.row_packs * W + " : "";
    tu__text_printf(
        text,
        "extern \"C\" __global__ void fused(const __grid_constant__ arguments a) {\n"
        "    typedef program0::C C;\n"
        "    const int W = program0::W, S = %u;\n"
        "    extern __shared__ double shared_words[];\n"
        "    C *shared = (C *)shared_words;\n"
        "    u32 lane = threadIdx.x %% a.lanes, level = threadIdx.x / a.lanes, height = blockDim.x / a.lanes;\n"
        "    u32 column = blockIdx.y * a.lanes + lane;\n"
        "    C sum[S][W];\n"
        "    for (int s = 0; s < S; s++) for (int w = 0; w < W; w++) sum[s][w] = 0;\n"
        "    i64 end = (i64)(blockIdx.x + 1) * a.chunk;\n"
        "    if (end > a.rows) end = a.rows;\n"
        "    if (level < height && column < a.row_packs)\n"
        "        for (i64 r = (i64)blockIdx.x * a.chunk + level; r < end; r += height)\n"
        "            program0::run(a.p, (program0::I)(%s * a.row_packs + column), sum);\n"
        "    u32 values = S * W * a.lanes;\n"
        "    if (level < height)\n"
        "        for (int s = 0; s < S; s++) for (int w = 0; w < W; w++)\n"
        "            shared[level * values + (s * W + w) * a.lanes + lane] = sum[s][w];\n"
        "    __syncthreads();\n"
        "    for (; height > 8; height = (height + 1) / 2) {\n"
        "        u32 half = (height + 1) / 2;\n"
        "        for (u32 v = threadIdx.x; v < (height - half) * values; v += blockDim.x) shared[v] += shared[half * values + v];\n"
        "        __syncthreads();\n"
        "    }\n"
        "    for (u32 v = threadIdx.x; v < values; v += blockDim.x) {\n"
        "        C total = shared[v];\n"
        "        for (u32 h = 1; h < height; h++) total += shared[h * values + v];\n"
        "        u32 s = v / (W * a.lanes), w = v / a.lanes %% W, c = blockIdx.y * a.lanes + v %% a.lanes;\n"
        "        i64 row = (i64)a.row_packs * W%s, element = %s(i64)c * W + w;\n"
        "        if (c < a.row_packs) {\n",
        subkernel->sum_count, row_index, grouped ? " * gridDim.z" : "", group);
    write_sum_store(text, subkernel, "s", "element", "((i64)blockIdx.x * S + s) * row + element");
    tu__text_printf(text, "        }\n    }\n}\n");
}

/* A row is summed by `lanes` threads: a warp, or `split` full blocks. */
static void write_row_kernel(tu__text *text, const cuda_subkernel *subkernel) {
    tu__text_printf(
        text,
        "extern \"C\" __global__ void fused(const __grid_constant__ arguments a) {\n"
        "    typedef program0::C C;\n"
        "    const int W = program0::W, S = %u;\n"
        "    __shared__ C shared[32];\n"
        "    bool warps = a.lanes == 32;\n"
        "    u32 lane = warps ? threadIdx.x & 31 : threadIdx.x;\n"
        "    i64 row = warps ? (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5) : (i64)blockIdx.x / a.split;\n"
        "    u32 part = warps ? 0 : blockIdx.x %% a.split;\n"
        "    C sum[S][W];\n"
        "    for (int s = 0; s < S; s++) for (int w = 0; w < W; w++) sum[s][w] = 0;\n"
        "    if (row < a.rows)\n"
        "        for (i64 i = (i64)part * a.lanes + lane; i < a.row_packs; i += (i64)a.split * a.lanes)\n"
        "            program0::run(a.p, (program0::I)(row * a.row_packs + i), sum);\n"
        "#pragma unroll\n"
        "    for (int s = 0; s < S; s++) {\n"
        "        C total = sum[s][0];\n"
        "        for (int w = 1; w < W; w++) total += sum[s][w];\n"
        "        total = warps ? warp_reduce(total, adding()) : block_reduce(total, adding(), shared);\n"
        "        if (lane == 0 && row < a.rows) {\n",
        subkernel->sum_count);
    write_sum_store(text, subkernel, "s", "row", "((i64)s * a.rows + row) * a.split + part");
    tu__text_printf(text, "        }\n    }\n}\n");
}

static const cuda_function *request_sums(tu__selection *s, const cuda_subkernel *subkernel) {
    tu__text text = {0};
    begin_source(&text);
    add_program(&text, 0, subkernel->body);
    tu__text_append(&text, sum_tail_text, sizeof sum_tail_text - 1);
    if (subkernel->sums == TU__COLUMN_SUMS)
        write_column_kernel(&text, subkernel);
    else
        write_row_kernel(&text, subkernel);
    return request_text(s, &text);
}

/* ---- Kernels with sums ---- */

static uint32_t blocks_for(int64_t packs) {
    int64_t blocks = (packs + THREADS - 1) / THREADS;
    return (uint32_t)(blocks < MAX_SUBKERNEL_BLOCKS ? blocks : MAX_SUBKERNEL_BLOCKS);
}

static size_t shared_bytes(const cuda_subkernel *p, int64_t threads) {
    return (size_t)threads * p->sum_count * (size_t)p->width * (p->wide ? 8 : 4);
}

/* All rows in one block, for a few columns: each thread sums a few rows, and no second launch is needed, which would
 * cost more than the sum. */
static void plan_single_block(launch_plan *l, sum_tail *t) {
    enum { MAX_SHARED = 32 << 10 };
    const cuda_subkernel *p = l->subkernels;
    int64_t threads = SINGLE_BLOCK_THREADS;
    while (shared_bytes(p, threads) > MAX_SHARED) threads /= 2;
    t->lanes = t->row_packs < SINGLE_BLOCK_LANES ? t->row_packs : SINGLE_BLOCK_LANES;
    t->chunk = p->rows;
    l->parts = 1;
    l->grid = (cuda_grid){.blocks = {1, (t->row_packs + t->lanes - 1) / t->lanes, (unsigned)p->groups},
                          .threads = (unsigned)threads,
                          .shared = (unsigned)shared_bytes(p, threads)};
}

/* The lanes of a warp lie along the columns. Rows are split into as many chunks as keep the GPU busy. */
static void plan_columns(const tu__kernel *k, launch_plan *l, sum_tail *t) {
    const cuda_subkernel *p = l->subkernels;
    t->lanes = t->row_packs < WARP ? t->row_packs : WARP;
    int64_t height = THREADS / t->lanes, tiles = (t->row_packs + t->lanes - 1) / t->lanes;
    int64_t needed = 4 * (int64_t)cuda_of(k)->multiprocessors / (tiles * p->groups),
            limit = (p->rows + height - 1) / height;
    int64_t parts = needed < 1 ? 1 : needed < limit ? needed : limit;
    t->chunk = ((p->rows + parts - 1) / parts + height - 1) / height * height;
    l->parts = (p->rows + t->chunk - 1) / t->chunk;
    l->grid = (cuda_grid){.blocks = {(unsigned)l->parts, (unsigned)tiles, (unsigned)p->groups},
                          .threads = THREADS,
                          .shared = (unsigned)shared_bytes(p, THREADS)};
}

static void plan_rows(const tu__kernel *k, launch_plan *l, sum_tail *t) {
    const cuda_subkernel *p = l->subkernels;
    bool warps = t->row_packs <= 8 * WARP;
    t->lanes = warps ? WARP : THREADS;
    int64_t needed = 4 * (int64_t)cuda_of(k)->multiprocessors / p->rows, limit = t->row_packs / (4 * THREADS);
    int64_t split = warps || needed < 1 || limit < 1 ? 1 : needed < limit ? needed : limit;
    t->split = (uint32_t)split;
    l->parts = split;
    int64_t blocks = warps ? (p->rows + THREADS / WARP - 1) / (THREADS / WARP) : p->rows * split;
    l->grid = (cuda_grid){.blocks = {(unsigned)blocks}, .threads = THREADS};
}

static tu_status request_finish(tu__selection *s, launch_plan *l) {
    const cuda_subkernel *p = l->subkernels;
    for (uint32_t i = 0; i < p->sum_count && l->parts > 1; i++) {
        l->finish[i] = cuda_request(s, "sums", "finish_sums<%s, %s>", p->wide ? "double" : "float",
                                    cuda_type(p->sum[i].dtype));
        if (!l->finish[i]) return TU_NO_MEMORY;
    }
    return TU_OK;
}

static int64_t count_results(const cuda_subkernel *p) {
    return p->sums == TU__COLUMN_SUMS ? p->groups * p->row : p->rows;
}

static tu_status plan_sums(tu__kernel *k, launch_plan *l) {
    const cuda_subkernel *p = l->subkernels;
    sum_tail t = {.rows = p->rows, .row_packs = (uint32_t)(p->row / p->width), .split = 1};
    if (p->sums == TU__COLUMN_SUMS && p->rows <= SINGLE_BLOCK_ROWS)
        plan_single_block(l, &t);
    else if (p->sums == TU__COLUMN_SUMS)
        plan_columns(k, l, &t);
    else
        plan_rows(k, l, &t);
    t.parts = (uint32_t)l->parts;
    for (uint32_t i = 0; i < p->sum_count; i++) t.divisor[i] = p->sum[i].divisor;
    int64_t results = count_results(p);
    if (l->parts > 1) k->workspace_bytes = (size_t)(l->parts * results * p->sum_count) * (p->wide ? 8 : 4);
    l->tail = cuda_subkernel_size(p);
    l->bytes = l->tail + sizeof t;
    l->arguments = tu__arena_alloc(&k->owner->arena, l->bytes);
    if (!l->arguments) return TU_NO_MEMORY;
    memcpy(l->arguments + l->tail, &t, sizeof t);
    l->function = request_sums(k->owner, p);
    return l->function ? request_finish(k->owner, l) : TU_NO_MEMORY;
}

static tu_status finish_sum(const tu__kernel *k, const launch_plan *l, uint32_t index) {
    const cuda_subkernel *p = l->subkernels;
    size_t element = p->wide ? 8 : 4;
    bool columns = p->sums == TU__COLUMN_SUMS;
    int64_t results = count_results(p);
    finish_sums_args a = {.partial = (char *)k->workspace +
                                     (size_t)(index * results * (columns ? 1 : l->parts)) * element,
                          .out = k->out[p->sum[index].out],
                          .results = results,
                          .parts = l->parts,
                          .result_stride = columns ? 1 : l->parts,
                          .part_stride = columns ? results * p->sum_count : 1,
                          .divisor = p->sum[index].divisor};
    cuda_grid grid = {.blocks = {(unsigned)((results + THREADS / WARP - 1) / (THREADS / WARP))},
                      .threads = THREADS};
    return cuda_launch(k, l->finish[index], grid, &a);
}

static tu_status run_sums(const tu__kernel *k, const launch_plan *l) {
    const cuda_subkernel *p = l->subkernels;
    _Alignas(16) unsigned char arguments[MAX_PARAMETERS];
    sum_tail t;
    memcpy(arguments, l->arguments, l->bytes);
    cuda_write_arguments(k, p, arguments);
    memcpy(&t, arguments + l->tail, sizeof t);
    t.partial = k->workspace;
    for (uint32_t i = 0; i < p->sum_count; i++) t.out[i] = k->out[p->sum[i].out];
    memcpy(arguments + l->tail, &t, sizeof t);
    TU_TRY(cuda_launch(k, l->function, l->grid, arguments));
    for (uint32_t i = 0; i < p->sum_count && l->parts > 1; i++) TU_TRY(finish_sum(k, l, i));
    return TU_OK;
}

tu__sum_kind cuda_sum_kind_of(const tu__cluster *c, tu_dtype dtype, tu__sum_form f, bool *splits_rows) {
    enum {
        MAX_COLUMNS = 1 << 16 /* wider sums are left to reduce.c */,
        MAX_GROUPS = 65535 /* blocks along z */
    };
    bool is_per_network = f.outer == c->s->graph->members && f.outer <= MAX_GROUPS;
    (void)dtype;
    *splits_rows = false;
    bool fits = f.outer * f.reduced * f.inner < INT32_MAX;
    if (f.inner == 1) return fits ? TU__ROW_SUMS : TU__NO_SUMS;
    return fits && (f.outer == 1 || is_per_network) && f.inner <= MAX_COLUMNS ? TU__COLUMN_SUMS : TU__NO_SUMS;
}

/* ---- Kernels without sums ---- */

static tu_status plan_single(tu__kernel *k, launch_plan *l) {
    const cuda_subkernel *p = l->subkernels;
    l->bytes = cuda_subkernel_size(p);
    l->arguments = tu__arena_alloc(&k->owner->arena, l->bytes);
    l->function = request_single(k->owner, p);
    l->grid = cuda_grid_for(k, p->packs);
    return l->arguments && l->function ? TU_OK : TU_NO_MEMORY;
}

/* The arguments start with three lists of u32: first block of each subkernel (and the end), offsets, programs. */
static size_t head_bytes(uint32_t count) {
    size_t bytes = (3 * (size_t)count + 1) * sizeof(uint32_t);
    return (bytes + 7) & ~(size_t)7;
}

static tu_status plan_many(tu__kernel *k, launch_plan *l) {
    size_t head = head_bytes(l->count), blob = 0;
    l->offsets = tu__arena_alloc(&k->owner->arena, l->count * sizeof *l->offsets);
    if (!l->offsets) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < l->count; i++) {
        l->offsets[i] = head + blob;
        blob += cuda_subkernel_size(&l->subkernels[i]);
    }
    l->bytes = head + blob;
    l->arguments = tu__arena_alloc(&k->owner->arena, l->bytes);
    if (!l->arguments) return TU_NO_MEMORY;
    uint32_t *first = (uint32_t *)(void *)l->arguments, *offset = first + l->count + 1,
             *program = offset + l->count;
    for (uint32_t i = 0; i < l->count; i++) {
        first[i + 1] = first[i] + blocks_for(l->subkernels[i].packs);
        offset[i] = (uint32_t)(l->offsets[i] - head);
        program[i] = program_of(l->subkernels, l->count, i);
    }
    l->grid = (cuda_grid){.blocks = {first[l->count]}, .threads = THREADS};
    l->function = request_horizontal(k->owner, l, blob);
    return l->function ? TU_OK : TU_NO_MEMORY;
}

static tu_status plan_launch(tu__kernel *k, launch_plan *l) {
    TU_TRY(l->count > 1 ? plan_many(k, l) : l->subkernels->sum_count ? plan_sums(k, l) : plan_single(k, l));
    if (l->bytes <= MAX_PARAMETERS) return TU_OK;
    return tu_fail(TU_UNSUPPORTED, "%s: the arguments of a fused kernel have %zu bytes: expected at most %d",
                   cuda_of(k)->name, l->bytes, MAX_PARAMETERS);
}

/* Returns how many of the following subkernels fit into one launch. */
static uint32_t count_fitting(const cuda_subkernel *subkernels, uint32_t count) {
    size_t bytes = 0;
    uint32_t fitting = 0;
    while (fitting < count &&
           (bytes += cuda_subkernel_size(&subkernels[fitting])) + head_bytes(fitting + 1) <= MAX_ARGUMENTS)
        fitting++;
    return fitting ? fitting : 1;
}

tu_status cuda_make_subkernel(tu__kernel *k, struct tu__cluster *c, void *subkernel) {
    k->flops += (int64_t)(c->member_count + c->sum_count) * tu_shape_elements(c->space);
    return cuda_write_program(k, c, NULL, subkernel);
}

tu_status cuda_finish_subkernels(tu__kernel *k, uint32_t count, void *data) {
    const cuda_subkernel *subkernels = data;
    fused *d = tu__kernel_data(k, sizeof *d);
    if (!d) return TU_NO_MEMORY;
    d->launches = tu__arena_alloc(&k->owner->arena, count * sizeof *d->launches);
    if (!d->launches) return TU_NO_MEMORY;
    for (uint32_t done = 0; done < count;) {
        launch_plan *l = &d->launches[d->count++];
        l->subkernels = subkernels + done;
        l->count = count_fitting(l->subkernels, count - done);
        TU_TRY(plan_launch(k, l));
        done += l->count;
    }
    return TU_OK;
}

static tu_status run_without_sums(const tu__kernel *k, const launch_plan *l) {
    _Alignas(16) unsigned char arguments[MAX_PARAMETERS];
    memcpy(arguments, l->arguments, l->bytes);
    for (uint32_t p = 0; p < l->count; p++)
        cuda_write_arguments(k, &l->subkernels[p], arguments + (l->count > 1 ? l->offsets[p] : 0));
    return cuda_launch(k, l->function, l->grid, arguments);
}

tu_status cuda_run_pointwise(const tu__kernel *k) {
    const fused *d = k->data;
    for (uint32_t i = 0; i < d->count; i++) {
        const launch_plan *l = &d->launches[i];
        TU_TRY(l->subkernels->sum_count ? run_sums(k, l) : run_without_sums(k, l));
    }
    return TU_OK;
}
