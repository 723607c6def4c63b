/* Compiles a cluster of nodes into a program over tiles: how operands are accessed, which slots values use, how long
 * a tile is.
 *
 * Axes are merged as far as all operands allow, so that common shapes have one axis (nothing is broadcast) or two (a
 * row or a column is). Dense operands are read from their buffers, or converted; scalars, and rows that every tile
 * repeats, are expanded once per range.
 *
 * Registers are allocated by a linear scan over the steps: a value has its register from the step that computes it
 * to the last step that uses it, and a result may use the register of an operand that ends there. With fewer
 * registers, longer tiles fit the L1 cache.
 *
 * A result may reuse the memory of an operand of the same size that is read at the same positions, if no later step
 * of the tile reads the operand. */
#include "device/cpu/pointwise.h"

#include <string.h>

#include "device/cpu/ranges.h"
#include "graph/walk.h"

enum {
    SCRATCH_BYTES = 24 << 10, /* registers per worker: most of an L1 cache */
    MAX_TILE = 2048,
    MIN_TILE = 256,
    REGISTER_STEP = 2048, /* bytes; half a page */
    GRAIN_WORK = 1 << 15, /* minimum element operations per thread */
    SUM_BLOCK_ELEMENTS =
        1 << 12, /* approximate elements per block of rows that are summed along themselves */
    NO_USE = -1,
    NEVER_RELEASED = 1 << 30,
};

/* A value of the program: an operand, a number or a member. */
typedef struct value {
    int32_t last_use; /* index of the step; the number of steps: it is stored at the end */
    uint16_t slot;
} value;

typedef struct program {
    tu__kernel *k;
    tu__cluster *c;
    cpu_subkernel *subkernel;
    tu_shape space; /* with merged axes */
    value values[CPU_MAX_OPERANDS + TU__MAX_CLUSTER_NODES];
    tu__operand operands[CPU_MAX_OPERANDS]; /* distinct loads and numbers */
    cpu_load loads[CPU_MAX_OPERANDS];       /* per operand; access is set only for loads */
    uint32_t operand_count;
    uint32_t inputs[TU__MAX_CLUSTER_NODES][3]; /* per member: values */
    uint32_t alias[TU__MAX_CLUSTER_NODES];     /* per member: the value that it equals, if it needs no step */
    bool busy[CPU_MAX_OPERANDS + TU__MAX_CLUSTER_NODES]; /* registers in use */
    /* Slots so far: registers, and slots in buffers (numbered after the registers). */
    uint16_t registers, buffer_slots;
    bool in_buffer[CPU_MAX_OPERANDS + TU__MAX_CLUSTER_NODES]; /* per value: its slot is in a buffer */
} program;

static tu_dtype computing_type(const tu__cluster *c) {
    return c->wide ? TU_F64 : TU_F32;
}

/* ---- Operands ---- */

static bool same_operand(const tu__operand *a, const tu__operand *b) {
    if (a->kind != b->kind) return false;
    if (a->kind == TU__NUMBER) return memcmp(&a->number, &b->number, sizeof a->number) == 0;
    return a->value.node == b->value.node && a->value.output == b->value.output &&
           tu_shape_equal(a->type.shape, b->type.shape);
}

static uint32_t value_of_member(const program *p, tu__edge member) {
    uint32_t i = 0;
    while (p->c->members[i]->id != member.node) i++;
    return p->alias[i] != TU__NONE ? p->alias[i] : CPU_MAX_OPERANDS + i;
}

/* Returns the index of the value that an input is; adds new operands. */
static uint32_t find_value(program *p, tu__edge input) {
    tu__operand operand = tu__classify_operand(p->c, input);
    if (operand.kind == TU__MEMBER) return value_of_member(p, operand.value);
    for (uint32_t i = 0; i < p->operand_count; i++)
        if (same_operand(&p->operands[i], &operand)) return i;
    p->operands[p->operand_count] = operand;
    return p->operand_count++;
}

