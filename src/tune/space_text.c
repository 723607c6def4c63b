/* Makes spaces from text, which space.h describes, and writes them as text. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/graph.h>

#include "base/choice.h"
#include "base/parse_integer.h"
#include "tune/space.h"

enum { MAX_TEXT = 8192 };

/* ---- Parts of a text ---- */

/* Removes spaces at both ends, in place. */
static char *trim(char *text) {
    while (isspace((unsigned char)*text)) text++;
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1])) text[--length] = '\0';
    return text;
}

/* Ends `text` before the word `word`, which is surrounded by spaces, and returns what follows it; NULL: not there. */
static char *split_at_word(char *text, const char *word) {
    size_t length = strlen(word);
    for (char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        if (at == text || !isspace((unsigned char)at[-1]) || !isspace((unsigned char)at[length])) continue;
        at[-1] = '\0';
        return at + length;
    }
    return NULL;
}

static bool has_prefix(char **text, const char *prefix) {
    size_t length = strlen(prefix);
    if (strncmp(*text, prefix, length) != 0) return false;
    *text += length;
    return true;
}

static bool name_is_usable(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return *name && strlen(name) <= TU__MAX_PARAMETER_NAME && name[strspn(name, letters)] == '\0';
}

/* ---- Numbers ---- */

static tu_status fail_syntax(const tu__parameter *p, const char *text) {
    return tu_fail(
        TU_INVALID,
        "parameter '%s': '%.200s': expected LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH, LOW:HIGH/N or A|B|C",
        p->name, text);
}

static tu_status check_range(const tu__parameter *p, const char *text) {
    if (p->low > p->high)
        return tu_fail(TU_INVALID, "parameter '%s': the range '%.200s' is reversed: expected %.10g:%.10g",
                       p->name, text, p->high, p->low);
    if (p->low == p->high)
        return tu_fail(
            TU_INVALID,
            "parameter '%s': the range '%.200s' is empty: expected a lower bound below the upper one; give one value as %s=%.10g",
            p->name, text, p->name, p->low);
    if (p->whole && (p->low != floor(p->low) || p->high != floor(p->high)))
        return tu_fail(TU_INVALID, "parameter '%s': '%.200s': expected integers as bounds", p->name, text);
    if (p->logarithmic && p->low <= 0)
        return tu_fail(
            TU_INVALID,
            "parameter '%s': the lower bound of a logarithmic range is %.10g: expected a number above 0",
            p->name, p->low);
    if (p->whole && (p->low < -1e15 || p->high > 1e15))
        return tu_fail(TU_INVALID, "parameter '%s': '%.200s': expected integers from -1e15 to 1e15", p->name,
                       text);
    if (p->whole && (double)p->points > p->high - p->low + 1)
        return tu_fail(TU_INVALID, "parameter '%s': the range '%.200s' has fewer than %lld integers", p->name,
                       text, (long long)p->points);
    return TU_OK;
}

static tu_status parse_points(tu__parameter *p, char *bounds, const char *text) {
    char *slash = strchr(bounds, '/');
    if (!slash) return TU_OK;
    *slash = '\0';
    if (tu__parse_integer(trim(slash + 1), &p->points) && p->points >= 2 && p->points <= 1000000)
        return TU_OK;
    return tu_fail(TU_INVALID,
                   "parameter '%s': '%.200s': expected a number of values from 2 to 1000000 after '/'",
                   p->name, text);
}

static tu_status parse_range(tu__parameter *p, char *bounds, const char *text) {
    for (bool found = true; found;) {
        bool is_logarithmic = has_prefix(&bounds, "log:"), is_whole = has_prefix(&bounds, "int:");
        p->logarithmic = p->logarithmic || is_logarithmic;
        p->whole = p->whole || is_whole;
        found = is_logarithmic || is_whole;
    }
    TU_TRY(parse_points(p, bounds, text));
    char *colon = strchr(bounds, ':');
    if (!colon) return fail_syntax(p, text);
    *colon = '\0';
    if (!tu__parse_number(trim(bounds), &p->low) || !tu__parse_number(trim(colon + 1), &p->high))
        return fail_syntax(p, text);
    return check_range(p, text);
}

/* ---- Choices ---- */

static tu_status parse_choices(tu__space *space, tu__parameter *p, char *list) {
    const char **choices = tu__arena_alloc(&space->arena, TU__MAX_CHOICES * sizeof *choices);
    if (!choices) return TU_NO_MEMORY;
    char *rest = list;
    for (char *word; (word = strsep(&rest, "|"));) {
        word = trim(word);
        if (!*word) return tu_fail(TU_INVALID, "parameter '%s': an empty value: expected A|B|C", p->name);
        for (size_t i = 0; i < p->choice_count; i++)
            if (strcmp(choices[i], word) == 0)
                return tu_fail(TU_INVALID, "parameter '%s': the value '%.60s' is listed twice", p->name,
                               word);
        if (p->choice_count == TU__MAX_CHOICES)
            return tu_fail(TU_INVALID, "parameter '%s': expected at most %d values", p->name,
                           TU__MAX_CHOICES);
        choices[p->choice_count] = tu__arena_string(&space->arena, word);
        if (!choices[p->choice_count++]) return TU_NO_MEMORY;
    }
    p->choices = choices;
    return TU_OK;
}

