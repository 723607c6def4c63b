/* `tutti data info` for sets that are no pictures: the columns and their fields. */
#ifndef TUTTI_CLI_DATA_COLUMNS_H
#define TUTTI_CLI_DATA_COLUMNS_H

#include <stdbool.h>

#include <tutti/data.h>

/* Prints the description and every field. Returns an enum cli_exit. */
int cli_describe_columns(const tu_dataset *set, const tu_dataset_info *info, bool json);

#endif
