/* accelerate.c - an app and its Envoy, accelerated, and two Envoys: what is written is read, once
 * and in order.
 *
 * A kernel that cannot says why, and everything goes as without.
 */
#include "broker/redirect/accelerate.h"
#include "checks.h"
#include "lanes.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECTIONS = 200, PIECE = 1 << 17 };

/* Where an Envoy dials from, while its child listens as another. */
struct story {
	bool back; /* the one that accepted writes */
	const struct place *from;
};
struct outcome {
	char wrong[96];
};

/* Of the first connections; the others say some words. */
static const char *(*const stories[])(const struct pair *) = {
    lanes_words, lanes_half_closed, lanes_reset, lanes_stuck, lanes_edges};

static void tell_between(void *ctx, void *result)
{
	const struct story *s = ctx;
	struct outcome *out = result;
	int listener = lanes_listen(ENVOY, IN);

	lanes_move_to(s->from);
	lanes_become(ENVOY);
	for (size_t i = 0; i < CONNECTIONS && !*out->wrong; i++) {
		struct pair p = lanes_join_between(listener, s->back);
		const char *wrong =
		    i < sizeof(stories) / sizeof(*stories) ? stories[i](&p) : lanes_words(&p);
		lanes_part(&p);
		if (wrong)
			snprintf(out->wrong, sizeof(out->wrong), "%s", wrong);
	}
	close(listener);
}

static void tell_all(void *ctx, void *result)
{
	bool inbound = *(const bool *)ctx;
	struct outcome *out = result;
	int listener = inbound ? lanes_listen(APP, APP_PORT) : lanes_listen(ENVOY, OUT);

	for (size_t i = 0; i < CONNECTIONS; i++) {
		struct pair p = lanes_join(listener, inbound);
		const char *wrong =
		    i < sizeof(stories) / sizeof(*stories) ? stories[i](&p) : lanes_words(&p);
		lanes_part(&p);
		if (wrong) {
			snprintf(out->wrong, sizeof(out->wrong), "%s", wrong);
			break;
		}
	}
	close(listener);
}

/* --- the checks --- */

static void must_tell(const struct world *w, bool inbound, const char *name)
{
	struct outcome out = {""};
	int rc = visit(&w->pod, (struct who){0, 0}, tell_all, &inbound, &out, sizeof(out));

	check(!rc && !*out.wrong, name, "%s", rc ? "it died" : out.wrong);
}

static void must_tell_between(const struct world *w, bool back, const char *name)
{
	struct story s = {.back = back, .from = &w->pod};
	struct outcome out = {""};
	int rc = visit(&w->peer, (struct who){0, 0}, tell_between, &s, &out, sizeof(out));

	check(!rc && !*out.wrong, name, "%s", rc ? "it died" : out.wrong);
}

/* --- memory --- */

enum { HELD = 32, HELD_EACH = 60000 };
struct charged {
	long long before, held, after; /* -1: this kernel, or this node, does not say */
};

/* Bytes of sockets, of the pod's cgroup. */
static long long charged_to(const struct place *p)
{
	char text[4096];
	int fd = openat(p->cgroup, "memory.stat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	const char *line;

	close(fd);
	if (n < 0)
		return -1;
	text[n] = '\0';
	line = strstr(text, "\nsock ");
	return line ? strtoll(line + strlen("\nsock "), NULL, 10) : -1;
}

static void hold_unread(void *ctx, void *result)
{
	static const char bytes[HELD_EACH];
	const struct world *w = ctx;
	struct charged *c = result;
	struct pair p[HELD];
	int listener = lanes_listen(ENVOY, OUT);

	c->before = charged_to(&w->pod);
	for (int i = 0; i < HELD; i++) {
		p[i] = lanes_join(listener, false);
		if (write(p[i].app, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes))
			broken("a write that is held");
	}
	c->held = charged_to(&w->pod);
	for (int i = 0; i < HELD; i++)
		lanes_part(&p[i]);
	c->after = charged_to(&w->pod);
	/* Some kernels tell it two seconds later. */
	for (int i = 0; i < 600 && c->after - c->before >= HELD * HELD_EACH / 2; i++) {
		usleep(100000);
		c->after = charged_to(&w->pod);
	}
	close(listener);
}

/* What waits in a queue past TCP is the pod's memory all the same, and is given back. */
static void check_memory(const struct world *w)
{
	const uint64_t before = lanes_counted(w).loopback.given;
	struct charged c;

	if (visit(&w->pod, (struct who){0, 0}, hold_unread, (void *)w, &c, sizeof(c)))
		check(false, "bytes that wait", "%s", "it died");
	check(lanes_counted(w).loopback.given - before == HELD * HELD_EACH,
	    "all that waits went from socket to socket", "%llu bytes",
	    (unsigned long long)(lanes_counted(w).loopback.given - before));
	if (c.held < 0)
		return;
	check(
	    c.held - c.before >= HELD * HELD_EACH / 2 && c.after - c.before < HELD * HELD_EACH / 2,
	    "it is charged to the pod's cgroup, and given back", "%lld, %lld, %lld", c.before,
	    c.held, c.after);
}

/* The peer's programs are those of a pod for the while. */
static void check_between(
    struct loader *l, const struct world *w, const struct redirect_rules *rules)
{
	struct accelerate_counts c;
	struct err why;

	if (loader_set_peer(l, rules, &why))
		check(false, "another pod that accelerates", "%s", why.msg);
	check(map_count(w, "homes") >= 2, "two pods' addresses are theirs", "%d",
	    map_count(w, "homes"));
	must_tell_between(w, false, "an Envoy writes to another");
	must_tell_between(w, true, "and that one to the first");
	c = lanes_counted(w).between;
	/* It is the dialler's words that count, and in some stories it has none. */
	check(
	    c.lanes >= 2 * CONNECTIONS - sizeof(stories) / sizeof(*stories) && c.given > 2 * PIECE,
	    "bytes from Envoy to Envoy", "%llu connections, %llu bytes",
	    (unsigned long long)c.lanes, (unsigned long long)c.given);
	lanes_nothing_stays(w);
	if (loader_remove_peer(l, &why))
		check(false, "the other pod goes", "%s", why.msg);
}

void check_acceleration(struct loader *l, const struct world *w)
{
	struct redirect_rules rules = default_rules();
	char path[2 * TEXT];
	struct err why;

	part("acceleration");
	rules.flags |= REDIRECT_ACCELERATE | REDIRECT_ACCELERATE_NODE;
	if (loader_set(l, &rules, &why) || loader_live(l, &why))
		check(false, "rules that accelerate", "%s", why.msg);
	must_tell(w, false, "an app writes to its Envoy, outbound");
	must_tell(w, true, "an app writes to its Envoy, inbound");
	snprintf(path, sizeof(path), "%s/agentd/v%d/map_givers", w->bpffs, REDIRECT_LAYOUT);
	if (access(path, F_OK)) {
		int rc = redirect_accelerate_try(false, &why);
		check(rc != 0, "acceleration refused by a kernel that can", "%s", "");
		printf("     not accelerated: %s\n", rc ? why.msg : "");
		return;
	}
	struct accelerate_counts c = lanes_counted(w).loopback;
	check(c.lanes >= 2 * CONNECTIONS && c.given > PIECE, "bytes from socket to socket",
	    "%llu connections, %llu bytes", (unsigned long long)c.lanes,
	    (unsigned long long)c.given);
	check_memory(w);
	check_ktls(w);
	lanes_nothing_stays(w);
	check_between(l, w, &rules);
}
