/* What a list of devices means by default is read from its words alone: to open devices only to count them would cost a
 * GPU's context, twice.
 *
 * It uses public functions alone, so that the command can compile it in. */
#include <tutti/command.h>

#include <stdlib.h>
#include <string.h>

#include <tutti/device.h>

#include "pass/choices.h"

static int count_gpus(void) {
    tu_device_info info;
    int count = 0;
    for (size_t i = 0; tu_device(i, &info) == TU_OK; i++)
        count += !info.unusable && strcmp(info.kind, "gpu") == 0;
    return count;
}

/* How many devices a word of a list stands for, as far as it matters: one, or more. */
static int count_word(const char *word, size_t length) {
    if (length == 3 && strncmp(word, "all", 3) == 0) return count_gpus();
    const char *number = memchr(word, ':', length), *last = memchr(word, '-', length);
    const char *parts = memchr(word, '/', length);
    bool range = number && last && strtol(number + 1, NULL, 10) != strtol(last + 1, NULL, 10);
    bool divided = parts && !memchr(word, '.', length) && strtol(parts + 1, NULL, 10) > 1;
    return range || divided ? 2 : 1;
}

static bool names_several_alike(const char *list) {
    int count = 0;
    size_t kind = strcspn(list, ":,");
    for (const char *word = list; *word;) {
        size_t length = strcspn(word, ",");
        if (strcspn(word, ":,") != kind || strncmp(word, list, kind) != 0) return false;
        count += count_word(word, length);
        word += length + (word[length] == ',');
    }
    return count > 1;
}

const char *tu_default_strategy(const char *devices, bool placed, bool invariant) {
    bool shared = invariant || (!placed && names_several_alike(devices ? devices : "all"));
    return tu__strategy_names[shared ? TU__MIRRORED : TU__SINGLE];
}
