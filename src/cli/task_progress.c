/* Shows the progress of a long task. See task_progress.h. */
#include "cli/task_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/terminal.h"

void cli_show_task(void *context, const char *what, int64_t done, int64_t total) {
    struct cli_task *p = context;
    int64_t percent = total > 0 ? (int64_t)(100.0 * (double)done / (double)total) : -1;
    bool is_new = strncmp(p->what, what, sizeof p->what - 1) != 0;
    if (!is_new && (percent == p->percent || !p->terminal)) return;
    snprintf(p->what, sizeof p->what, "%s", what);
    p->percent = percent;
    if (!p->terminal) {
        fprintf(stderr, "%s\n", p->what);
        return;
    }
    char line[128];
    if (percent >= 0)
        snprintf(line, sizeof line, "%.100s  %" PRId64 "%%", p->what, percent);
    else
        snprintf(line, sizeof line, "%.100s", p->what);
    cli_draw_line(line, (int)sizeof line);
    p->shown = true;
}

void cli_end_task(const struct cli_task *p) {
    if (p->shown) cli_erase_line();
}
