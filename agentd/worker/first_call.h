/* first_call.h - a call of grpc to where nobody is.
 *
 * That it comes back is what is asked: its threads, its connection and its clock are those of every
 * later call.  A cage that is too narrow for them kills us here.
 */
#pragma once
struct err;

/* In the cage.  Blocks, for 10 s at most; on a loop of its own.  -1: it did not come back. */
int first_call_make(struct err *e);
