/* check.h - agentd --check: what kernel and node offer, and whether the worker would start.
 */
#pragma once
#include "broker/base/options.h"

/* Prints a table on stdout.  0: agentd can run here; 1: something has to be done first. */
int broker_check(const struct broker_options *o);