/* True if the result of this operation on numbers of a float type is exactly representable in that type. */
static bool keeps_type(tu__opcode op) {
    switch (op) {
    case TU__OP_NEG:
    case TU__OP_ABS:
    case TU__OP_SIGN:
    case TU__OP_RELU:
    case TU__OP_RELU_GRAD:
    case TU__OP_SELECT:
    case TU__OP_MAXIMUM:
    case TU__OP_MINIMUM:
    case TU__OP_FLOOR:
    case TU__OP_CEIL:
    case TU__OP_ROUND: return true;
    default: return false;
    }
}

/* True if every value of one type is exactly representable in the other. */
static bool is_exact_in(tu_dtype from, tu_dtype to) {
    if (from == to || from == TU_BOOL || to == TU_F64) return true;
    return to == TU_F32 && (from == TU_BF16 || from == TU_F16 || from == TU_U8 || from == TU_I8);
}

/* Returns the type that a member's result must be rounded to; TU_DTYPE_COUNT: none. */
static tu_dtype rounding_of(const program *p, const tu__node *node) {
    tu_dtype dtype = node->outputs[0].dtype;
    bool is_cast = node->op->code == TU__OP_CAST;
    if (dtype == computing_type(p->c)) return TU_DTYPE_COUNT;
    if (is_cast && is_exact_in(tu__type_of(p->c->s, node->inputs[0])->dtype, dtype)) return TU_DTYPE_COUNT;
    if (!is_cast && (dtype == TU_BOOL || (keeps_type(node->op->code) && tu_dtype_is_float(dtype))))
        return TU_DTYPE_COUNT;
    return dtype;
}

/* True for casts to a wider type, which change nothing: the member equals its input. */
static bool is_no_op(const program *p, const tu__node *node) {
    return node->op->code == TU__OP_CAST && rounding_of(p, node) == TU_DTYPE_COUNT;
}

static bool needs_store(const program *p, uint32_t member) {
    return p->c->stored[member] || p->c->summed[member];
}

static void find_operands(program *p) {
    for (uint32_t i = 0; i < p->c->member_count; i++) {
        const tu__node *node = p->c->members[i];
        p->alias[i] = TU__NONE;
        for (uint32_t k = 0; k < node->input_count; k++) p->inputs[i][k] = find_value(p, node->inputs[k]);
        if (is_no_op(p, node) && !needs_store(p, i)) p->alias[i] = p->inputs[i][0];
    }
}

/* ---- Merging axes ---- */

static bool axes_merge(const program *p, int64_t outer, int64_t inner, int64_t size) {
    for (uint32_t i = 0; i < p->operand_count; i++)
        if (p->loads[i].stride[outer] != p->loads[i].stride[inner] * size) return false;
    return true;
}

static void copy_axis(program *p, int64_t from, int64_t to) {
    for (uint32_t i = 0; i < p->operand_count; i++) p->loads[i].stride[to] = p->loads[i].stride[from];
}

static void merge_axes(program *p) {
    tu_shape space = p->c->space;
    int64_t rank = 0, remaining = tu_shape_elements(space); /* elements of the remaining axes */
    for (uint32_t i = 0; i < p->operand_count; i++)
        if (p->operands[i].kind == TU__LOAD)
            tu__broadcast_strides(p->operands[i].type.shape, space, p->loads[i].stride);
    for (int64_t axis = 0; axis < space.rank; axis++) {
        int64_t size = space.dim[axis];
        if (size == 1) continue;
        remaining /= size;
        if (rank && remaining * size != p->c->sum_row && axes_merge(p, rank - 1, axis, size)) {
            p->space.dim[rank - 1] *= size;
            copy_axis(p, axis, rank - 1);
            continue;
        }
        p->space.dim[rank] = size;
        copy_axis(p, axis, rank++);
    }
    if (rank == 0) p->space.dim[rank++] = 1; /* a scalar */
    p->space.rank = rank;
}

/* ---- Access of operands ---- */

static bool is_dense(const program *p, const cpu_load *load) {
    int64_t dense[TU_MAX_RANK];
    tu__strides(p->space, dense);
    for (int64_t i = 0; i < p->space.rank; i++)
        if (load->stride[i] != dense[i] && p->space.dim[i] > 1) return false;
    return true;
}

