/* succession.h - when this agentd makes room for another: an upgrade in place (SIGUSR2) or a
 * hand-over; and what it takes over from the previous one.
 *
 * Either way the worker ends first, in order, and if nothing comes of it the next worker starts.
 *
 * A hand-over is a trial of the new one: it is over when the new one serves each pod that the old
 * one served (LINK_SERVED).  Until then nothing that the old one left is swept.  What does not come
 * to that in time is given back: the worker ends, all is left as it is, and the old one goes on.
 * Then a pause, and the old one is asked again; at once if it has ended.  With nobody to give back
 * to, an agentd serves what it can, and is not ready.
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
	struct broker *broker;
	struct alive *alive;
	struct broker_timer trial;   /* of an upgrade, or of ourselves */
	struct handover_from before; /* waits for us */
	bool in_charge;              /* for good: we served all that was served before us */
	bool is_over;                /* another one has the pods: end, and touch nothing */
	bool given_back;             /* besides, it is the one before us */
	char lost[LINK_SERVED_SIZE]; /* names and reasons, a line each */
	char refused[ERR_MSG_SIZE];  /* the last upgrade, and why; "": it was not */
};
/* How long to wait before an agentd that gave back asks again; `times` it did.  Pure. */
int64_t succession_pause_ms(unsigned times, unsigned seconds);

/* Before anything else is opened: what an earlier agentd with this pid or systemd kept is found.
 * `argv`: main()'s. */
void succession_inherit(
    struct succession *s, struct broker_fdstore *k, struct alive *a, char **argv);
/* --take-over: what the agentd that holds <run> gives.  There is none: fine.  `seconds`: of the
 * trial. */
int succession_take_over(struct succession *s, const char *run, unsigned seconds, struct err *e);
/* Sockets would be lost with us: a worker that dies at once is no reason to end.  But if another
 * agentd waits, it can do better. */
bool succession_is_patient(const struct succession *s);

/* The run directory is ours: from now on another one may ask. */
struct succession_of {
	struct broker *broker;
	struct keeper *keeper;
	const char *run;
	unsigned seconds;
};
int succession_open(struct succession *s, const struct succession_of *of, struct err *e);
void succession_close(struct succession *s);
/* After that, and after the broker: the one before may go on. */
void succession_give_back(struct succession *s);

void succession_upgrade(struct succession *s); /* SIGUSR2 */
bool succession_reaped(struct succession *s, pid_t pid, int status);
void succession_ready(struct succession *s);                                  /* a worker is */
void succession_served(struct succession *s, unsigned lost, const char *why); /* broker.h */
void succession_alive(struct succession *s);                                  /* its loop turned */
/* For people: an upgrade was refused, until the next one is tried; or the service manager's. */
const char *succession_problem(const struct succession *s); /* NULL: there is none */
