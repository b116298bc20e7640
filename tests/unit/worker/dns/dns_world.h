/* dns_world.h - a DNS proxy, a client of it and two resolvers, in a network namespace of the test's
 * own: 127.0.0.0/8, ::1 and 10.0.0.7 are all there is, and sockets are real.
 */
#pragma once
#include "common/err.h"
#include "common/mem.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "worker/dns/proxy.h"
#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include <cmocka.h>

enum { PORT = 15053, SIZE = 2048 };

extern const struct uuid pod;

struct world {
	struct loop *l;
	struct link *link;
	struct dns_server servers[2];
	struct dns_upstream_options o;
	struct dns_proxy *p;
	int client;              /* UDP, to 127.0.53.2 */
	int resolver[2];         /* UDP, at 127.0.1.1 and 127.0.1.2 */
	struct sockaddr_in from; /* of what a resolver was asked last */
	uint8_t in[65536];
	size_t size;
};
extern struct world w;

/* --- the world --- */

struct sockaddr_in at(const char *address, uint16_t port);
int socket_at(int type, const char *address, uint16_t port);

/* As the broker makes them. */
int proxy_socket(int type);
int dial(int type, const char *address, uint16_t port);
void own_network(void);
void turn(void);
void serve(void);
int setup(void **state);
int teardown(void **state);

/* A table of one name. */
void know(const char *host, const char *ip);

/* --- messages --- */

size_t question(uint8_t *out, uint16_t id, const char *name, uint16_t type);
void ask(uint16_t id, const char *name, uint16_t type);

/* The lane that the proxy wants is given to it, as a socket of the pod's. */
void give_lane(void);
void give_lanes(void);
bool receive(int fd);

/* Was this resolver asked? */
bool asked(int which);
void answer_by(int fd, int code);
void answer(int which, int code);
void answered(uint16_t id, int code);
