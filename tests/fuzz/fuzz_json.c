/* Whatever bytes and numbers go in, the JSON writer's output must be one well-formed string and one number, in valid
 * UTF-8 without control characters. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static void require(bool condition) {
    if (!condition) abort();
}

/* One JSON string from `s`; returns what follows it. Only the forms the writer uses are accepted. */
static const char *read_string(const char *s) {
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

    /* Writing the output as a string again changes it only by escapes: were it not UTF-8, U+FFFD would appear. */
    require(text.data[0] == '[');
    const char *end = read_string(text.data + 1);
    require(*end == ',');
    if (strncmp(end + 1, "null", 4) != 0) require(strtod(end + 1, NULL) == number);

    tu__text again = {0};
    tu_json second = tu__json_to_text(&again);
    tu__json_bytes(&second, NULL, text.data, text.length);
    size_t marks = 0, marks_again = 0;
    for (const char *s = text.data; (s = strstr(s, "\xEF\xBF\xBD")); s++) marks++;
    for (const char *s = again.data; (s = strstr(s, "\xEF\xBF\xBD")); s++) marks_again++;
    require(marks == marks_again);

    tu__text_free(&again);
    tu__text_free(&text);
    return 0;
}
