/* Reads the environment variables of launchers. See launcher.h. */
#include "comm/launcher.h"

#include <stddef.h>
#include <stdlib.h>

#include <tutti/process_group.h>

/* Variables of the launchers, the innermost first: mpirun in a job of Slurm starts its daemons by srun. */
static const struct launcher {
    const char *name, *rank, *size;
    const char *needs;    /* another variable that must be set; NULL: none */
    const char *connects; /* set if MPI can connect the processes; NULL: always */
} launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, NULL},
    /* SLURM_STEP_ID: batch scripts have other variables of a step, too, but not this one. */
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "PMIX_RANK"},
    /* Of MPICH and its relatives. */
    {"the launcher of another MPI library", "PMI_RANK", "PMI_SIZE", NULL, NULL},
};

static unsigned long number_of(const char *variable) {
    const char *text = getenv(variable);
    return text ? strtoul(text, NULL, 10) : 0;
}

static bool is_set(const char *variable) {
    return !variable || getenv(variable);
}

tu__launch tu__launch_read(void) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct launcher *l = &launchers[i];
        unsigned long size = number_of(l->size);
        if (size <= 1 || size > UINT32_MAX || !is_set(l->needs)) continue;
        return (tu__launch){.rank = (uint32_t)number_of(l->rank),
                            .size = (uint32_t)size,
                            .launcher = l->name,
                            .connects = is_set(l->connects)};
    }
    return (tu__launch){.rank = 0, .size = 1, .launcher = "", .connects = true};
}

bool tu_process_group_is_launched(void) {
    return tu__launch_read().size > 1;
}
