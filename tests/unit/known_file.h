/* Reads files of known values; tests/data/generate_known_values.py writes them and describes their format.
 *
 *     known_reader reader = {.at = text};
 *     known_case c;
 *     while (known_next(&reader, &c)) { …; known_free(&c); }
 *     if (reader.problem[0]) … */
#ifndef TESTS_UNIT_KNOWN_FILE_H
#define TESTS_UNIT_KNOWN_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/types.h>

enum { KNOWN_WORD = 40, KNOWN_VALUES = 8, KNOWN_ATTRS = 12, KNOWN_TENSORS = 40, KNOWN_ELEMENTS = 100000 };

typedef struct known_attr {
    char name[KNOWN_WORD];
    int count;
    char values[KNOWN_VALUES][KNOWN_WORD];
    bool used;
} known_attr;

typedef struct known_tensor {
    char role[KNOWN_WORD], name[KNOWN_WORD]; /* "input" "x" */
    tu_type type;
    double *data;
    bool used;
} known_tensor;

typedef struct known_case {
    char kind[KNOWN_WORD], variant[KNOWN_WORD];
    int attr_count, tensor_count;
    known_attr attrs[KNOWN_ATTRS];
    known_tensor tensors[KNOWN_TENSORS];
} known_case;

typedef struct known_reader {
    const char *at;
    char problem[200]; /* "" if there was no error */
} known_reader;

static inline void known_free(known_case *c) {
    for (int i = 0; i < c->tensor_count; i++) free(c->tensors[i].data);
    c->tensor_count = 0;
}

/* Reads a line without its newline and advances the reader. Skips empty lines and comments. */
static inline bool known_line(known_reader *r, char *line, size_t capacity) {
    for (;;) {
        size_t length = strcspn(r->at, "\n");
        bool skipped = length == 0 || *r->at == '#';
        if (skipped && !r->at[length]) return false;
        if (!skipped && length < capacity) {
            memcpy(line, r->at, length);
            line[length] = '\0';
            r->at += length + (r->at[length] == '\n');
            return true;
        }
        if (!skipped) {
            snprintf(r->problem, sizeof r->problem, "a line of %zu characters where a word was expected",
                     length);
            return false;
        }
        r->at += length + 1;
    }
}

/* Parses "2x3x4" or "scalar". */
static inline bool known_shape(const char *text, tu_shape *shape) {
    *shape = (tu_shape){0};
    if (strcmp(text, "scalar") == 0) return true;
    for (;;) {
        char *end;
        long long dimension = strtoll(text, &end, 10);
        if (end == text || dimension < 1 || dimension > KNOWN_ELEMENTS || shape->rank == TU_MAX_RANK)
            return false;
        shape->dim[shape->rank++] = dimension;
        if (tu_shape_elements(*shape) > KNOWN_ELEMENTS) return false;
        if (*end == '\0') return true;
        if (*end != 'x') return false;
        text = end + 1;
    }
}

static inline bool known_attr_line(known_reader *r, known_case *c, const char *line) {
    known_attr attr = {0};
    int used = 0, step;
    sscanf(line, "attr %39s%n", attr.name, &used);
    for (; used && attr.count < KNOWN_VALUES &&
           sscanf(line + used, "%39s%n", attr.values[attr.count], &step) == 1;
         used += step)
        attr.count++;
    if (attr.count == 0 || c->attr_count == KNOWN_ATTRS) {
        snprintf(r->problem, sizeof r->problem, "%s %s: cannot read '%.80s'", c->kind, c->variant, line);
        return false;
    }
    c->attrs[c->attr_count++] = attr;
    return true;
}

static inline bool known_tensor_line(known_reader *r, known_case *c, const char *line) {
    known_tensor t = {0};
    char dtype[KNOWN_WORD], shape[KNOWN_WORD];
    bool valid = sscanf(line, "%39s %39s %39s %39s", t.role, t.name, dtype, shape) == 4 &&
                 c->tensor_count < KNOWN_TENSORS && tu_dtype_parse(dtype, &t.type.dtype) == TU_OK &&
                 (t.type.dtype == TU_F64 || t.type.dtype == TU_I64) && known_shape(shape, &t.type.shape);
    int64_t count = valid ? tu_shape_elements(t.type.shape) : 0;
    t.data = calloc((size_t)count + 1, sizeof *t.data);
    valid = valid && t.data;
    for (int64_t i = 0; valid && i < count; i++) {
        char *end;
        t.data[i] = strtod(r->at, &end);
        valid = end != r->at && strchr(" \n", *end) != NULL;
        r->at = end;
    }
    if (!valid) {
        snprintf(r->problem, sizeof r->problem, "%s %s: cannot read '%.80s'", c->kind, c->variant, line);
        free(t.data);
        return false;
    }
    r->at += strspn(r->at, " \n");
    c->tensors[c->tensor_count++] = t;
    return true;
}

/* Reads the next case. Returns false at the end of the text and on errors. */
static inline bool known_next(known_reader *r, known_case *c) {
    char line[256];
    memset(c, 0, sizeof *c);
    if (!known_line(r, line, sizeof line)) return false;
    if (sscanf(line, "case %39s %39s", c->kind, c->variant) != 2) {
        snprintf(r->problem, sizeof r->problem, "'%.80s' where a case was expected", line);
        return false;
    }
    for (;;) {
        const char *before = r->at;
        if (!known_line(r, line, sizeof line)) break;
        if (strncmp(line, "case ", 5) == 0) {
            r->at = before;
            break;
        }
        bool attr = strncmp(line, "attr ", 5) == 0;
        if (!(attr ? known_attr_line(r, c, line) : known_tensor_line(r, c, line))) break;
    }
    if (!r->problem[0]) return true;
    known_free(c);
    return false;
}

#endif
