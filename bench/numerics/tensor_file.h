/* Writes tensors as a safetensors file (u64 length, JSON, data), for Python. */
#ifndef BENCH_NUMERICS_TENSOR_FILE_H
#define BENCH_NUMERICS_TENSOR_FILE_H

#include <stdio.h>

#include <tutti/types.h>

typedef struct named_tensor {
    const char *name; /* must not contain quotes or backslashes */
    tu_type type;     /* f32, f64 or i32 */
    const void *data;
} named_tensor;

static inline size_t write_header(FILE *f, size_t count, const named_tensor *tensors) {
    size_t length = 0, offset = 0;
    length += (size_t)fprintf(f, "{");
    for (size_t i = 0; i < count; i++) {
        const named_tensor *t = &tensors[i];
        const char *type = t->type.dtype == TU_F32 ? "F32" : t->type.dtype == TU_F64 ? "F64" : "I32";
        size_t bytes = tu_type_bytes(t->type);
        length += (size_t)fprintf(f, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", t->name, type);
        for (int64_t k = 0; k < t->type.shape.rank; k++)
            length += (size_t)fprintf(f, "%s%lld", k ? "," : "", (long long)t->type.shape.dim[k]);
        length += (size_t)fprintf(f, "],\"data_offsets\":[%zu,%zu]}", offset, offset + bytes);
        offset += bytes;
    }
    length += (size_t)fprintf(f, "}");
    for (; length % 8; length++) fputc(' ', f);
    return length;
}

/* Returns false if the file could not be written. */
static inline bool write_tensors(const char *path, size_t count, const named_tensor *tensors) {
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    unsigned char length[8] = {0};
    fwrite(length, 1, sizeof length, f);
    size_t header = write_header(f, count, tensors);
    for (size_t i = 0; i < count; i++) fwrite(tensors[i].data, 1, tu_type_bytes(tensors[i].type), f);
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(header >> (8 * i));
    rewind(f);
    fwrite(length, 1, sizeof length, f);
    bool ok = !ferror(f);
    return fclose(f) == 0 && ok;
}

#endif
