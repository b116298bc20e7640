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
	struct broker_keeper *keeper; /* these four before broker_succession_open() */
	struct broker_kept *kept;
	const struct broker_options *options;
	char **argv; /* main()'s */
	struct broker_timer trial;
	int before;   /* to the agentd that handed over and waits for our worker; -1: none */
	bool is_over; /* another one has taken over: end, and touch nothing */
};

/* First of all, before anything is made: what an earlier agentd or systemd kept is found, by
 * whichever way it came. */
int broker_succession_inherit(
    struct broker_succession *s, const struct broker_options *o, struct broker_why *w);

int broker_succession_open(struct broker_succession *s, int epoll, struct broker_why *w);
void broker_succession_close(struct broker_succession *s);

void broker_succession_upgrade(struct broker_succession *s); /* SIGUSR2 */
bool broker_succession_reaped(struct broker_succession *s, pid_t pid, int status);
void broker_succession_ready(struct broker_succession *s); /* a worker is */