/* A colon makes a range, unless the text has a '|' or is one word whose parts are no numbers. */
static tu_status parse_values(tu__space *space, tu__parameter *p, char *values) {
    char text[MAX_TEXT];
    snprintf(text, sizeof text, "%s", values);
    for (const char *c = values; *c; c++)
        if ((unsigned char)*c < ' ')
            return tu_fail(TU_INVALID, "parameter '%s': a control character in its values", p->name);
    if (!*values) return fail_syntax(p, text);
    return strchr(values, ':') && !strchr(values, '|') ? parse_range(p, values, text)
                                                       : parse_choices(space, p, values);
}

/* ---- Conditions ---- */

static tu_status find_parent(const tu__space *space, const tu__parameter *p, const char *name,
                             size_t *parent) {
    const char *names[TU__MAX_PARAMETERS];
    for (size_t i = 0; i < space->count; i++) names[i] = space->parameters[i].name;
    for (*parent = 0; *parent < space->count && strcmp(names[*parent], name) != 0;) ++*parent;
    if (strcmp(name, p->name) == 0)
        return tu_fail(TU_INVALID, "parameter '%s': its condition is on itself", p->name);
    if (*parent == space->count && !space->count)
        return tu_fail(TU_INVALID, "parameter '%s': a condition on '%.60s': expected a parameter before it",
                       p->name, name);
    if (*parent == space->count) {
        char what[160];
        snprintf(what, sizeof what, "parameter '%s': a condition on an unknown parameter before it", p->name);
        return tu__fail_unknown_choice(TU_INVALID, what, name, space->count, names);
    }
    if (space->parameters[*parent].choice_count) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "parameter '%s': its condition is on '%s', which is a number: expected a choice, as in A|B", p->name,
        name);
}

static tu_status parse_condition(const tu__space *space, const tu__parameter *p, char *text,
                                 tu__condition *condition) {
    char *equals = strchr(text, '=');
    if (!equals)
        return tu_fail(TU_INVALID, "parameter '%s': '%.200s': expected a condition NAME=A|B", p->name,
                       trim(text));
    *equals = '\0';
    TU_TRY(find_parent(space, p, trim(text), &condition->parent));
    const tu__parameter *parent = &space->parameters[condition->parent];
    char *rest = equals + 1;
    for (char *word; (word = strsep(&rest, "|"));) {
        double value;
        if (tu__parameter_parse(parent, trim(word), &value) != TU_OK) {
            char message[512];
            snprintf(message, sizeof message, "%s", tu_message());
            return tu_fail(TU_INVALID, "parameter '%s': its condition: %s", p->name, message);
        }
        condition->values |= (uint64_t)1 << (unsigned)value;
    }
    return TU_OK;
}

static tu_status parse_conditions(tu__space *space, tu__parameter *p, char *text) {
    tu__condition found[TU__MAX_CONDITIONS] = {0};
    while (text) {
        char *next = split_at_word(text, "and");
        if (p->condition_count == TU__MAX_CONDITIONS)
            return tu_fail(TU_INVALID, "parameter '%s': expected at most %d conditions", p->name,
                           TU__MAX_CONDITIONS);
        TU_TRY(parse_condition(space, p, text, &found[p->condition_count]));
        p->condition_count++;
        text = next;
    }
    p->conditions = tu__arena_copy(&space->arena, found, sizeof found);
    return p->conditions ? TU_OK : TU_NO_MEMORY;
}

/* ---- A parameter ---- */

static tu_status check_new_name(const tu__space *space, const char *name) {
    if (!name_is_usable(name))
        return tu_fail(TU_INVALID, "parameter '%.80s': expected a name of 1 to %d letters, digits, - _ or .",
                       name, TU__MAX_PARAMETER_NAME);
    for (size_t i = 0; i < space->count; i++)
        if (strcmp(space->parameters[i].name, name) == 0)
            return tu_fail(TU_INVALID, "parameter '%s' is given twice", name);
    if (space->count < TU__MAX_PARAMETERS) return TU_OK;
    return tu_fail(TU_INVALID, "parameter '%s': a space has at most %d parameters", name, TU__MAX_PARAMETERS);
}

