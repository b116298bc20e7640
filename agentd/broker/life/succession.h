/* succession.h - when this agentd makes room for another: an upgrade in place (SIGUSR2) or a
 * hand-over; and what it takes over from the previous one.
 *
 * Either way the worker ends first, in order, and if nothing comes of it the next worker starts.
 */
#pragma once
#include "common/err.h"
#include "handover.h"
#include "keeper.h"
#include "upgrade.h"

struct succession {
	struct upgrade upgrade;
	struct handover handover;
	struct broker_fdstore *kept;
	struct keeper *keeper;
	const char *run;
	struct broker_timer trial;
	int before;   /* to the agentd that handed over and waits for our worker; -1: none */
	bool is_over; /* another one has taken over: end, and touch nothing */
	char refused[ERR_MSG_SIZE]; /* the last upgrade, and why; "": it was not */
};

/* Before anything else is opened: what an earlier agentd with this pid or systemd kept is found.
 * `argv`: main()'s. */
void succession_inherit(struct succession *s, struct broker_fdstore *k, char **argv);
/* --take-over: what the agentd that holds <run> gives.  There is none: fine. */
int succession_take_over(struct succession *s, const char *run, struct err *e);
/* Sockets would be lost with us: a worker that dies at once is no reason to end.  But if another
 * agentd waits, it can do better. */
bool succession_is_patient(const struct succession *s);

/* The run directory is ours: from now on another one may ask. */
int succession_open(
    struct succession *s, struct keeper *keeper, int epoll, const char *run, struct err *e);
void succession_close(struct succession *s);

void succession_upgrade(struct succession *s); /* SIGUSR2 */
bool succession_reaped(struct succession *s, pid_t pid, int status);
void succession_ready(struct succession *s); /* a worker is */
void succession_alive(struct succession *s); /* its loop turned */
/* For people: an upgrade was refused, until the next one is tried; or the service manager's. */
const char *succession_problem(const struct succession *s); /* NULL: there is none */
