/* Reads arbitrary bytes as the space of a study. If that succeeds, writing it and reading it again must give the same
 * text, and every value of a parameter must survive as text. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/space.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (condition) return;
    fprintf(stderr, "%s\n", tu_message());
    abort();
}

static void check_values(const tu__parameter *p) {
    static const double units[] = {0, 0.25, 0.5, 0.999999};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        double value = tu__parameter_value(p, units[i]), unit = tu__parameter_unit(p, value), again;
        tu__text text = {0};
        require(isfinite(value) && unit >= 0 && unit < 1);
        tu__parameter_format(p, value, &text);
        require(tu__parameter_parse(p, tu__text_string(&text), &again) == TU_OK && again == value);
        tu__text_free(&text);
    }
    require(tu__parameter_values(p) >= 0);
}

/* Gives the parameters values, one after another, as a sampler does. */
static void check_point(const tu__space *space) {
    tu__point point;
    for (size_t i = 0; i < space->count; i++)
        point.value[i] =
            tu__space_uses(space, i, &point) ? tu__parameter_value(&space->parameters[i], 0.5) : (double)NAN;
}

static void check_text(const tu__space *space) {
    tu__text text = {0}, text_again = {0};
    tu__space again = {0};
    tu__space_print(space, &text);
    require(tu__space_add_lines(&again, "output", tu__text_string(&text)) == TU_OK);
    tu__space_print(&again, &text_again);
    require(again.count == space->count && strcmp(tu__text_string(&text), tu__text_string(&text_again)) == 0);
    tu__text_free(&text);
    tu__text_free(&text_again);
    tu__space_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *lines = malloc(size + 1);
    tu__space space = {0};
    if (!lines) return 0;
    memcpy(lines, data, size);
    lines[size] = '\0';
    tu_status status = tu__space_add_lines(&space, "input", lines);
    require(status == TU_OK || status == TU_INVALID);
    if (status == TU_OK) {
        for (size_t i = 0; i < space.count; i++) check_values(&space.parameters[i]);
        check_point(&space);
        check_text(&space);
        (void)tu__space_check(&space);
        for (size_t i = 0; i < space.count; i++)
            if (tu__space_make_whole(&space.parameters[i]) == TU_OK) check_values(&space.parameters[i]);
    }
    tu__space_free(&space);
    free(lines);
    return 0;
}