static bool repeats_rows(const program *p, const cpu_load *load) {
    for (int64_t i = 0; i < p->space.rank - 1; i++)
        if (load->stride[i] != 0) return false;
    return true;
}

/* `within_rows`: tiles are within rows. */
static cpu_access access_of(const program *p, const cpu_load *load, bool within_rows) {
    bool computing = load->dtype == computing_type(p->c), steps = load->stride[p->space.rank - 1] != 0;
    if (is_dense(p, load)) return computing ? CPU_DIRECT : CPU_CONVERT;
    if (repeats_rows(p, load) && (!within_rows || !steps)) return CPU_ONCE;
    return within_rows && steps && computing ? CPU_ROW : CPU_WALK;
}

static void find_accesses(program *p, bool within_rows) {
    for (uint32_t i = 0; i < p->operand_count; i++) {
        cpu_load *load = &p->loads[i];
        if (p->operands[i].kind != TU__LOAD) continue;
        load->dtype = p->operands[i].type.dtype;
        load->access = access_of(p, load, within_rows);
    }
}

/* ---- Slots ---- */

static bool stored_directly(const program *p, uint32_t member) {
    return needs_store(p, member) && p->c->members[member]->outputs[0].dtype == computing_type(p->c);
}

static void find_last_uses(program *p) {
    for (uint32_t i = 0; i < CPU_MAX_OPERANDS + TU__MAX_CLUSTER_NODES; i++) p->values[i].last_use = NO_USE;
    for (uint32_t i = 0; i < p->c->member_count; i++) {
        for (uint32_t k = 0; k < p->c->members[i]->input_count && p->alias[i] == TU__NONE; k++)
            p->values[p->inputs[i][k]].last_use = (int32_t)i;
    }
    for (uint32_t i = 0; i < p->operand_count; i++)
        if (p->operands[i].kind == TU__NUMBER || p->loads[i].access == CPU_ONCE)
            p->values[i].last_use = NEVER_RELEASED;
    for (uint32_t i = 0; i < p->c->member_count; i++)
        if (needs_store(p, i)) p->values[CPU_MAX_OPERANDS + i].last_use = (int32_t)p->c->member_count;
}

static void allocate_register(program *p, uint32_t v) {
    uint16_t slot = 0;
    while (p->busy[slot]) slot++;
    p->busy[slot] = true;
    p->values[v].slot = slot;
    if (slot >= p->registers) p->registers = (uint16_t)(slot + 1);
}

static void allocate_buffer_slot(program *p, uint32_t v) {
    p->in_buffer[v] = true;
    p->values[v].slot = p->buffer_slots++;
}

/* Frees the registers of values whose last use is this step. */
static void release_after(program *p, int32_t step) {
    for (uint32_t v = 0; v < CPU_MAX_OPERANDS + p->c->member_count; v++)
        if (p->values[v].last_use == step && !p->in_buffer[v]) p->busy[p->values[v].slot] = false;
}

static void assign_slots(program *p) {
    memset(p->busy, 0, sizeof p->busy);
    memset(p->in_buffer, 0, sizeof p->in_buffer);
    p->registers = p->buffer_slots = 0;
    for (uint32_t i = 0; i < p->operand_count; i++) {
        bool number = p->operands[i].kind == TU__NUMBER;
        if (!number && (p->loads[i].access == CPU_DIRECT || p->loads[i].access == CPU_ROW))
            allocate_buffer_slot(p, i);
        else
            allocate_register(p, i);
    }
    for (uint32_t i = 0; i < p->c->member_count; i++) {
        if (p->alias[i] != TU__NONE) continue;
        release_after(p, (int32_t)i); /* the result may overwrite inputs that end here */
        if (stored_directly(p, i))
            allocate_buffer_slot(p, CPU_MAX_OPERANDS + i);
        else
            allocate_register(p, CPU_MAX_OPERANDS + i);
    }
}

/* ---- The length of a tile ---- */

