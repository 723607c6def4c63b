/* Parses .npy files. See npy.h.
 *
 * The header is a dictionary literal, {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }, written
 * by NumPy and a few other programs. The parser accepts only this form: the three keys in any order, strings in
 * single or double quotes, and no expressions. */
#include "data/npy.h"

#include <string.h>

enum { MAGIC = 6, MAX_HEADER = 1 << 16 };

static const struct npy_type {
    const char *name; /* without the byte-order character */
    size_t bytes;
    bool integer;
} types[TU__NPY_TYPE_COUNT] = {
    [TU__NPY_U1] = {"u1", 1, true}, [TU__NPY_I1] = {"i1", 1, true},  [TU__NPY_I4] = {"i4", 4, true},
    [TU__NPY_I8] = {"i8", 8, true}, [TU__NPY_F4] = {"f4", 4, false}, [TU__NPY_F8] = {"f8", 8, false},
};

/* Parser state. */
typedef struct reader {
    const char *name; /* file name, for messages */
    const char *at, *end;
} reader;

static tu_status corrupt(const char *name, const char *what) {
    return tu_fail(TU_CORRUPT, "'%s' is not a valid .npy file: %s", name, what);
}

/* ---- Tokens ---- */

static void skip_spaces(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t')) r->at++;
}

