/* Writes arbitrary bytes and numbers as JSON. The output must be a well-formed string and a number, in valid UTF-8
 * without control characters. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static void require(bool condition) {
    if (!condition) abort();
}

/* Parses one JSON string; returns a pointer past its end. Accepts only the escapes that the writer uses. */
static const char *skip_string(const char *s) {
    require(*s++ == '"');
    while (*s != '"') {
        unsigned char c = (unsigned char)*s++;
        require(c >= 0x20);
        if (c != '\\') continue;
        require(*s && strchr("\"\\bfnrtu", *s));
        if (*s++ == 'u') {
            require(strspn(s, "0123456789abcdef") >= 4);
            s += 4;
        }
    }
    return s + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    double number = 0;
    memcpy(&number, data, size < sizeof number ? size : sizeof number);

    tu__text text = {0};
    tu_json json = tu__json_to_text(&text);
    tu_json_begin_array(&json, NULL);
    tu__json_bytes(&json, NULL, (const char *)data, size);
    tu_json_f64(&json, NULL, number);
    tu_json_end_array(&json);
    require(tu_json_finish(&json));

    /* The output must be valid UTF-8: the writer replaces invalid bytes by U+FFFD, so writing the output as a string
     * again must not add any. */
    require(text.data[0] == '[');
    const char *end = skip_string(text.data + 1);
    require(*end == ',');
    if (strncmp(end + 1, "null", 4) != 0) require(strtod(end + 1, NULL) == number);

    tu__text again = {0};
    tu_json second = tu__json_to_text(&again);
    tu__json_bytes(&second, NULL, text.data, text.length);
    size_t replacements = 0, replacements_again = 0;
    for (const char *s = text.data; (s = strstr(s, "\xEF\xBF\xBD")); s++) replacements++;
    for (const char *s = again.data; (s = strstr(s, "\xEF\xBF\xBD")); s++) replacements_again++;
    require(replacements == replacements_again);

    tu__text_free(&again);
    tu__text_free(&text);
    return 0;
}
