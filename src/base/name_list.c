/* Lists of names in messages. See name_list.h. */
#include "base/name_list.h"

enum { MAX_NAMED = 6 }; /* further names are only counted */

void tu__name_list_add(tu__name_list *list, const char *name) {
    if (list->count++ < MAX_NAMED) tu__text_printf(&list->text, "%s%s", list->count > 1 ? ", " : "", name);
}

void tu__name_list_append_to(const tu__name_list *list, const char *what, tu__text *message) {
    if (list->count == 0) return;
    tu__text_printf(message, "; %s: %s", what, tu__text_string(&list->text));
    if (list->count > MAX_NAMED) tu__text_printf(message, " and %zu more", list->count - MAX_NAMED);
}