static bool accept(reader *r, char c) {
    skip_spaces(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static bool accept_word(reader *r, const char *word) {
    size_t length = strlen(word);
    skip_spaces(r);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return false;
    r->at += length;
    return true;
}

/* Reads a quoted string without escapes, of at most 15 characters. */
static bool read_string(reader *r, char string[16]) {
    char quote = accept(r, '\'') ? '\'' : accept(r, '"') ? '"' : '\0';
    size_t length = 0;
    if (!quote) return false;
    while (r->at < r->end && *r->at != quote && *r->at != '\\' && length < 15) string[length++] = *r->at++;
    string[length] = '\0';
    return accept(r, quote);
}

static bool read_integer(reader *r, int64_t *integer) {
    skip_spaces(r);
    if (r->at == r->end || *r->at < '0' || *r->at > '9') return false;
    for (*integer = 0; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (__builtin_mul_overflow(*integer, 10, integer) ||
            __builtin_add_overflow(*integer, *r->at - '0', integer))
            return false;
    if (r->at < r->end && *r->at == 'L') r->at++; /* Python 2's suffix of long integers */
    return true;
}

/* ---- Values ---- */

static tu_status read_type(reader *r, tu__npy *npy) {
    char text[16];
    if (!read_string(r, text)) return corrupt(r->name, "'descr' is not a plain type");
    for (int i = 0; i < TU__NPY_TYPE_COUNT; i++) {
        bool byte_order_matches = text[0] == '<' || text[0] == '=' || (text[0] == '|' && types[i].bytes == 1);
        if (!byte_order_matches || strcmp(text + 1, types[i].name) != 0) continue;
        npy->type = (tu__npy_type)i;
        return TU_OK;
    }
    return tu_fail(TU_UNSUPPORTED,
                   "'%s' has elements of type '%s': expected u1, i1, i4, i8, f4 or f8, little-endian",
                   r->name, text);
}

static tu_status read_order(reader *r) {
    if (accept_word(r, "False")) return TU_OK;
    if (accept_word(r, "True"))
        return tu_fail(TU_UNSUPPORTED,
                       "'%s' is in Fortran order: expected C order; save numpy.ascontiguousarray(x)",
                       r->name);
    return corrupt(r->name, "'fortran_order' is neither True nor False");
}

static tu_status read_shape(reader *r, tu__npy *npy) {
    if (!accept(r, '(')) return corrupt(r->name, "'shape' is not a tuple");
    npy->rank = 0;
    npy->elements = 1;
    while (!accept(r, ')')) {
        int64_t dim;
        if (npy->rank == TU__NPY_MAX_RANK || !read_integer(r, &dim) ||
            __builtin_mul_overflow(npy->elements, dim, &npy->elements))
            return corrupt(r->name, "'shape' is not a list of sizes");
        npy->dim[npy->rank++] = dim;
        if (!accept(r, ',') && (r->at == r->end || *r->at != ')'))
            return corrupt(r->name, "'shape' is not terminated");
    }
    return TU_OK;
}

static tu_status read_dictionary(reader *r, tu__npy *npy) {
    bool has_type = false, has_order = false, has_shape = false;
    if (!accept(r, '{')) return corrupt(r->name, "its header is not a dictionary");
    while (!accept(r, '}')) {
        char key[16];
        if (!read_string(r, key) || !accept(r, ':'))
            return corrupt(r->name, "its header is not a dictionary");
        bool *seen = strcmp(key, "descr") == 0           ? &has_type
                     : strcmp(key, "fortran_order") == 0 ? &has_order
                     : strcmp(key, "shape") == 0         ? &has_shape
                                                         : NULL;
        if (!seen || *seen) return corrupt(r->name, "its header has a duplicate or unknown key");
        *seen = true;
        TU_TRY(seen == &has_type    ? read_type(r, npy)
               : seen == &has_order ? read_order(r)
                                    : read_shape(r, npy));
        skip_spaces(r);
        if (!accept(r, ',') && (r->at == r->end || *r->at != '}'))
            return corrupt(r->name, "its header is not a dictionary");
    }
    if (!has_type || !has_order || !has_shape)
        return corrupt(r->name, "its header lacks descr, fortran_order or shape");
    return TU_OK;
}

/* ---- The file ---- */

/* Finds the dictionary: after a 2-byte length in version 1, a 4-byte length in versions 2 and 3. */
static tu_status find_header(const char *name, const unsigned char *bytes, size_t size, size_t *begin,
                             size_t *length) {
    static const unsigned char magic[MAGIC] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    if (size < MAGIC + 2 || memcmp(bytes, magic, MAGIC) != 0)
        return corrupt(name, "it does not start with the magic bytes of .npy");
    if (bytes[6] < 1 || bytes[6] > 3)
        return tu_fail(TU_UNSUPPORTED, "'%s' is a .npy file of version %d: expected 1 to 3", name, bytes[6]);
    size_t field = bytes[6] == 1 ? 2 : 4;
    *begin = MAGIC + 2 + field;
    if (size < *begin) return corrupt(name, "it ends inside its header");
    *length = 0;
    for (size_t i = 0; i < field; i++) *length |= (size_t)bytes[MAGIC + 2 + i] << 8 * i;
    if (*length > MAX_HEADER || *length > size - *begin) return corrupt(name, "it ends inside its header");
    return TU_OK;
}

tu_status tu__npy_parse(const char *name, const void *bytes, size_t size, tu__npy *npy) {
    size_t begin = 0, length = 0;
    *npy = (tu__npy){0};
    TU_TRY(find_header(name, bytes, size, &begin, &length));
    const char *text = (const char *)bytes + begin;
    TU_TRY(read_dictionary(&(reader){name, text, text + length}, npy));
    int64_t expected;
    if (__builtin_mul_overflow(npy->elements, (int64_t)types[npy->type].bytes, &expected) ||
        (size_t)expected != size - begin - length)
        return tu_fail(
            TU_CORRUPT,
            "'%s' is truncated or damaged: it has %zu bytes of elements, but its shape needs %lld elements of %zu bytes",
            name, size - begin - length, (long long)npy->elements, types[npy->type].bytes);
    npy->data = (const unsigned char *)text + length;
    return TU_OK;
}

bool tu__npy_is_integer(tu__npy_type type) {
    return types[type].integer;
}

double tu__npy_number(const tu__npy *npy, int64_t index) {
    const unsigned char *p = npy->data + (size_t)index * types[npy->type].bytes;
    float f4;
    double f8;
    switch (npy->type) {
    case TU__NPY_F4: memcpy(&f4, p, sizeof f4); return f4;
    case TU__NPY_F8: memcpy(&f8, p, sizeof f8); return f8;
    default: return (double)tu__npy_integer(npy, index);
    }
}

int64_t tu__npy_integer(const tu__npy *npy, int64_t index) {
    const unsigned char *p = npy->data + (size_t)index * types[npy->type].bytes;
    int32_t i4;
    int64_t i8;
    switch (npy->type) {
    case TU__NPY_U1: return *p;
    case TU__NPY_I1: return (int8_t)*p;
    case TU__NPY_I4: memcpy(&i4, p, sizeof i4); return i4;
    case TU__NPY_I8: memcpy(&i8, p, sizeof i8); return i8;
    default: return 0;
    }
}
