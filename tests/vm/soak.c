/* soak.c - connections of every kind without pause, while agentd is killed and comes back, each
 * time with another mode: off, between app and Envoy, between Envoys too.
 *
 * Three children, each with both ends in hand: an app dials, an Envoy dials its app, an Envoy dials
 * the peer's.  What they did stands in memory that all share.
 */
#include "broker/redirect/accelerate.h"
#include "checks.h"
#include "lanes.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum way { OUTBOUND, INBOUND, BETWEEN, WAYS };
enum { STUCK_EACH = 200, POLL_US = 1000 };

struct wanted {
	uint64_t bytes, connections, kills;
};
struct progress {
	volatile uint64_t bytes, connections;
	volatile bool done;
	char wrong[96];
};
struct soaking {
	const struct world *w;
	enum way way;
	uint64_t bytes, connections;
	struct progress *seen;
};

/* --- a child --- */

/* Ports of ends that wait for their minute are used again. */
static void reuse_ports(void)
{
	int fd = open("/proc/sys/net/ipv4/tcp_tw_reuse", O_WRONLY | O_CLOEXEC);

	if (write(fd, "1", 1) != 1)
		broken("tcp_tw_reuse");
	close(fd);
}

static int listen_for(const struct soaking *s)
{
	int listener;

	lanes_become(0);
	reuse_ports();
	if (s->way == OUTBOUND)
		return lanes_listen(ENVOY, OUT);
	if (s->way == INBOUND)
		return lanes_listen(APP, APP_PORT);
	listener = lanes_listen(ENVOY, IN);
	lanes_move_to(&s->w->pod);
	reuse_ports();
	lanes_become(ENVOY);
	return listener;
}

static struct pair next_pair(const struct soaking *s, int listener, uint64_t i)
{
	return s->way == BETWEEN ? lanes_join_between(listener, i % 2)
				 : lanes_join(listener, s->way == INBOUND);
}

/* Streams as many as the bytes need, evenly among the other kinds. */
static const char *tell_next(const struct soaking *s, const struct pair *p, uint64_t i)
{
	static const char *(*const small[])(const struct pair *) = {
	    lanes_word, lanes_half_closed, lanes_reset};

	if (i * s->bytes / s->connections >= lanes_read)
		return lanes_edges(p);
	if (i % STUCK_EACH == STUCK_EACH - 1)
		return lanes_stuck(p);
	return small[i % (sizeof(small) / sizeof(*small))](p);
}

static void soak_way(void *ctx, void *result)
{
	const struct soaking *s = ctx;
	const char *wrong = NULL;
	int listener = listen_for(s);

	for (uint64_t i = 0; !wrong && (i < s->connections || lanes_read < s->bytes); i++) {
		struct pair p = next_pair(s, listener, i);
		wrong = tell_next(s, &p, i);
		lanes_part(&p);
		s->seen->bytes = lanes_read;
		s->seen->connections = i + 1;
	}
	if (wrong)
		snprintf(s->seen->wrong, sizeof(s->seen->wrong), "%s, after %llu", wrong,
		    (unsigned long long)s->seen->connections);
	*(char *)result = 1;
}

/* -> a child, which has ended when that is done. */
static pid_t soak_apart(struct soaking *s)
{
	pid_t pid;
	char ended = 0;

	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	if (visit(s->way == BETWEEN ? &s->w->peer : &s->w->pod, (struct who){0, 0}, soak_way, s,
		&ended, 1) ||
	    !ended)
		snprintf(s->seen->wrong, sizeof(s->seen->wrong), "it died");
	s->seen->done = true;
	_exit(0);
}

/* --- who kills --- */

static bool all_done(const struct progress seen[WAYS])
{
	return seen[OUTBOUND].done && seen[INBOUND].done && seen[BETWEEN].done;
}

static uint64_t sum_of(const struct progress seen[WAYS])
{
	return seen[OUTBOUND].connections + seen[INBOUND].connections + seen[BETWEEN].connections;
}

