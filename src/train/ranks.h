/* A run on several processes: who writes, what is compared before the first step, and what all must agree on.
 *
 * Everything that a run decides depends on step numbers and on sums over all processes, so all decide alike. What one
 * process alone knows is exchanged here: that an image cannot be read, or that a signal asks it to stop. */
#ifndef TU__TRAIN_RANKS_H
#define TU__TRAIN_RANKS_H

#include "train/trainer.h"

/* Returns the number of processes that train together; 1: this one alone. */
uint32_t tu__ranks_count(const tu__trainer *trainer);
/* True for rank 0, and for a run of one process: it writes the run folder and reports. */
bool tu__is_writer(const tu__trainer *trainer);

/* Sets the share of this process of the run's devices. */
tu_status tu__ranks_set_devices(tu__trainer *trainer);
/* Fails if the processes are about to train different things. Call before programs are compiled. */
tu_status tu__ranks_check(tu__trainer *trainer, bool is_resumed);
/* Sets `*threads` to 0 unless it is equal in all processes. */
tu_status tu__ranks_compare_threads(const tu__trainer *trainer, int64_t *threads);
/* Gives all processes the progress of rank 0, and those that have variables its state. */
tu_status tu__ranks_copy_state(tu__trainer *trainer);
/* Reports the hosts and devices of all processes, as a notice. */
tu_status tu__ranks_report(tu__trainer *trainer);

/* Gives all processes the digest of rank 0's variables. */
tu_status tu__ranks_copy_digest(const tu__trainer *trainer, char *digest, size_t size);

/* Exchanges the outcome of what each process has done: if one has failed, all fail, with its message. */
tu_status tu__ranks_agree(const tu__trainer *trainer, tu_status status);
/* Returns in `*stop` whether any process wants to stop, agrees on the number of steps of the next call, and records how
 * long each process has waited for others. */
tu_status tu__ranks_agree_to_stop(tu__trainer *trainer, bool *stop);
/* Updates the report's statistics of waits. */
void tu__ranks_measure(tu__trainer *trainer);
/* Fills the fields about processes. */
void tu__ranks_fill_result(tu__trainer *trainer, tu_train_result *result);
/* Ends a run: if it has failed in all processes, all return the status and message of rank 0, which may have saved a
 * checkpoint. If it has failed only in this one, tells the others. */
tu_status tu__ranks_end(const tu__trainer *trainer, tu_status status);

#endif
