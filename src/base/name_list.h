/* A list of names for a message: the first six names, and how many more there are. */
#ifndef TU__BASE_NAME_LIST_H
#define TU__BASE_NAME_LIST_H

#include "base/shared.h"
#include "base/text.h"

typedef struct tu__name_list {
    size_t count;
    tu__text text; /* "conv1/bias, conv1/weights"; the caller frees it with tu__text_free */
} tu__name_list;

TU__SHARED void tu__name_list_add(tu__name_list *list, const char *name);
/* Appends "; WHAT: NAMES and 3 more", or nothing for an empty list. */
TU__SHARED void tu__name_list_append_to(const tu__name_list *list, const char *what, tu__text *message);

#endif