/* Returns a power of two: registers and operands then have the same offset within their pages, or half a page apart.
 * Otherwise a load slightly ahead of an earlier store, compared by the offset within a page, could stall (4K
 * aliasing). */
static int64_t tile_length(const program *p) {
    int64_t size = p->c->wide ? 8 : 4, length = MAX_TILE;
    while (length > MIN_TILE && length * size * p->registers > SCRATCH_BYTES) length /= 2;
    return length;
}

/* Slots depend on whether tiles are within rows, which depends on the length of tiles, which depends on the slots:
 * so the first guess is checked once. */
static void choose_tiles(program *p) {
    cpu_subkernel *subkernel = p->subkernel;
    subkernel->rank = (int)p->space.rank;
    memcpy(subkernel->dim, p->space.dim, sizeof subkernel->dim);
    subkernel->count = tu_shape_elements(p->space);
    subkernel->row = p->space.dim[p->space.rank - 1];
    subkernel->sum_row = p->c->sum_row;
    bool within_rows = p->space.rank == 1 || subkernel->row >= MAX_TILE;
    find_accesses(p, within_rows);
    find_last_uses(p);
    assign_slots(p);
    int64_t length = tile_length(p);
    if (!within_rows && subkernel->row > length / 2) { /* a tile would have only one row */
        within_rows = true;
        find_accesses(p, within_rows);
        find_last_uses(p);
        assign_slots(p);
        length = tile_length(p);
    }
    if (within_rows) {
        subkernel->tile = subkernel->row < length ? subkernel->row : length;
        subkernel->row_tiles = (subkernel->row + subkernel->tile - 1) / subkernel->tile;
        subkernel->tiles = subkernel->count / subkernel->row * subkernel->row_tiles;
    } else {
        int64_t rows = subkernel->count / subkernel->row, rows_per_tile = length / subkernel->row;
        if (rows_per_tile > rows) rows_per_tile = rows;
        subkernel->tile = rows_per_tile * subkernel->row;
        subkernel->row_tiles = 0;
        subkernel->tiles = (rows + rows_per_tile - 1) / rows_per_tile;
    }
}

/* ---- Generating the program ---- */

static uint16_t slot_of(const program *p, uint32_t v) {
    return (uint16_t)(p->values[v].slot + (p->in_buffer[v] ? p->registers : 0));
}

static tu_status write_loads(program *p) {
    cpu_subkernel *subkernel = p->subkernel;
    for (uint32_t i = 0; i < p->operand_count; i++) {
        if (p->operands[i].kind == TU__NUMBER) {
            subkernel->numbers[subkernel->number_count++] =
                (cpu_number){slot_of(p, i), p->operands[i].number};
            continue;
        }
        cpu_load *load = &p->loads[i];
        load->slot = slot_of(p, i);
        load->in = p->k->read_count;
        TU_TRY(tu__kernel_read(p->k, p->operands[i].value));
        p->k->bytes_moved += (int64_t)tu_type_bytes(p->operands[i].type);
        subkernel->loads[subkernel->load_count++] = *load;
    }
    return TU_OK;
}

static void set_parameters(const tu__node *node, cpu_step *step) {
    const tu__op *op = node->op;
    const double *words = node->attrs;
    bool numbers = op->attr_count && op->attrs[0].kind == TU__ATTR_F64;
    step->a = numbers ? words[0] : 0;
    step->b = numbers && op->attr_count > 1 ? words[1] : 0;
}

/* True if a later step reads the result. A result that is only stored is rounded by the store. */
static bool used_by_steps(const program *p, uint32_t member) {
    for (uint32_t i = member + 1; i < p->c->member_count; i++)
        for (uint32_t k = 0; k < p->c->members[i]->input_count; k++)
            if (p->inputs[i][k] == CPU_MAX_OPERANDS + member) return true;
    return false;
}

/* True if the member is a select with a scalar condition whose first operand the previous step computes for it only,
 * like a guard between the next and the current value of a variable. */
