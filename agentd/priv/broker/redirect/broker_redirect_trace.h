/* broker_redirect_trace.h - decisions of the programs, as they fall, for whoever asked to see them.
 *
 * Each reader has a pipe.  A pod's programs write records only while a reader wants them, and the
 * ring is mapped only while there is one.  A reader that goes away, with its worker or by closing
 * its end, ends it all by that; one that reads too slowly loses records and is told how many.
 */
#pragma once
#include "broker_redirect.h"

enum { BROKER_TRACES_MAX = 4 };

struct broker_traces;

struct broker_traces *broker_traces_new(int epoll, struct broker_redirect *r);
void broker_traces_free(struct broker_traces **t);
/* The end to read struct priv_trace from, the caller's; -1: refused.  A pod of zeroes: all pods,
 * also those that come later. */
int broker_traces_add(struct broker_traces *t, const struct uuid *pod, struct broker_why *w);
/* A pod was set: is it looked at? */
void broker_traces_apply(struct broker_traces *t, const struct uuid *pod);
