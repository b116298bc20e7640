/* load.c - speaks SDS and ADS to an agent's unix socket, or ADS to a control plane, and measures.
 *
 *   sds TARGET STREAMS SECONDS   fetches of `default`, each on a stream of its own, STREAMS at a
 * time, on one connection.
 *   ads TARGET SIZE COUNT        COUNT pushes of SIZE bytes one after another; the other side must
 * be plane.c, or an agent in front of it.
 *   each TARGET SIZE COUNT       COUNT changes of the mesh, each of four pushes of SIZE bytes.
 *   first SOCKET COUNT           COUNT times connect, ask, be answered; SOCKET need not be there.
 *   hold [deaf|back|nosds]       For each line "SDS-SOCKET ADS-SOCKET" of the input a pod of its
 * own network namespace: 2 SDS streams, 1 ADS stream with CDS and LDS, the first request of each as
 * large as Envoy's.  A line is printed whenever all of them have everything, with how many came
 * back so far.  A line "push SIZE": each is pushed so much at once, by plane.c.  "-" is no socket:
 * nothing is asked for there. nosds: secrets are not waited for.  deaf: what ADS sends is never
 * read.  back: who loses a connection or a stream connects both again at once, and tries again
 * until somebody is there; the others die.
 *
 * Results are lines of JSON; times are microseconds.  Every answer is ACKed.  Enter a pod's network
 * namespace before the start (nsenter): agents that look at it refuse the host's.
 */
#include "common/mem.h"
#include "times.h"
#include "xds.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ENVOY_NODE = 60 * 1000, SMALL_NODE = 100, PODS_MAX = 1000, RETRY_US = 200, LINE = 400 };
enum { RETRY_MS = 5 };

/* --- sds: many fetches --- */

struct sds {
	struct h2 *h2;
	struct times times;
	int64_t end;
	size_t active, failed;
};

struct fetch {
	struct sds *sds;
	struct xds x;
	int64_t start;
	bool answered;
};

static void fetch_start(struct fetch *f);

static void on_fetched(void *ctx, size_t size)
{
	struct fetch *f = ctx;

	(void)size;
	if (f->answered)
		return;
	times_note(&f->sds->times, now_ns(CLOCK_MONOTONIC) - f->start);
	f->answered = true;
	xds_ask(&f->x, &(struct xds_ask){TYPE_SDS, "default", 0, .ack = true, .last = true});
}

static void on_fetch_closed(void *ctx)
{
	struct fetch *f = ctx;

	f->sds->failed += !f->answered;
	if (f->sds->failed > 1000)
		die("a thousand fetches failed");
	if (now_ns(CLOCK_MONOTONIC) < f->sds->end)
		fetch_start(f);
	else
		f->sds->active--;
}

static void fetch_start(struct fetch *f)
{
	static const struct xds_events events = {on_fetched, on_fetch_closed};

	f->answered = false;
	f->start = now_ns(CLOCK_MONOTONIC);
	xds_open_sds(&f->x, f->sds->h2, &events, f);
	xds_ask(&f->x, &(struct xds_ask){TYPE_SDS, "default", SMALL_NODE, false, false});
}

static struct h2 *must_connect(const char *target)
{
	struct h2 *h = h2_connect(target);

	if (!h)
		die("cannot connect");
	return h;
}

static void run_sds(const char *target, size_t streams, double seconds)
{
	struct sds s = {.h2 = must_connect(target), .active = streams};
	struct fetch *fetches = mem_zalloc(streams * sizeof(*fetches));
	int64_t start = now_ns(CLOCK_MONOTONIC);

	s.end = start + (int64_t)(seconds * 1e9);
	for (size_t i = 0; i < streams; i++) {
		fetches[i].sds = &s;
		fetch_start(&fetches[i]);
	}
	while (s.active && h2_turn(s.h2))
		;
	if (s.active)
		die("the connection ended");
	times_print(&s.times, (double)(now_ns(CLOCK_MONOTONIC) - start) / 1e9);
	printf(", \"failed\": %zu}\n", s.failed);
}

/* --- ads: pushes one after another --- */

enum { PUSHES_OF_A_CHANGE = 4 };

