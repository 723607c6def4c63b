/* Parses arbitrary bytes as a host file. If that succeeds, every name must be one that mpirun and a shell take for
 * nothing else, and every host must have slots. */
#include <stdlib.h>
#include <string.h>

#include "cli/host_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_host(const struct cli_host *host) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    if (!*host->name || *host->name == '-' || strspn(host->name, allowed) != strlen(host->name)) abort();
    if (host->slots < 1) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct cli_hosts hosts;
    struct cli_host_error error;
    if (cli_parse_hosts((const char *)data, size, &hosts, &error)) {
        for (size_t i = 0; i < hosts.count; i++) check_host(&hosts.list[i]);
    } else if (error.line == 0 || !*error.message) {
        abort();
    }
    free(hosts.list);
    return 0;
}
