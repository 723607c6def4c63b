/* A page of HTML about a study: one file that needs nothing outside itself, neither scripts nor styles nor fonts. All text of the
 * study (names, values, messages) is escaped; a content security policy forbids the page to load or run anything, whatever a
 * name may contain. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <tutti/command.h>

#include "io/chart_axis.h"
#include "io/svg.h"
#include "tune/page_plots.h"

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>\n"
    ":root{--paper:#fff;--ink:#1f2328;--soft:#656d76;--grid:#d8dee4;--axis:#8c959f;"
    "--q0:#440154;--q1:#31688e;--q2:#35b779;--q3:#a5b34a;--q4:#c9c9b8;--best:#d55e00}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#e6edf3;--soft:#9198a1;--grid:#262c36;--axis:#656c76;"
    "--q0:#fde725;--q1:#5ec962;--q2:#21918c;--q3:#3b528b;--q4:#4a4458;--best:#f0883e}}\n"
    "body{background:var(--paper);color:var(--ink);font:15px system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\","
    "sans-serif;max-width:1040px;margin:24px auto;padding:0 16px}\n"
    "h1{font-size:24px}h2{font-size:18px;margin:32px 0 8px}\n"
    "svg{font-size:12px;max-width:100%;height:auto;overflow:visible}svg text{fill:var(--ink)}svg .soft,svg .tick{fill:var(--soft);paint-order:stroke;stroke:var(--paper);stroke-width:3px}\n"
    "svg .name{font-weight:600}svg .tick{fill:var(--ink);stroke-width:5px}\n"
    ".grid{stroke:var(--grid);fill:none}.axis{stroke:var(--axis);fill:none}.best{stroke:var(--best);fill:none;stroke-width:1.6}\n"
    ".failed{stroke:var(--best);stroke-width:1.6;fill:none}\n"
    "circle{fill:currentColor;stroke:var(--paper);stroke-width:.8}circle.pruned{fill:none;stroke:currentColor;stroke-width:1.4}\n"
    ".trial{fill:none;stroke-linecap:round;stroke:currentColor;stroke-width:1.4;stroke-opacity:.75}"
    ".many .trial{stroke-width:1;stroke-opacity:.3}.trial:hover,.many .trial:hover{stroke-width:3.5;stroke-opacity:1}\n"
    ".q0{color:var(--q0)}.q1{color:var(--q1)}.q2{color:var(--q2)}.q3{color:var(--q3)}.q4{color:var(--q4)}\n"
    "table{border-collapse:collapse;font-size:13px;width:100%}th{text-align:left;color:var(--soft);font-weight:600}\n"
    "th,td{padding:3px 10px 3px 0;border-bottom:1px solid var(--grid);vertical-align:top;overflow-wrap:anywhere}\n"
    ".scroll th,.scroll td{white-space:nowrap;overflow-wrap:normal}.scroll td.text{white-space:normal;min-width:260px}\n"
    "td.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}tr.first td{font-weight:600}\n"
    ".scroll{overflow-x:auto}.key span{margin-right:16px}.key i{display:inline-block;width:12px;height:12px;border-radius:6px;"
    "background:currentColor;margin-right:5px;vertical-align:-1px}\n";

/* ---- Summary ---- */

static void row(tu__text *page, const char *name, const char *value) {
    tu__text_printf(page, "<tr><th>%s</th><td>", name);
    tu__svg_escaped(page, value);
    tu__text_printf(page, "</td></tr>\n");
}

/* The cost of a trial as people read it. */
static void score_text(const tu_study *study, double cost, tu__text *text) {
    if (isnan(cost)) return;
    if (tu__study_shows_accuracy(study)) {
        tu__chart_fixed(text, tu__page_score(study, cost), 2);
        tu__text_printf(text, "%%");
    } else {
        tu__chart_number(text, cost);
    }
}

static void best_text(const tu_study *study, const tu_study_info *info, tu__text *text) {
    if (!tu__best_trial(&study->trials)) {
        tu__text_printf(text, "no trial has finished yet");
        return;
    }
    tu__text_printf(text, "trial %" PRId64 ", validation %s ", info->best, info->objective);
    score_text(study, info->best_cost, text);
    if (info->tested != info->best || isnan(info->test_loss)) return;
    if (!isnan(info->test_accuracy)) {
        tu__text_printf(text, "; test accuracy ");
        tu__chart_fixed(text, 100 * info->test_accuracy, 2);
        tu__text_printf(text, "%%");
    }
    tu__text_printf(text, ", test loss ");
    tu__chart_number(text, info->test_loss);
}

static void put_summary(const tu_study *study, const tu_study_info *info, tu__text *page) {
    tu__text text = {0};
    tu__text_printf(page, "<table>\n");
    row(page, "model", info->model);
    row(page, "data", info->data);
    tu__text_printf(&text, "%s, pruning %s, objective %s, seed %" PRId64, info->sampler, info->pruner,
                    info->objective, info->seed);
    row(page, "search", tu__text_string(&text));
    tu__text_free(&text);
    tu__text_printf(&text,
                    "%" PRId64 ": %" PRId64 " finished, %" PRId64 " pruned, %" PRId64 " failed, %" PRId64
                    " running, %" PRId64 " waiting; %" PRId64 " steps",
                    info->trials, info->finished, info->pruned, info->failed, info->running, info->waiting,
                    info->steps);
    row(page, "trials", tu__text_string(&text));
    tu__text_free(&text);
    best_text(study, info, &text);
    row(page, "best", tu__text_string(&text));
    tu__text_free(&text);
    const tu__trial *best = tu__best_trial(&study->trials);
    if (best) row(page, "run", best->run);
    row(page, "settings", info->settings);
    tu__text_printf(page, "</table>\n");
}