static bool select_can_be_skipped(const program *p, uint32_t member, const cpu_step *step) {
    const cpu_subkernel *subkernel = p->subkernel;
    if (step->op != TU__OP_SELECT || !subkernel->step_count) return false;
    uint32_t condition = p->inputs[member][0], first = p->inputs[member][1];
    bool scalar = condition < CPU_MAX_OPERANDS && p->operands[condition].kind == TU__LOAD &&
                  tu_shape_elements(p->operands[condition].type.shape) == 1;
    return scalar && first >= CPU_MAX_OPERANDS && p->values[first].last_use == (int32_t)member &&
           p->inputs[member][2] != first && subkernel->steps[subkernel->step_count - 1].out == step->y;
}

static void write_steps(program *p) {
    for (uint32_t i = 0; i < p->c->member_count; i++) {
        const tu__node *node = p->c->members[i];
        if (p->alias[i] != TU__NONE) continue;
        cpu_step step = {.op = node->op->code, .rounded = rounding_of(p, node)};
        step.x = slot_of(p, p->inputs[i][0]);
        step.y = node->input_count > 1 ? slot_of(p, p->inputs[i][1]) : step.x;
        step.z = node->input_count > 2 ? slot_of(p, p->inputs[i][2]) : step.x;
        step.out = slot_of(p, CPU_MAX_OPERANDS + i);
        if (!used_by_steps(p, i)) step.rounded = TU_DTYPE_COUNT;
        step.can_skip_select = select_can_be_skipped(p, i, &step);
        set_parameters(node, &step);
        p->subkernel->steps[p->subkernel->step_count++] = step;
    }
}

/* Returns the load whose memory the member's result may reuse; -1: none. Each load is used once. The new value of a
 * variable preferably reuses the variable's memory. */
static int find_in_place_load(program *p, uint32_t member, bool *reused) {
    const tu__node *node = p->c->members[member];
    size_t size = tu_dtype_size(node->outputs[0].dtype);
    uint32_t variable = p->c->s->plan->assigned[node->id], load = 0, chosen = TU__NONE;
    int in_place = -1;
    for (uint32_t i = 0; i < p->operand_count; i++) {
        if (p->operands[i].kind != TU__LOAD) continue;
        const cpu_load *l = &p->subkernel->loads[load++];
        bool dense = l->access == CPU_DIRECT || l->access == CPU_CONVERT,
             is_variable = p->operands[i].value.node == variable;
        if (!dense || reused[i] || tu_dtype_size(l->dtype) != size || (in_place >= 0 && !is_variable))
            continue;
        if (l->access == CPU_DIRECT && stored_directly(p, member) && p->values[i].last_use > (int32_t)member)
            continue;
        chosen = i;
        in_place = (int)l->in;
    }
    if (in_place >= 0) reused[chosen] = true;
    return in_place;
}

static tu_status write_stores(program *p) {
    bool reused[CPU_MAX_OPERANDS] = {false};
    for (uint32_t i = 0; i < p->c->member_count; i++) {
        if (!needs_store(p, i)) continue;
        tu_type type = p->c->members[i]->outputs[0];
        cpu_store *store = &p->subkernel->stores[p->subkernel->store_count++];
        *store =
            (cpu_store){stored_directly(p, i), slot_of(p, CPU_MAX_OPERANDS + i), TU__NONE, type.dtype, 0};
        for (uint32_t n = 0; n < p->c->sum_count; n++)
            if (p->c->sum_members[n] == i) p->subkernel->sums[n].store = p->subkernel->store_count - 1;
        if (!p->c->stored[i]) continue;
        int in_place = find_in_place_load(p, i, reused);
        store->out = p->k->write_count;
        TU_TRY(tu__kernel_write(p->k, (tu__edge){p->c->members[i]->id, 0}, in_place));
        p->k->bytes_moved += (int64_t)tu_type_bytes(type);
    }
    return TU_OK;
}

