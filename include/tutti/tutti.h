/* Tutti, a deep-learning engine in C. Includes all public headers. */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <tutti/command.h>
#include <tutti/custom.h>
#include <tutti/data.h>
#include <tutti/device.h>
#include <tutti/generate.h>
#include <tutti/graph.h>
#include <tutti/layers.h>
#include <tutti/model.h>
#include <tutti/network.h>
#include <tutti/node.h>
#include <tutti/ops.h>
#include <tutti/process_group.h>
#include <tutti/run.h>
#include <tutti/runs.h>
#include <tutti/stack.h>
#include <tutti/status.h>
#include <tutti/task.h>
#include <tutti/text.h>
#include <tutti/train.h>
#include <tutti/tune.h>
#include <tutti/types.h>

#endif