tu_status tu__space_add(tu__space *space, const char *given) {
    char text[MAX_TEXT];
    tu__parameter p = {0};
    if (!space->arena.purpose) space->arena.purpose = "the space of a study";
    if ((size_t)snprintf(text, sizeof text, "%s", given) >= sizeof text)
        return tu_fail(TU_INVALID, "a parameter of %zu bytes: expected less than %d", strlen(given),
                       MAX_TEXT);
    char *values = strchr(text, '=');
    if (!values)
        return tu_fail(TU_INVALID, "'%.200s': expected NAME=VALUES, as in rate=log:1e-4:1 or batch=64|128",
                       given);
    *values++ = '\0';
    const char *name = trim(text);
    TU_TRY(check_new_name(space, name));
    p.name = tu__arena_string(&space->arena, name);
    if (!p.name) return TU_NO_MEMORY;
    char *conditions = split_at_word(values, "if");
    TU_TRY(parse_values(space, &p, trim(values)));
    if (conditions) TU_TRY(parse_conditions(space, &p, conditions));
    space->parameters[space->count++] = p;
    return TU_OK;
}

tu_status tu__space_make_whole(tu__parameter *p) {
    p->whole = p->choice_count == 0;
    if (p->whole) return check_range(p, p->name);
    for (size_t i = 0; i < p->choice_count; i++) {
        int64_t integer;
        if (!tu__parse_integer(p->choices[i], &integer))
            return tu_fail(TU_INVALID, "parameter '%s': '%.60s': expected an integer", p->name,
                           p->choices[i]);
    }
    return TU_OK;
}

/* ---- A file ---- */

static tu_status add_line(tu__space *space, const char *name, int number, const char *line, size_t length) {
    char text[MAX_TEXT], message[1024];
    if (length >= sizeof text)
        return tu_fail(TU_INVALID, "%.200s: line %d: expected a line of less than %d bytes", name, number,
                       MAX_TEXT);
    memcpy(text, line, length);
    text[length] = '\0';
    const char *trimmed = trim(text);
    if (!*trimmed || *trimmed == '#') return TU_OK;
    tu_status status = tu__space_add(space, trimmed);
    if (status == TU_OK || status == TU_NO_MEMORY) return status;
    snprintf(message, sizeof message, "%s", tu_message());
    return tu_fail(status, "%.200s: line %d: %s", name, number, message);
}

tu_status tu__space_add_lines(tu__space *space, const char *name, const char *lines) {
    for (int number = 1; *lines; number++) {
        size_t length = strcspn(lines, "\n");
        TU_TRY(add_line(space, name, number, lines, length));
        lines += length + (lines[length] == '\n');
    }
    return TU_OK;
}

tu_status tu__space_add_file(tu__space *space, const char *path) {
    enum { MAX_BYTES = 1 << 20 };
    void *lines;
    size_t length;
    tu_status status = tu_file_read(path, MAX_BYTES, &lines, &length);
    if (status == TU_NOT_FOUND)
        return tu_fail(status, "cannot read the space '%.200s': %s", path, strerror(ENOENT));
    TU_TRY(status);
    if (memchr(lines, 0, length))
        status = tu_fail(TU_INVALID, "%.200s: a zero byte: expected text", path);
    else
        status = tu__space_add_lines(space, path, lines);
    tu_bytes_free(lines);
    return status;
}

/* ---- Writing ---- */

static void print_condition(const tu__space *space, const tu__condition *c, tu__text *text) {
    const tu__parameter *parent = &space->parameters[c->parent];
    const char *separator = "";
    tu__text_printf(text, "%s=", parent->name);
    for (size_t i = 0; i < parent->choice_count; i++) {
        if (!(c->values >> i & 1)) continue;
        tu__text_printf(text, "%s%s", separator, parent->choices[i]);
        separator = "|";
    }
}

void tu__parameter_print(const tu__space *space, const tu__parameter *p, tu__text *text) {
    char low[TU__NUMBER_TEXT], high[TU__NUMBER_TEXT];
    tu__text_printf(text, "%s=", p->name);
    if (p->choice_count) {
        for (size_t i = 0; i < p->choice_count; i++)
            tu__text_printf(text, "%s%s", i ? "|" : "", p->choices[i]);
    } else {
        tu__format_number(p->low, low);
        tu__format_number(p->high, high);
        tu__text_printf(text, "%s%s%s:%s", p->logarithmic ? "log:" : "", p->whole ? "int:" : "", low, high);
        if (p->points) tu__text_printf(text, "/%lld", (long long)p->points);
    }
    for (size_t i = 0; i < p->condition_count; i++) {
        tu__text_printf(text, i ? " and " : " if ");
        print_condition(space, &p->conditions[i], text);
    }
}

void tu__space_print(const tu__space *space, tu__text *text) {
    for (size_t i = 0; i < space->count; i++) {
        tu__parameter_print(space, &space->parameters[i], text);
        tu__text_append(text, "\n", 1);
    }
}