static tu_status allocate_lists(program *p) {
    tu__arena *arena = &p->c->s->arena;
    cpu_subkernel *subkernel = p->subkernel;
    size_t operands = p->operand_count + 1, members = p->c->member_count;
    subkernel->loads = tu__arena_alloc(arena, operands * sizeof *subkernel->loads);
    subkernel->numbers = tu__arena_alloc(arena, operands * sizeof *subkernel->numbers);
    subkernel->steps = tu__arena_alloc(arena, members * sizeof *subkernel->steps);
    subkernel->stores = tu__arena_alloc(arena, members * sizeof *subkernel->stores);
    return subkernel->loads && subkernel->numbers && subkernel->steps && subkernel->stores ? TU_OK
                                                                                           : TU_NO_MEMORY;
}

/* ---- Sums ---- */

/* True for the sum of a norm: of the squares of a dense operand that is not stored, so that the loops of reductions
 * apply. */
static bool sums_squares(const cpu_subkernel *subkernel) {
    return subkernel->sum_kind == TU__ROW_SUMS && !subkernel->wide && subkernel->step_count == 1 &&
           subkernel->steps[0].op == TU__OP_SQUARE && subkernel->load_count == 1 &&
           subkernel->loads[0].access == CPU_DIRECT && subkernel->store_count == 1 &&
           subkernel->stores[0].out == TU__NONE && subkernel->stores[0].direct;
}

static tu_status write_sums(program *p) {
    cpu_subkernel *subkernel = p->subkernel;
    subkernel->sum_kind = p->c->sums;
    if (subkernel->sum_kind == TU__NO_SUMS) return TU_OK;
    bool columns = subkernel->sum_kind == TU__COLUMN_SUMS;
    subkernel->squares = sums_squares(subkernel);
    subkernel->sum_rows = subkernel->count / subkernel->sum_row;
    bool all_rows = columns && !p->c->splits_rows;
    subkernel->sum_grain = all_rows ? subkernel->sum_rows
                                    : cpu_grain(subkernel->sum_rows, subkernel->sum_row,
                                                columns ? cpu_sum_threads(p->c->s) : cpu_of(p->k)->threads);
    int64_t fit = SUM_BLOCK_ELEMENTS / subkernel->sum_row;
    subkernel->block_rows = columns ? CPU_SUM_BLOCK : fit < 1 ? 1 : fit > CPU_SUM_BLOCK ? CPU_SUM_BLOCK : fit;
    subkernel->sum_count = p->c->sum_count;
    for (uint32_t i = 0; i < subkernel->sum_count; i++) {
        const tu__node *node = p->c->sum_nodes[i];
        int64_t reduced = columns ? subkernel->sum_rows : subkernel->sum_row;
        subkernel->sums[i].divisor = node->op->code == TU__OP_MEAN ? (float)reduced : 1;
        subkernel->sums[i].out = p->k->write_count;
        TU_TRY(tu__kernel_write(p->k, (tu__edge){node->id, 0}, -1));
        p->k->bytes_moved += (int64_t)tu_type_bytes(node->outputs[0]);
    }
    return TU_OK;
}

static size_t reserve_scratch(cpu_subkernel *subkernel, size_t bytes) {
    size_t offset = subkernel->scratch_bytes;
    subkernel->scratch_bytes += cpu_round_up_to_line(bytes);
    return offset;
}

/* Scratch: registers, then blocks of rows to be summed, then sums. */
static void lay_out_scratch(cpu_subkernel *subkernel) {
    reserve_scratch(subkernel, subkernel->scratch_slots * subkernel->register_bytes);
    size_t block = (size_t)(subkernel->block_rows * subkernel->sum_row);
    for (uint32_t i = 0; i < subkernel->store_count; i++)
        if (subkernel->stores[i].out == TU__NONE)
            subkernel->stores[i].block =
                reserve_scratch(subkernel, block * tu_dtype_size(subkernel->stores[i].dtype));
    if (subkernel->sum_kind == TU__NO_SUMS) return;
    size_t sums =
        (size_t)(subkernel->sum_kind == TU__COLUMN_SUMS ? subkernel->sum_row : subkernel->block_rows) *
        sizeof(float);
    for (uint32_t i = 0; i < subkernel->sum_count; i++)
        subkernel->sums[i].partial = reserve_scratch(subkernel, sums);
    subkernel->extra_sums = reserve_scratch(subkernel, sums);
}

