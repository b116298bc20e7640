/* sockets.h - who listens, who dials, and what each end of a connection saw. */
#pragma once
#include "world.h"
#include <netinet/in.h>
#include <stdbool.h>

enum { PORTS_MAX = 8 };

/* Listeners of one user, TCP (each connection is told what was seen of it) and UDP (echoes, from
 * the address that was asked).  A `mark` is the map of sockets: they are the pod's DNS proxy. */
struct server {
	uint16_t name; /* is told to clients */
	struct who who;
	uint16_t tcp[PORTS_MAX], udp[PORTS_MAX]; /* up to the first 0 */
	int mark;                                /* 0: none */
	uint32_t index;
};
pid_t serve(const struct place *p, const struct server *s);

struct dial {
	const char *to;
	uint16_t port;
	const char *from; /* bound to before; NULL: not */
	bool mapped;      /* an IPv4 address, dialled from an IPv6 socket */
	int patience;     /* seconds; 0: a few */
	int again;        /* so many further connections; the first that differs is the result */
};
/* Addresses are text, IPv4 never as mapped. */
struct seen {
	char to[TEXT]; /* as it was dialled */
	int error;     /* errno of the dialler, and then nothing else */
	uint16_t name, port, original_port, peername_port;
	char original[TEXT], peer[TEXT], local[TEXT]; /* at the accepting end */
	char peername[TEXT], sockname[TEXT];
};
#define TO(address, number) (&(struct dial){.to = (address), .port = (number)})
#define LONG(address, number) ((struct dial){.to = (address), .port = (number), .patience = 20})
struct seen dial(const struct place *p, struct who who, const struct dial *d);

/* One socket that asks several servers by turns; `sources` are where the answers came from. */
struct ask {
	const char *servers[3];
	bool connected;
};
struct answers {
	int error, n;
	uint16_t name[3];
	char source[3][TEXT];
};
struct answers ask(const struct place *p, struct who who, const struct ask *a);

/* Shared by all who load, in memory that they share. */
struct tally {
	uint64_t good, bad;
	struct seen wrong; /* one that was bad */
};
/* Dials until it is evicted, with the patience of an ordinary client. */
struct load {
	struct dial dial;
	uint16_t port; /* where all must end */
	struct tally *tally;
};
struct tally *tally_new(void);
pid_t load(const struct place *p, struct who who, struct load *l);
