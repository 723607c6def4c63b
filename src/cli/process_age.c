/* Reads the start of the process from /proc/self/stat. */
#include "cli/process_age.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double cli_process_age(double fallback) {
    double age = fallback;
    char stat[1024] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file) return age;
    size_t length = fread(stat, 1, sizeof stat - 1, file);
    fclose(file);
    stat[length] = '\0';
    /* Field 22 is the start in clock ticks since boot. Field 2 is the name in parentheses and may contain spaces. */
    const char *at = strrchr(stat, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    struct timespec now;
    if (at && clock_gettime(CLOCK_BOOTTIME, &now) == 0)
        age =
            (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - strtod(at, NULL) / (double)sysconf(_SC_CLK_TCK);
    return age;
}