struct ads {
	struct xds x;
	struct times times;
	const char *what; /* plane.c's word */
	size_t each;      /* pushes that answer one request */
	size_t size, left, sequence, came;
	int64_t start;
};

static void ask_push(struct ads *a, bool first)
{
	char name[80];

	snprintf(name, sizeof(name), "%s:%zu:%zu", a->what, a->size, a->sequence++);
	a->came = 0;
	a->start = now_ns(CLOCK_MONOTONIC);
	xds_ask(&a->x, &(struct xds_ask){TYPE_EDS, name, first ? SMALL_NODE : 0, !first, false});
}

static void on_push(void *ctx, size_t size)
{
	struct ads *a = ctx;

	if (size < a->size)
		die("a push is too short");
	if (++a->came < a->each) {
		xds_ask(&a->x, &(struct xds_ask){a->x.type, NULL, .ack = true});
		return;
	}
	if (a->sequence > 1) /* the first also opens the stream to the control plane */
		times_note(&a->times, now_ns(CLOCK_MONOTONIC) - a->start);
	if (a->left-- > 0)
		ask_push(a, false);
}

static void on_ads_closed(void *ctx)
{
	(void)ctx;
	die("the ADS stream was ended");
}

static void run_ads(const char *target, size_t each, size_t size, size_t count)
{
	static const struct xds_events events = {on_push, on_ads_closed};
	struct h2 *h = must_connect(target);
	struct ads a = {
	    .what = each > 1 ? "each" : "bytes", .each = each, .size = size, .left = count};
	double sum = 0;

	xds_open_ads(&a.x, h, &events, &a);
	ask_push(&a, true);
	while (a.times.n < count)
		if (!h2_turn(h))
			die("the connection ended");
	for (size_t i = 0; i < a.times.n; i++)
		sum += (double)a.times.ns[i] / 1e9;
	times_print(&a.times, sum);
	printf("}\n");
	h2_free(&h);
}

/* --- first: the first secret of a connection --- */

static void on_first(void *ctx, size_t size)
{
	(void)size;
	*(bool *)ctx = true;
}

static void on_first_closed(void *ctx)
{
	(void)ctx;
}

/* False: there is nobody, or he hung up. */
static bool first_once(const char *target)
{
	static const struct xds_events events = {on_first, on_first_closed};
	struct h2 *h = h2_connect(target);
	bool answered = false;
	struct xds x;

	if (!h)
		return false;
	xds_open_sds(&x, h, &events, &answered);
	xds_ask(&x, &(struct xds_ask){TYPE_SDS, "default", SMALL_NODE, false, false});
	while (!answered && x.stream && h2_turn(h))
		;
	h2_free(&h);
	return answered;
}

static void run_first(const char *target, size_t count)
{
	struct times times = {0};
	int64_t answered = 0, start, begin = now_ns(CLOCK_MONOTONIC);

	while (times.n < count) {
		start = now_ns(CLOCK_MONOTONIC);
		if (first_once(target)) {
			times_note(&times, now_ns(CLOCK_MONOTONIC) - start);
			answered = answered ? answered : now_ns(CLOCK_REALTIME);
		} else {
			if (start - begin > 60000000000)
				die("no secret for a minute");
			usleep(RETRY_US);
		}
	}
	times_print(&times, (double)(now_ns(CLOCK_MONOTONIC) - begin) / 1e9);
	printf(", \"first_at\": %.6f}\n", (double)answered / 1e9);
}

/* --- hold: many pods that do nothing --- */

enum {
	HAS_CERT = 1,
	HAS_ROOT = 2,
	HAS_CDS = 4,
	HAS_LDS = 8,
	HAS_PUSH = 16,
	HAS_SDS = 3,
	HAS_ADS = 12,
	HAS_ALL = 15
};

struct pod {
	char at[2][LINE]; /* SDS and ADS sockets */
	int netns;
	bool lost;
	struct h2 *sds, *ads;
	struct xds cert, root, discovery;
	unsigned has;
};

static struct pod *pods[PODS_MAX];
static size_t npods;
static unsigned wanted = HAS_ALL;
static size_t told, came_back; /* so many had everything */
static size_t push_size;
static bool may_come_back;

