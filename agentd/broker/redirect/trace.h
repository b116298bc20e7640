/* trace.h - decisions of the programs, as they fall, for readers that asked to see them.
 *
 * Each reader has a pipe.  A pod's programs write records only while a reader wants them, and the
 * ring is mapped only while there is one.  A reader that goes away, with its worker or by closing
 * its end, ends its trace by that.  One that reads too slowly loses records and is told how many.
 */
#pragma once
#include "border/protocol.h"
#include "common/err.h"

enum { REDIRECT_TRACES_MAX = 4 };

struct redirect;
struct redirect_traces;

struct redirect_traces *redirect_traces_new(int epoll, struct redirect *r);
void redirect_traces_free(struct redirect_traces **t);
/* The end to read struct link_trace from, the caller's; -1: refused.  A pod of zeroes: all pods,
 * also those that come later. */
int redirect_traces_add(struct redirect_traces *t, const struct uuid *pod, struct err *e);
/* A pod was set: does a reader want its records? */
void redirect_traces_apply(struct redirect_traces *t, const struct uuid *pod);