static void put_key(tu__text *page) {
    static const char *const names[] = {"best fifth", "second", "third", "fourth", "last fifth"};
    tu__text_printf(page, "<p class=\"key\">");
    for (int i = 0; i < 5; i++) tu__text_printf(page, "<span><i class=\"q%d\"></i>%s</span>", i, names[i]);
    tu__text_printf(page, "<span>hollow: pruned</span><span>cross: failed</span></p>\n");
}

/* ---- Trials ---- */

static void put_trial(const tu_study *study, size_t index, bool is_best, tu__text *page) {
    const tu__trial *t = &study->trials.trials[index];
    tu__text_printf(page, "<tr%s><td class=\"number\">%" PRId64 "</td><td>%s</td><td class=\"number\">",
                    is_best ? " class=\"first\"" : "", t->number, tu__trial_state_names[t->state]);
    score_text(study, t->cost, page);
    tu__text_printf(page, "</td><td class=\"number\">%" PRId64 "/%" PRId64 "</td>", t->step, t->steps);
    for (size_t k = 0; k < study->study.space.count; k++) {
        const char *value = tu__study_value(study, index, k);
        tu__text_printf(page, "<td class=\"number\">");
        if (value && study->study.space.parameters[k].choice_count)
            tu__svg_escaped(page, value);
        else if (value)
            tu__chart_number(page, t->point.value[k]);
        tu__text_printf(page, "</td>");
    }
    tu__text_printf(page, "<td class=\"text\">");
    tu__svg_escaped(page, t->message);
    tu__text_printf(page, "</td></tr>\n");
}

static void put_trials(const tu__page_trials *trials, int64_t best, tu__text *page) {
    enum { MOST = 1000 };
    const tu_study *study = trials->study;
    size_t count = study->trials.count;
    if (count > MOST)
        tu__text_printf(
            page, "<p>The best %d of %zu trials; <code>tutti tune --export csv</code> writes all.</p>\n",
            MOST, count);
    tu__text_printf(page,
                    "<div class=\"scroll\"><table>\n<tr><th>trial</th><th>state</th><th>%s</th><th>step</th>",
                    tu__study_shows_accuracy(study) ? "accuracy" : "loss");
    for (size_t k = 0; k < study->study.space.count; k++) {
        tu__text_printf(page, "<th>");
        tu__svg_escaped(page, study->study.space.parameters[k].name);
        tu__text_printf(page, "</th>");
    }
    tu__text_printf(page, "<th>message</th></tr>\n");
    for (size_t i = 0; i < count && i < MOST; i++)
        put_trial(study, trials->order[i], study->trials.trials[trials->order[i]].number == best, page);
    tu__text_printf(page, "</table></div>\n");
}

/* ---- The page ---- */

/* Says which trials the plots draw if there are many. */
static void put_choice(const tu__page_trials *trials, tu__text *page) {
    size_t count = trials->study->trials.count;
    if (trials->drawn_count < count)
        tu__text_printf(
            page,
            "<p>The plots draw %zu of %zu trials: the best %d, and others evenly over the search.</p>\n",
            trials->drawn_count, count, TU__PAGE_BEST);
}

static tu_status put_page(const tu__page_trials *trials, tu__text *page) {
    const tu_study *study = trials->study;
    tu_study_info info = TU_SIZED(tu_study_info);
    TU_TRY(tu_study_describe(study, &info));
    tu__text_printf(page, "%s</style>\n<title>", head);
    tu__svg_escaped(page, info.name);
    tu__text_printf(page, "</title>\n</head>\n<body>\n<h1>Study ");
    tu__svg_escaped(page, info.name);
    tu__text_printf(page, "</h1>\n");
    put_summary(study, &info, page);
    put_key(page);
    put_choice(trials, page);
    tu__text_printf(page, "<h2>History</h2>\n");
    tu__page_history(trials, page);
    tu__text_printf(page, "<h2>Parallel coordinates</h2>\n<div class=\"scroll\">");
    tu__page_parallel(trials, page);
    tu__text_printf(page, "</div>\n<h2>Slices</h2>\n");
    tu__page_slices(trials, page);
    tu__text_printf(page, "<h2>Curves</h2>\n");
    tu__page_curves(trials, page);
    tu__text_printf(page, "<h2>Trials</h2>\n");
    put_trials(trials, info.best, page);
    tu__text_printf(page, "</body>\n</html>\n");
    return page->failed ? TU_NO_MEMORY : TU_OK;
}

tu_status tu_study_save_page(const tu_study *study, const char *path) {
    tu__text page = {0};
    tu__page_trials trials;
    tu_status status = tu__page_trials_of(study, &trials);
    if (status == TU_OK) status = put_page(&trials, &page);
    tu__page_trials_free(&trials);
    if (status == TU_OK) status = tu_file_save(path, page.data, page.length);
    tu__text_free(&page);
    return status;
}