static void lose(struct pod *p, const char *what)
{
	if (!may_come_back)
		die(what);
	p->lost = true;
}

static void ack(struct xds *x, const char *name)
{
	xds_ask(x, &(struct xds_ask){x->type, name, .ack = true});
}

static void on_cert(void *ctx, size_t size)
{
	struct pod *p = ctx;

	(void)size;
	p->has |= HAS_CERT;
	ack(&p->cert, "default");
}

static void on_root(void *ctx, size_t size)
{
	struct pod *p = ctx;

	(void)size;
	p->has |= HAS_ROOT;
	ack(&p->root, "ROOTCA");
}

static void on_discovery(void *ctx, size_t size)
{
	struct pod *p = ctx;

	if (strcmp(p->discovery.type, TYPE_EDS) != 0)
		p->has |= !strcmp(p->discovery.type, TYPE_LDS) ? HAS_LDS : HAS_CDS;
	else if (size >= push_size)
		p->has |= HAS_PUSH;
	ack(&p->discovery, NULL);
}

static void on_pod_closed(void *ctx)
{
	lose(ctx, "a stream was ended");
}

static void ask_for_push(struct pod *p)
{
	char name[80];

	p->has &= ~(unsigned)HAS_PUSH;
	snprintf(name, sizeof(name), "bytes:%zu:", push_size);
	xds_ask(&p->discovery, &(struct xds_ask){TYPE_EDS, name, 0, false, false});
}

static bool is_there(const char *at)
{
	return strcmp(at, "-") != 0;
}

/* False: there is nobody at one of its sockets. */
static bool dial(struct pod *p)
{
	p->sds = is_there(p->at[0]) ? h2_connect(p->at[0]) : NULL;
	p->ads = is_there(p->at[1]) ? h2_connect(p->at[1]) : NULL;
	return !is_there(p->at[0]) == !p->sds && !is_there(p->at[1]) == !p->ads;
}

static void ask_secrets(struct pod *p)
{
	static const struct xds_events cert = {on_cert, on_pod_closed},
				       root = {on_root, on_pod_closed};

	xds_open_sds(&p->cert, p->sds, &cert, p);
	xds_open_sds(&p->root, p->sds, &root, p);
	xds_ask(&p->cert, &(struct xds_ask){TYPE_SDS, "default", ENVOY_NODE, false, false});
	xds_ask(&p->root, &(struct xds_ask){TYPE_SDS, "ROOTCA", ENVOY_NODE, false, false});
	if (!h2_flush(p->sds))
		lose(p, "a connection ended");
}

static void ask_configuration(struct pod *p)
{
	static const struct xds_events discovery = {on_discovery, on_pod_closed};

	xds_open_ads(&p->discovery, p->ads, &discovery, p);
	xds_ask(&p->discovery, &(struct xds_ask){TYPE_CDS, NULL, ENVOY_NODE, false, false});
	xds_ask(&p->discovery, &(struct xds_ask){TYPE_LDS, NULL, 0, false, false});
	if (push_size)
		ask_for_push(p);
	if (!h2_flush(p->ads))
		lose(p, "a connection ended");
}

static void connect_pod(struct pod *p)
{
	p->lost = false;
	p->has = (is_there(p->at[0]) ? 0 : HAS_SDS) | (is_there(p->at[1]) ? 0 : HAS_ADS);
	if (!dial(p)) {
		h2_free(&p->sds);
		h2_free(&p->ads);
		lose(p, "cannot connect");
		return;
	}
	if (p->sds)
		ask_secrets(p);
	if (p->ads)
		ask_configuration(p);
}

static void add_pod(const char *sds, const char *ads)
{
	struct pod *p = mem_zalloc(sizeof(*p));

	if (npods == PODS_MAX || unshare(CLONE_NEWNET))
		die("no network namespace");
	pods[npods++] = p;
	p->netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	snprintf(p->at[0], LINE, "%s", sds);
	snprintf(p->at[1], LINE, "%s", ads);
	connect_pod(p);
}

