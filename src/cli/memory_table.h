/* The table of the devices' memory at the end of the output of `tutti explain`, of one process or of several. */
#ifndef TU__CLI_MEMORY_TABLE_H
#define TU__CLI_MEMORY_TABLE_H

#include <stdio.h>

#include <tutti/command.h>
#include <tutti/process_group.h>
#include <tutti/run.h>

struct memory_table;

/* Collects the memory of a program's devices; with a group, of those of all processes, which must all call it. */
tu_status memory_table_new(const tu_program *program, tu_process_group *group, struct memory_table **table);
void memory_table_free(struct memory_table *table);

void memory_table_print(const struct memory_table *table);
/* Writes the array "devices" of a JSON object. */
void memory_table_put(const struct memory_table *table, tu_json *json);

#endif
