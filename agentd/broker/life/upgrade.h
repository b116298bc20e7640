/* upgrade.h - another release of agentd takes this process over, in place.
 *
 * It is the file at the path this agentd was started from, when the signal comes; nobody names
 * another (security-rules.md 7).  It is tried first: a child of ours runs it with our arguments,
 * `--check-state` and copies of all kept descriptors.
 *
 * A trial proves what belongs to the program: it reads what we kept and its settings, the kernel
 * takes its eBPF programs, and its worker makes a first call of grpc in the cage.  What is outside
 * of it (root files, control planes, the kubelet) is no reason to refuse: we live with that, too.
 */
#pragma once
#include "broker/base/fdstore.h"
#include "broker/base/options.h"
#include "common/err.h"
#include <limits.h>
#include <sys/types.h>

enum { BROKER_TRIAL_MS = 15000 };

struct upgrade {
	char path[PATH_MAX]; /* of agentd */
	char **argv;         /* main()'s */
	int exe;             /* the one that is tried; -1: none */
	pid_t trial;         /* 0: none runs; kill it after BROKER_TRIAL_MS */
	int said;            /* a memfd, its stdout; -1: none */
};
/* At the start, before anybody can have replaced the file. */
void upgrade_open(struct upgrade *u, char **argv);
void upgrade_close(struct upgrade *u); /* kills a trial */

/* Starts the trial.  -1: refused, and `e` says why. */
int upgrade_try(struct upgrade *u, struct broker_fdstore *k, struct err *e);
/* The trial was reaped.  -1: it failed, `e` has its own reason, all goes on.  0: end the worker,
 * then execute. */
int upgrade_tried(struct upgrade *u, int wait_status, struct err *e);
void upgrade_drop(struct upgrade *u); /* not now */
/* Returns only if it cannot: -1, nothing has changed, a worker may be started again. */
int upgrade_exec(struct upgrade *u, struct broker_fdstore *k, struct err *e);

/* In the next agentd: descriptors that the previous one kept become `found`.  A table that cannot
 * be read loses them all, with a warning. */
void upgrade_receive(struct broker_fdstore *k);
/* --check-state, the trial itself, without the eBPF programs.  Whoever calls it prints `e` as a
 * line on stdout; if the worker had a reason, that is a line before it.  The first line counts. */
int upgrade_check(const struct broker_options *o, struct err *e);
