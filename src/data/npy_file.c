/* tu_npy_load and tu_npy_save: arrays in .npy files. npy.c parses their header. */
#include <inttypes.h>
#include <string.h>

#include <tutti/data.h>

#include "base/alloc.h"
#include "base/map_file.h"
#include "base/save.h"
#include "base/text.h"
#include "data/npy.h"

/* ---- Loading ---- */

static const tu_dtype dtypes[TU__NPY_TYPE_COUNT] = {
    [TU__NPY_U1] = TU_U8,  [TU__NPY_I1] = TU_I8,  [TU__NPY_I4] = TU_I32,
    [TU__NPY_I8] = TU_I64, [TU__NPY_F4] = TU_F32, [TU__NPY_F8] = TU_F64,
};

static tu_status copy_array(const char *path, const tu__npy *npy, tu_type *type, void **data) {
    *type = (tu_type){.dtype = dtypes[npy->type], .shape.rank = npy->rank};
    for (int i = 0; i < npy->rank; i++) type->shape.dim[i] = npy->dim[i];
    if (npy->elements == 0)
        return tu_fail(TU_INVALID, "'%s' has no elements: its shape is %s", path,
                       tu__shape_string(type->shape));
    size_t bytes = tu_type_bytes(*type);
    *data = tu__alloc(bytes, "an array");
    if (!*data) return TU_NO_MEMORY;
    memcpy(*data, npy->data, bytes);
    return TU_OK;
}

tu_status tu_npy_load(const char *path, tu_type *type, void **data) {
    tu__mapped_file file;
    tu__npy npy;
    *data = NULL;
    TU_TRY(tu__map_file(path, &file));
    tu_status status = tu__npy_parse(path, file.bytes ? file.bytes : "", file.size, &npy);
    if (status == TU_OK) status = copy_array(path, &npy, type, data);
    if (status == TU_OK) status = tu__check_mapping(&file, path);
    if (status != TU_OK) {
        tu__free(*data);
        *data = NULL;
    }
    tu__unmap_file(&file);
    return status;
}

/* ---- Saving ---- */

static const char *type_name(tu_dtype dtype) {
    switch (dtype) {
    case TU_F64: return "<f8";
    case TU_F16: return "<f2";
    case TU_I32: return "<i4";
    case TU_I64: return "<i8";
    case TU_U8: return "|u1";
    case TU_I8: return "|i1";
    case TU_BOOL: return "|b1";
    default: return "<f4"; /* f32, and bf16 */
    }
}

/* Appends magic bytes, version 1.0, the length of the dictionary and the dictionary, padded to a multiple of 64 bytes. */
static void append_header(tu_type type, tu__text *header) {
    enum { PREFIX = 10, ALIGNMENT = 64 };
    tu__text dictionary = {0};
    tu__text_printf(&dictionary, "{'descr': '%s', 'fortran_order': False, 'shape': (", type_name(type.dtype));
    for (int64_t i = 0; i < type.shape.rank; i++)
        tu__text_printf(&dictionary, "%s%" PRId64 "%s", i ? " " : "", type.shape.dim[i],
                        i + 1 < type.shape.rank || type.shape.rank == 1 ? "," : "");
    tu__text_printf(&dictionary, "), }");
    while (!dictionary.failed && (PREFIX + dictionary.length + 1) % ALIGNMENT != 0)
        tu__text_append(&dictionary, " ", 1);
    tu__text_append(&dictionary, "\n", 1);
    const char length[2] = {(char)(dictionary.length & 0xff), (char)(dictionary.length >> 8)};
    tu__text_append(header, "\x93NUMPY\x01\x00", 8);
    tu__text_append(header, length, sizeof length);
    tu__text_append(header, tu__text_string(&dictionary), dictionary.length);
    header->failed = header->failed || dictionary.failed;
    tu__text_free(&dictionary);
}

/* Appends bf16 elements as f32, some at a time. */
static void append_bf16(tu__save *save, const uint16_t *data, size_t count) {
    enum { CHUNK = 4096 };
    float numbers[CHUNK];
    for (size_t first = 0; first < count; first += CHUNK) {
        size_t size = count - first < CHUNK ? count - first : CHUNK;
        tu_f32_from_bf16(data + first, size, numbers);
        tu__save_append(save, numbers, size * sizeof *numbers);
    }
}

static tu_status save_array(const char *path, const tu__text *header, tu_type type, const void *data) {
    tu__save save;
    TU_TRY(tu__save_begin(&save, path));
    tu__save_append(&save, header->data, header->length);
    if (type.dtype == TU_BF16)
        append_bf16(&save, data, (size_t)tu_shape_elements(type.shape));
    else
        tu__save_append(&save, data, tu_type_bytes(type));
    return tu__save_commit(&save);
}

static tu_status check_array(const char *path, tu_type type, const void *data) {
    bool valid = (unsigned)type.dtype < TU_DTYPE_COUNT && type.shape.rank >= 0 &&
                 type.shape.rank <= TU_MAX_RANK && data;
    for (int64_t i = 0; valid && i < type.shape.rank; i++) valid = type.shape.dim[i] > 0;
    if (valid) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "cannot save '%s': expected an array with an element type, at most %d dimensions of at least 1, and data",
        path, TU_MAX_RANK);
}

tu_status tu_npy_save(const char *path, tu_type type, const void *data) {
    tu__text header = {0};
    TU_TRY(check_array(path, type, data));
    append_header(type, &header);
    tu_status status = header.failed ? TU_NO_MEMORY : save_array(path, &header, type, data);
    tu__text_free(&header);
    return status;
}