tu_status cpu_make_subkernel(tu__kernel *k, tu__cluster *c, void *memory) {
    cpu_subkernel *subkernel = memory;
    program p = {.k = k, .c = c, .subkernel = subkernel};
    *subkernel = (cpu_subkernel){.wide = c->wide};
    find_operands(&p);
    merge_axes(&p);
    choose_tiles(&p);
    TU_TRY(allocate_lists(&p));
    subkernel->scratch_slots = p.registers;
    size_t bytes = (size_t)subkernel->tile * (c->wide ? 8 : 4);
    subkernel->register_bytes = bytes > REGISTER_STEP / 2
                                    ? (bytes + REGISTER_STEP - 1) & ~(size_t)(REGISTER_STEP - 1)
                                    : cpu_round_up_to_line(bytes);
    subkernel->slots = (uint16_t)(p.registers + p.buffer_slots);
    TU_TRY(write_loads(&p));
    write_steps(&p);
    k->flops += (int64_t)(subkernel->step_count + c->sum_count) * subkernel->count;
    TU_TRY(write_stores(&p));
    TU_TRY(write_sums(&p));
    lay_out_scratch(subkernel);
    return TU_OK;
}

/* ---- The kernel ---- */

/* Returns the time of an operation on a vector, in additions. */
static int64_t weight_of(tu__opcode op) {
    switch (op) {
    case TU__OP_DIV:
    case TU__OP_SQRT:
    case TU__OP_RSQRT:
    case TU__OP_RECIPROCAL: return 3;
    case TU__OP_EXP:
    case TU__OP_EXPM1:
    case TU__OP_LOG:
    case TU__OP_LOG1P:
    case TU__OP_ERF:
    case TU__OP_TANH:
    case TU__OP_SIGMOID:
    case TU__OP_ELU:
    case TU__OP_GELU:
    case TU__OP_GELU_TANH:
    case TU__OP_SILU:
    case TU__OP_SOFTPLUS: return 8;
    case TU__OP_SIN:
    case TU__OP_COS:
    case TU__OP_TAN:
    case TU__OP_POW: return 20;
    default: return 1;
    }
}

static int64_t work_of(const cpu_subkernel *subkernel) {
    int64_t per_element = subkernel->load_count + subkernel->store_count;
    for (uint32_t i = 0; i < subkernel->step_count; i++)
        per_element += weight_of(subkernel->steps[i].op) * (subkernel->wide ? 4 : 1);
    return per_element * subkernel->count;
}

tu_status cpu_pointwise_finish(tu__kernel *k, uint32_t subkernel_count, void *memory) {
    cpu_subkernel *subkernels = memory;
    cpu_pointwise *d = tu__kernel_data(k, sizeof *d);
    if (!d) return TU_NO_MEMORY;
    *d = (cpu_pointwise){.subkernel_count = subkernel_count, .subkernels = subkernels};
    d->first_tile = tu__arena_alloc(&k->owner->arena, (subkernel_count + 1) * sizeof *d->first_tile);
    if (!d->first_tile) return TU_NO_MEMORY;
    int64_t work = 0;
    for (uint32_t i = 0; i < subkernel_count; i++) {
        const cpu_subkernel *subkernel = &subkernels[i];
        size_t bytes = subkernel->scratch_bytes;
        d->first_tile[i + 1] = d->first_tile[i] + subkernel->tiles;
        if (bytes > d->scratch_bytes) d->scratch_bytes = bytes;
        work += work_of(subkernel);
    }
    int64_t tiles = d->first_tile[subkernel_count], threads = cpu_of(k)->threads;
    int64_t tiles_per_thread = (tiles + threads - 1) / threads,
            min_tiles = GRAIN_WORK / (work / tiles + 1) + 1;
    d->grain = tiles_per_thread > min_tiles ? tiles_per_thread
                                            : min_tiles; /* at most one range per worker's scratch memory */
    k->workspace_bytes = d->scratch_bytes * (size_t)threads;
    if (subkernels->sum_kind != TU__NO_SUMS) k->run = cpu_run_with_sums;
    return TU_OK;
}
