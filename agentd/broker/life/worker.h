/* worker.h - starting agentd-worker without any privilege, and saying how it ended. */
#pragma once
#include "border/protocol.h"
#include "broker/base/options.h"
#include "common/err.h"

/* Opens the files the worker needs before anything is changed on the node. */
struct life_worker {
	struct broker_user user;
	int exe;    /* agentd-worker beside our own executable */
	int config; /* a copy of agentd.yaml; empty when the default one is not there */
};
int life_worker_open(struct life_worker *wk, const struct broker_options *o, struct err *e);
void life_worker_close(struct life_worker *wk);

/* Starts it with `sock` as LINK_FD (stays the caller's); `extra` (or NULL) is one more argument. */
pid_t life_worker_start(const struct life_worker *wk, const struct broker_options *o, int sock,
    const char *extra, struct err *e);

enum { BROKER_ENDED_SIZE = 80 };
/* "exit code 2", "signal 31 (SIGSYS: ...)". */
void life_worker_ended(int wait_status, char out[BROKER_ENDED_SIZE]);
/* The same as a shell would say it: 128 + signal. */
int life_worker_exit_code(int wait_status);

/* Runs `agentd-worker --check` as the worker would be run; its output goes where ours goes.  In a
 * trial of ours: --check-state, which asks for nothing outside of the program. */
int life_worker_check(const struct broker_options *o, struct err *e);
