/* The JSON writer inside the library: the public one (tutti/command.h), and writing into a growable text. */
#ifndef TU__BASE_JSON_H
#define TU__BASE_JSON_H

#include <tutti/command.h>

#include "base/shared.h"
#include "base/text.h"

/* As tu_json_string, for bytes of a given length that may contain NUL. */
void tu__json_bytes(tu_json *json, const char *key, const char *bytes, size_t length);

static inline bool tu__json_write_text(void *sink, const char *bytes, size_t length) {
    tu__text *text = sink;
    tu__text_append(text, bytes, length);
    return !text->failed;
}

static inline tu_json tu__json_to_text(tu__text *text) {
    return (tu_json){.write = tu__json_write_text, .sink = text};
}

#endif
