/* Looks up a word in a list of allowed names. See choice.h. */
#include "base/choice.h"

#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include <tutti/command.h>

tu_status tu__fail_unknown_choice(tu_status status, const char *what, const char *word, size_t count,
                                  const char *const *names) {
    tu__text known = {0};
    for (size_t i = 0; i < count; i++)
        tu__text_printf(&known, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " or ", names[i]);
    const char *nearest = tu_nearest_name(word, names, count);
    tu_fail(status, "%s '%.200s': expected %s%s%s%s", what, word, tu__text_string(&known),
            nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    tu__text_free(&known);
    return status;
}

tu_status tu__choice_find(const char *what, const char *word, const char *const *names, size_t *index) {
    size_t count = 0;
    for (; names[count]; count++)
        if (strcmp(names[count], word) == 0) {
            *index = count;
            return TU_OK;
        }
    return tu__fail_unknown_choice(TU_INVALID, what, word, count, names);
}