static void come_back(struct pod *p)
{
	h2_free(&p->sds);
	h2_free(&p->ads);
	memset(&p->cert, 0, sizeof(p->cert));
	memset(&p->root, 0, sizeof(p->root));
	memset(&p->discovery, 0, sizeof(p->discovery));
	told = 0;
	came_back++;
	if (setns(p->netns, CLONE_NEWNET))
		die("setns");
	connect_pod(p);
}

static void tell_if_all(void)
{
	size_t n = 0;

	while (n < npods && (pods[n]->has & wanted) == wanted)
		n++;
	if (n < npods || n == told)
		return;
	told = n;
	printf("{\"held\": %zu, \"back\": %zu}\n", n, came_back);
	fflush(stdout);
}

static void take_turn(struct pod *p, struct h2 *h, short events)
{
	if (events && !p->lost && (!h2_turn(h) || !h2_flush(h)))
		lose(p, "a connection ended");
}

static void push_all(size_t size)
{
	push_size = size;
	wanted |= HAS_PUSH;
	told = 0;
	for (size_t i = 0; i < npods; i++) {
		ask_for_push(pods[i]);
		if (!h2_flush(pods[i]->ads))
			lose(pods[i], "a connection ended");
	}
}

static struct pollfd of(const struct h2 *h)
{
	return (struct pollfd){h ? h2_fd(h) : -1, POLLIN, 0};
}

/* All of them once; the rest try again a bit later. */
static bool bring_back(void)
{
	bool all = true;

	for (size_t i = 0; i < npods; i++) {
		if (pods[i]->lost)
			come_back(pods[i]);
		all = all && !pods[i]->lost;
	}
	return all;
}

static bool read_line(void)
{
	char line[LINE], sds[LINE], ads[LINE];

	if (!fgets(line, sizeof(line), stdin))
		return false;
	if (sscanf(line, "%s %s", sds, ads) != 2)
		die("a line must be SDS-SOCKET ADS-SOCKET");
	if (!strcmp(sds, "push"))
		push_all(strtoul(ads, NULL, 10));
	else
		add_pod(sds, ads);
	return true;
}

static void run_hold(const char *how)
{
	bool deaf = !strcmp(how, "deaf"), all_there = true;
	struct pollfd *fds = mem_zalloc((2 * PODS_MAX + 1) * sizeof(*fds));

	may_come_back = !strcmp(how, "back");
	wanted = deaf ? HAS_SDS : !strcmp(how, "nosds") ? HAS_ALL & ~HAS_SDS : HAS_ALL;
	setvbuf(stdin, NULL, _IONBF, 0); /* poll() must see the next line */
	for (;;) {
		size_t n = npods;

		fds[2 * n] = (struct pollfd){0, POLLIN, 0};
		for (size_t i = 0; i < n; i++) {
			fds[2 * i] = of(pods[i]->sds);
			fds[2 * i + 1] = of(deaf ? NULL : pods[i]->ads);
		}
		poll(fds, 2 * n + 1, all_there ? -1 : RETRY_MS);
		for (size_t i = 0; i < n; i++) {
			take_turn(pods[i], pods[i]->sds, fds[2 * i].revents);
			take_turn(pods[i], pods[i]->ads, fds[2 * i + 1].revents);
		}
		all_there = bring_back();
		if (fds[2 * n].revents && !read_line())
			return;
		tell_if_all();
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *target = argc > 2 ? argv[2] : "";
	const char *a = argc > 3 ? argv[3] : "1", *b = argc > 4 ? argv[4] : "1";

	if (!strcmp(what, "sds"))
		run_sds(target, strtoul(a, NULL, 10), strtod(b, NULL));
	else if (!strcmp(what, "ads"))
		run_ads(target, 1, strtoul(a, NULL, 10), strtoul(b, NULL, 10));
	else if (!strcmp(what, "each"))
		run_ads(target, PUSHES_OF_A_CHANGE, strtoul(a, NULL, 10), strtoul(b, NULL, 10));
	else if (!strcmp(what, "first"))
		run_first(target, strtoul(a, NULL, 10));
	else if (!strcmp(what, "hold"))
		run_hold(target);
	else
		die("usage is in the head of load.c");
	return 0;
}
