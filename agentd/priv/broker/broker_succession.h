/* broker_succession.h - when this agentd makes room for another: an upgrade in place (SIGUSR2) or a
 * hand-over; and what it takes over from the one before.
 *
 * Either way the worker ends first, in order, and if nothing comes of it the next worker starts.
 */
#pragma once
#include "broker_handover.h"
#include "broker_keeper.h"
#include "broker_upgrade.h"

struct broker_succession {
	struct broker_upgrade upgrade;
	struct broker_handover handover;
	struct broker_fdstore *kept;
	struct broker_keeper *keeper;
	const char *run;
	struct broker_timer trial;
	int before;   /* to the agentd that handed over and waits for our worker; -1: none */
	bool is_over; /* another one has taken over: end, and touch nothing */
};

/* Before anything else is opened: what an earlier agentd with this pid or systemd kept is found.
 * `argv`: main()'s. */
void broker_succession_inherit(struct broker_succession *s, struct broker_fdstore *k, char **argv);
/* --take-over: what the agentd that holds <run> gives.  There is none: fine. */
int broker_succession_take_over(struct broker_succession *s, const char *run, struct broker_why *w);
/* Sockets would be lost with us: a worker that dies at once is no reason to end.  But if another
 * agentd waits, it can do better. */
bool broker_succession_is_patient(const struct broker_succession *s);

/* The run directory is ours: from now on another one may ask. */
int broker_succession_open(struct broker_succession *s, struct broker_keeper *keeper, int epoll,
    const char *run, struct broker_why *w);
void broker_succession_close(struct broker_succession *s);

void broker_succession_upgrade(struct broker_succession *s); /* SIGUSR2 */
bool broker_succession_reaped(struct broker_succession *s, pid_t pid, int status);
void broker_succession_ready(struct broker_succession *s); /* a worker is */
void broker_succession_alive(struct broker_succession *s); /* its loop turned */
