/* Parameters that networks declare: numbers with a name, a default and bounds, beyond those that all networks have.
 *
 * Their values travel as text, "depth=3,dropout=0.2": in the setting --network of a run, and so in its config.json, and to the
 * function that builds the network. */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/choice.h"
#include "base/json.h"
#include "base/text.h"
#include "network/network.h"

enum { MAX_PARAMETERS = 64, MAX_NAME = 60 };

const tu_network_parameter *tu__network_parameters(const tu_network_definition *network, size_t *count) {
    size_t needed = offsetof(tu_network_definition, parameter_count) + sizeof network->parameter_count;
    bool has = network->struct_size >= needed && network->parameters;
    *count = has ? network->parameter_count : 0;
    return has ? network->parameters : NULL;
}

/* ---- Values as text ---- */

/* Finds "name=value" in a list. Returns the value's text, and its length; NULL: not there. */
static const char *find_value(const char *list, const char *name, size_t *length) {
    size_t name_length = strlen(name);
    while (list && *list) {
        size_t entry = strcspn(list, ",");
        if (entry > name_length && strncmp(list, name, name_length) == 0 && list[name_length] == '=') {
            *length = entry - name_length - 1;
            return list + name_length + 1;
        }
        list += entry + (list[entry] == ',');
    }
    return NULL;
}

/* Parses a number with a decimal point in every locale; false if the text is not one finite number. */
static bool parse_number(const char *text, size_t length, double *number) {
    char copy[64], *end = copy;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    bool fits = c != (locale_t)0 && length > 0 && length < sizeof copy;
    if (fits) {
        memcpy(copy, text, length);
        copy[length] = '\0';
        *number = strtod_l(copy, &end, c);
    }
    if (c != (locale_t)0) freelocale(c);
    return fits && end == copy + length && isfinite(*number);
}

double tu_network_number(const tu_network_options *settings, const char *parameter) {
    size_t length;
    double number;
    bool has =
        settings->struct_size >= offsetof(tu_network_options, parameters) + sizeof settings->parameters;
    const char *text = has ? find_value(settings->parameters, parameter, &length) : NULL;
    return text && parse_number(text, length, &number) ? number : (double)NAN;
}

/* ---- Checking ---- */

static tu_status check_names(const tu_network_definition *network, const char *given) {
    const char *names[MAX_PARAMETERS];
    size_t count;
    const tu_network_parameter *parameters = tu__network_parameters(network, &count);
    for (size_t i = 0; i < count; i++) names[i] = parameters[i].name;
    for (const char *at = given; at && *at;) {
        size_t entry = strcspn(at, ","), length = strcspn(at, "=,");
        char name[MAX_NAME + 1];
        snprintf(name, sizeof name, "%.*s", length < MAX_NAME ? (int)length : MAX_NAME, at);
        bool known = false;
        for (size_t i = 0; i < count; i++) known = known || strcmp(names[i], name) == 0;
        if (count == 0)
            return tu_fail(TU_INVALID, "--network '%s': the network '%s' declares no parameters", name,
                           network->name);
        if (length == entry) return tu_fail(TU_INVALID, "--network '%s': expected NAME=VALUE", name);
        if (!known)
            return tu__fail_unknown_choice(TU_INVALID, "--network: unknown parameter", name, count, names);
        at += entry + (at[entry] == ',');
    }
    return TU_OK;
}

static tu_status check_value(const tu_network_parameter *p, const char *what, double value) {
    if (value >= p->minimum && value <= p->maximum && (!p->whole || value == floor(value))) return TU_OK;
    return tu_fail(TU_INVALID, "%s '%s' = %.10g: expected %s from %.10g to %.10g", what, p->name, value,
                   p->whole ? "an integer" : "a number", p->minimum, p->maximum);
}

tu_status tu__network_fill_parameters(const tu_network_definition *network, const char *given,
                                      char text[TU__PARAMETERS_TEXT]) {
    size_t count;
    const tu_network_parameter *parameters = tu__network_parameters(network, &count);
    tu__text list = {0};
    tu_status status = check_names(network, given);
    for (size_t i = 0; status == TU_OK && i < count; i++) {
        const tu_network_parameter *p = &parameters[i];
        size_t length;
        double value = p->value;
        const char *found = find_value(given, p->name, &length);
        if (found && !parse_number(found, length, &value))
            status = tu_fail(TU_INVALID, "--network %s=%.*s: expected a number", p->name, (int)length, found);
        if (status == TU_OK) status = check_value(p, "--network: parameter", value);
        tu__text_printf(&list, "%s%s=", i ? "," : "", p->name);
        tu_json json = tu__json_to_text(&list);
        tu_json_f64(&json, NULL, value);
    }
    if (status == TU_OK && (list.failed || list.length >= TU__PARAMETERS_TEXT))
        status = tu_fail(TU_INVALID, "the parameters of network '%s' do not fit into %d bytes", network->name,
                         TU__PARAMETERS_TEXT);
    if (status == TU_OK) memcpy(text, tu__text_string(&list), list.length + 1);
    tu__text_free(&list);
    return status;
}

static bool name_is_usable(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return name && *name && strlen(name) <= MAX_NAME && name[strspn(name, letters)] == '\0';
}

tu_status tu__network_check_parameters(const char *path, const tu_network_definition *network) {
    size_t count;
    const tu_network_parameter *parameters = tu__network_parameters(network, &count);
    if (count > MAX_PARAMETERS)
        return tu_fail(TU_INVALID, "'%.200s': network '%s' declares %zu parameters: expected at most %d",
                       path, network->name, count, MAX_PARAMETERS);
    for (size_t i = 0; i < count; i++) {
        char what[300];
        const char *name = parameters[i].name;
        if (!name_is_usable(name))
            return tu_fail(
                TU_INVALID,
                "'%.200s': parameter %zu of network '%s' is named \"%.60s\": expected 1 to %d letters, digits, - _ or .",
                path, i, network->name, name ? name : "", MAX_NAME);
        for (size_t k = 0; k < i; k++)
            if (strcmp(parameters[k].name, name) == 0)
                return tu_fail(TU_INVALID, "'%.200s': network '%s' declares the parameter '%s' twice", path,
                               network->name, name);
        snprintf(what, sizeof what, "'%.200s': default of parameter", path);
        TU_TRY(check_value(&parameters[i], what, parameters[i].value));
    }
    return TU_OK;
}

/* ---- For programs ---- */

size_t tu_network_parameter_count(const char *name) {
    size_t count = 0;
    const tu_network_definition *network = tu__network_find(name);
    if (network) tu__network_parameters(network, &count);
    return count;
}

tu_status tu_network_get_parameter(const char *name, size_t index, tu_network_parameter *parameter) {
    size_t count;
    const tu_network_definition *network = tu__network_find(name);
    if (!network) return TU_NOT_FOUND;
    const tu_network_parameter *parameters = tu__network_parameters(network, &count);
    if (index >= count)
        return tu_fail(TU_NOT_FOUND, "parameter index %zu: network '%s' declares %zu", index, name, count);
    *parameter = parameters[index];
    return TU_OK;
}
