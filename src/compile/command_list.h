/* The command list of a program: what one step does, as queues of commands (tu_command_list, <tutti/device.h>).
 *
 * Decision 41 describes the list and its rules. The engine interprets it (run/interpret.c), or a device executes it as
 * a whole (run/submit.c). */
#ifndef TU__COMPILE_COMMAND_LIST_H
#define TU__COMPILE_COMMAND_LIST_H

#include "base/arena.h"
#include "compile/collectives.h"
#include "compile/partition.h"

/* What an event stands for. */
typedef struct tu__event {
    /* The copy; NULL: partition `partition` has ended its step, so that the values it received may be overwritten. */
    tu__receive *receive;
    bool is_received; /* the copy has arrived; false: the value is computed */
    uint32_t partition;
} tu__event;

typedef struct tu__command_list {
    tu_command_list list;
    tu__event *events; /* per event */
    tu__arena arena;
} tu__command_list;

/* Writes the list. The partitions' kernels are ordered, and their copies and collectives are known. Also sets in every
 * partition: commands, tail, copies, is_idle, and the buffers of its updates. */
tu_status tu__command_list_write(tu__command_list *list, const tu__collectives *collectives,
                                 tu__partition *partitions, uint32_t count, uint32_t feed_count,
                                 const tu_slot *feeds, uint32_t fetch_count, const tu_slot *fetches);
void tu__command_list_free(tu__command_list *list);

/* check_list.c: verifies the rules of decision 41. The message names the rule, the queue and the command. */
tu_status tu__command_list_check(const tu__command_list *list, const tu__collectives *collectives,
                                 const tu__partition *partitions);

/* Returns a command in words, for messages: "LAUNCH kernels 3 to 7". */
typedef struct tu__command_text {
    char text[96];
} tu__command_text;
tu__command_text tu__command_describe(const tu_command *command);

#endif