static int renew(struct loader *l, const struct world *w, uint64_t turn, struct err *why)
{
	static const uint32_t modes[] = {
	    0, REDIRECT_ACCELERATE, REDIRECT_ACCELERATE | REDIRECT_ACCELERATE_NODE};
	struct redirect_rules rules = default_rules();

	loader_end(l);
	rules.flags |= modes[turn % 3];
	if (loader_start(l, w, LOADER_CAPS, RLIM, why) || loader_set(l, &rules, why) ||
	    loader_live(l, why))
		return -1;
	return loader_set_peer(l, &rules, why);
}

/* Each time so much went on with the mode that a change of it finds connections of all kinds. */
static uint64_t kill_again(struct loader *l, const struct world *w, const struct wanted *wanted,
    const struct progress seen[WAYS])
{
	const uint64_t step = wanted->connections / wanted->kills / 2 + 1;
	uint64_t kills = 0;
	struct err why;

	for (; !all_done(seen) || kills < wanted->kills; kills++) {
		uint64_t before = sum_of(seen);
		if (renew(l, w, kills, &why)) {
			check(false, "agentd comes back", "%s", why.msg);
			break;
		}
		while (!all_done(seen) && sum_of(seen) < before + step)
			usleep(POLL_US);
	}
	return kills;
}

static void tell(const struct world *w, const struct progress seen[WAYS], uint64_t kills)
{
	const struct accelerate_row c = lanes_counted(w);
	uint64_t bytes = 0;

	for (int i = 0; i < WAYS; i++)
		bytes += seen[i].bytes;
	printf("measured: %llu connections, %llu MiB read as they were written; agentd was killed "
	       "%llu times, each time its mode was another one\n",
	    (unsigned long long)sum_of(seen), (unsigned long long)(bytes >> 20),
	    (unsigned long long)kills);
	printf("measured: accelerated between app and Envoy: %llu connections, %llu MiB, and %llu "
	       "MiB by TCP; between Envoys: %llu, %llu MiB, %llu MiB\n",
	    (unsigned long long)c.loopback.lanes, (unsigned long long)(c.loopback.given >> 20),
	    (unsigned long long)(c.loopback.passed >> 20), (unsigned long long)c.between.lanes,
	    (unsigned long long)(c.between.given >> 20),
	    (unsigned long long)(c.between.passed >> 20));
	check(c.loopback.given && c.between.given, "some of it was accelerated", "%s", "");
}

static void soak(struct loader *l, const struct world *w, const struct wanted *wanted)
{
	static const char *const names[] = {"apps dial", "Envoy dials its app", "two Envoys"};
	struct soaking s = {.w = w,
	    .bytes = wanted->bytes / WAYS + 1,
	    .connections = wanted->connections / WAYS + 1};
	struct progress *seen = mmap(
	    NULL, WAYS * sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t children[WAYS];

	for (int i = 0; i < WAYS; i++) {
		s.way = (enum way)i;
		s.seen = &seen[i];
		children[i] = soak_apart(&s);
	}
	uint64_t kills = kill_again(l, w, wanted, seen);
	for (int i = 0; i < WAYS; i++) {
		waitpid(children[i], NULL, 0);
		check(!*seen[i].wrong, names[i], "%s", seen[i].wrong);
	}
	tell(w, seen, kills);
	lanes_nothing_stays(w);
}

void check_soak(const struct world *w, char *const words[3])
{
	const struct wanted wanted = {strtoull(words[0], NULL, 10), strtoull(words[1], NULL, 10),
	    strtoull(words[2], NULL, 10)};
	struct loader l = {.pid = 0};
	struct err why;

	part("soak of acceleration");
	if (renew(&l, w, 2, &why))
		check(false, "agentd starts", "%s", why.msg);
	if (map_count(w, "givers") >= 0) {
		soak(&l, w, &wanted);
	} else {
		check(redirect_accelerate_try(false, &why) != 0, "refused by a kernel that can",
		    "%s", "");
		printf("measured: not accelerated: %s\n", why.msg);
	}
	loader_end(&l);
}
