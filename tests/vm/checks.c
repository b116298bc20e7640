/* checks.c - the real kernel: agentd's redirection as a whole, with sockets in Envoy's place.
 *
 * checks [ENVOY]    prints "ok NAME" or "FAIL NAME: what was seen" for each; with a path, the part
 * of envoy.c, with a real Envoy there.  The same program runs here and in every VM of tests/vm/run.
 * A pod's story, in its order: what is refused -> closed -> no Envoy -> an Envoy -> who and where
 * -> DNS -> agentd dies, comes back, is replaced under load -> Envoy dies -> the pod goes -> its
 * Envoy is there before its rules.
 */
#include "checks.h"
#include "common/err.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum {
	PROBE = 8080,
	EXCLUDED_OUT = 9999,
	EXCLUDED_IN = 15020,
	OUT = 15001,
	IN = 15006,
	DNS = 15053
};
enum { NAME_ENVOY = 1, NAME_APP, NAME_PEER, NAME_PROXY };
enum { LOOKS_S = 120 };

static const struct who app = {APP, APP}, envoy = {ENVOY, ENVOY}, root = {0, 0};
static int failed, passed;

void check(bool good, const char *name, const char *fmt, ...)
{
	va_list ap;

	good ? passed++ : failed++;
	printf(good ? "ok   %s" : "FAIL %s: ", name);
	va_start(ap, fmt);
	if (!good)
		vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

void part(const char *name)
{
	printf("== %s\n", name);
}

/* --- what is expected of a connection --- */

static void show(const struct seen *s, char out[512])
{
	snprintf(out, 512, "%s: %s; at %u:%u from %s, wanted %s:%u; dialler: to %s:%u from %s",
	    s->to, s->error ? strerror(s->error) : "answered", s->name, s->port, s->peer,
	    s->original, s->original_port, s->peername, s->peername_port, s->sockname);
}

static bool ends_at(const struct seen *s, const struct dial *d, uint16_t port)
{
	bool captured = port == OUT || port == IN;

	if (s->error || s->port != port || s->peername_port != d->port ||
	    strcmp(s->peername, d->to) != 0)
		return false;
	return !captured || (s->original_port == d->port && !strcmp(s->original, d->to));
}

static void must_end(
    const char *name, const struct place *p, struct who who, const struct dial *d, uint16_t port)
{
	struct seen s = dial(p, who, d);
	char text[512];

	show(&s, text);
	check(ends_at(&s, d, port), name, "%s", text);
}

static void must_fail(
    const char *name, const struct place *p, struct who who, const struct dial *d, int error)
{
	struct seen s = dial(p, who, d);
	char text[512];

	show(&s, text);
	check(s.error == error, name, "wanted %s: %s", strerror(error), text);
}

/* "inbound, IPv6" */
static const char *of(const char *name, int v6)
{
	static char text[128];

	snprintf(text, sizeof(text), "%s, IPv%d", name, v6 ? 6 : 4);
	return text;
}

struct redirect_rules default_rules(void)
{
	return (struct redirect_rules){.version = REDIRECT_RULES_VERSION,
	    .flags = REDIRECT_OUTBOUND_ALL | REDIRECT_INBOUND_ALL | REDIRECT_DNS | REDIRECT_DNS_ALL,
	    .proxy_uid = ENVOY,
	    .proxy_gid = ENVOY,
	    .outbound_port = OUT,
	    .inbound_port = IN,
	    .tunnel_port = 15008,
	    .dns_port = DNS,
	    .strict = 1,
	    .nrows = 3,
	    .rows = {{REDIRECT_PORT_OUTBOUND_EXCLUDE, EXCLUDED_OUT},
		{REDIRECT_PORT_INBOUND_EXCLUDE, EXCLUDED_IN}, {REDIRECT_PORT_PROBE, PROBE}}};
}

/* --- the story --- */

static void must_refuse(const struct world *w, const char *name, uint64_t caps, size_t memlock)
{
	struct loader l;
	struct err why = {.code = 0};
	int rc = loader_start(&l, w, caps, memlock, &why);

	check(rc && why.msg[0], name, "it loaded");
	if (rc)
		printf("     \"%s\"\n", why.msg);
	else
		loader_end(&l);
}

static bool is_5_10(void)
{
	struct utsname u;

	uname(&u);
	return strncmp(u.release, "5.10.", 5) == 0;
}

static void check_refusals(const struct world *w)
{
	must_refuse(w, "refused without CAP_BPF", LOADER_CAPS & ~(1ull << CAP_BPF), RLIM);
	must_refuse(
	    w, "refused without CAP_NET_ADMIN", LOADER_CAPS & ~(1ull << CAP_NET_ADMIN), RLIM);
	must_refuse(w, "refused without CAP_PERFMON", LOADER_CAPS & ~(1ull << CAP_PERFMON), RLIM);
	if (is_5_10())
		must_refuse(w, "refused with 64 KiB of memory to lock", LOADER_CAPS, 65536);
}

static void check_start(struct loader *l, const struct world *w, const char *name)
{
	struct err why = {.code = 0};
	int rc = loader_start(l, w, LOADER_CAPS, RLIM, &why);

	check(rc == 0, name, "%s", why.msg);
	if (rc)
		exit(1);
}

static void did(int rc, const char *name, const struct err *why)
{
	check(rc == 0, name, "%s", why->msg);
}

static void check_host(struct loader *l)
{
	struct err why = {.code = 0};
	int rc = loader_mistake(l, &why);

	check(
	    rc && why.code == EPERM, "the node's own network namespace is refused", "%s", why.msg);
}

static void check_gate(struct loader *l, const struct world *w)
{
	struct redirect_rules rules = default_rules();
	struct err why = {.code = 0};

	did(loader_set(l, &rules, &why), "rules of a strict pod", &why);
	for (int v6 = 0; v6 < 2; v6++) {
		must_fail(of("gate: closed", v6), &w->peer, root,
		    &(struct dial){.to = pod_ip[v6], .port = 8080, .patience = 2}, ETIMEDOUT);
		must_end(of("gate: excluded port", v6), &w->peer, root, TO(pod_ip[v6], EXCLUDED_IN),
		    EXCLUDED_IN);
	}
	check(counter(w, REDIRECT_DROP_GATE) >= 2, "gate: counted", "%llu",
	    (unsigned long long)counter(w, REDIRECT_DROP_GATE));
	must_end("gate: 127.0.0.1 is open", &w->pod, app, TO("127.0.0.1", 8080), 8080);
}

/* The app in the pod's cgroup, but with hostNetwork: a mistake of the manifest's that it never
 * notices. */
static void check_host_network(const struct world *w)
{
	const struct server there = {.name = NAME_APP, .who = app, .tcp = {8080}};
	pid_t server = serve(&w->host, &there);

	must_end("hostNetwork: inbound is direct", &w->peer, root, TO(host_ip, 8080), 8080);
	must_end("hostNetwork: outbound is direct", &w->host, app, TO(host_peer_ip, 80), 80);
	must_end("hostNetwork: so is DNS", &w->host, app, TO(host_peer_ip, 53), 53);
	evict(&server);
}

static void allow_syn_cookies(void *ctx, void *out)
{
	int fd = open("/proc/sys/net/ipv4/tcp_syncookies", O_WRONLY | O_CLOEXEC);

	*(int *)out = fd < 0 || write(fd, ctx, 1) != 1;
	close(fd);
}

static void set_syn_cookies(const struct world *w, char *to)
{
	int rc = 1;

	visit(&w->stranger, root, allow_syn_cookies, to, &rc, sizeof(rc));
	check(rc == 0, "SYN cookies are switched", "they are not");
}

/* Before the pod is live, too: `port` is where strangers end then, 0: nowhere. */
static void check_kubelet(const struct world *w, uint16_t port)
{
	for (int v6 = 0; v6 < 2; v6++) {
		const struct dial to = {.to = pod_node_ip[v6], .port = PROBE, .again = 20},
				  other = {.to = pod_node_ip[v6], .port = 4242};

		must_end(of("the kubelet is let in", v6), &w->kubelet, root, &to, PROBE);
		if (!port)
			continue;
		must_end(of("not to another port", v6), &w->kubelet, root, &other, port);
		must_end(of("another user is not", v6), &w->kubelet, app, &to, port);
		must_end(of("a pod with hostNetwork is not", v6), &w->host, root, &to, port);
		must_end(of("nor one of no mesh", v6), &w->unmeshed, root, &to, port);
	}
	/* The last one's other end closes a moment later. */
	for (int tries = 0; map_count(w, "probes") && tries < 500; tries++)
		usleep(10000);
	check(map_count(w, "probes") == 0, "no probe is noted any more", "%d",
	    map_count(w, "probes"));
}

static void check_probes(const struct world *w)
{
	const struct dial mapped = {.to = pod_node_ip[0], .port = PROBE, .mapped = true};
	char always[] = "2", usual[] = "1";

	check_kubelet(w, IN);
	must_end(
	    "the kubelet is let in, IPv4 by an IPv6 socket", &w->kubelet, root, &mapped, PROBE);
	set_syn_cookies(w, always);
	check_kubelet(w, IN);
	set_syn_cookies(w, usual);
	check(counter(w, REDIRECT_PASS_PROBE) > 80, "each is counted", "%llu",
	    (unsigned long long)counter(w, REDIRECT_PASS_PROBE));
}

static void check_no_envoy(const struct world *w)
{
	for (int v6 = 0; v6 < 2; v6++) {
		must_fail(of("no Envoy: outbound is refused", v6), &w->pod, app,
		    TO(peer_ip[v6], 80), ECONNREFUSED);
		must_fail(of("no Envoy: inbound is refused", v6), &w->peer, root,
		    TO(pod_ip[v6], 8080), ECONNREFUSED);
	}
	check(map_count(w, "tuples") == 0, "no Envoy: no tuple is left", "%d",
	    map_count(w, "tuples"));
}

static void check_inbound(const struct world *w)
{
	for (int v6 = 0; v6 < 2; v6++) {
		struct seen s = dial(&w->peer, root, TO(pod_ip[v6], 8080));
		check(!strcmp(s.peer, peer_ip[v6]), of("inbound: the client's address", v6), "%s",
		    s.peer);
		must_end(of("inbound", v6), &w->peer, root, TO(pod_ip[v6], 8080), IN);
		must_end(of("inbound: a port nobody listens on", v6), &w->peer, root,
		    TO(pod_ip[v6], 4242), IN);
		must_end(of("inbound: excluded port", v6), &w->peer, root,
		    TO(pod_ip[v6], EXCLUDED_IN), EXCLUDED_IN);
		must_end(
		    of("inbound: tunnel port", v6), &w->peer, root, TO(pod_ip[v6], 15008), 15008);
	}
}

static void check_outbound(const struct world *w)
{
	for (int v6 = 0; v6 < 2; v6++) {
		const struct dial d = {.to = peer_ip[v6], .port = 80};
		struct seen s = dial(&w->pod, app, &d);
		must_end(of("outbound", v6), &w->pod, app, &d, OUT);
		check(!strcmp(s.sockname, pod_ip[v6]) && !strcmp(s.peer, pod_ip[v6]),
		    of("outbound: from the pod's address", v6), "%s, %s", s.sockname, s.peer);
		check(strstr(s.local, v6 && is_5_10() ? "::1" : "127.15.1."),
		    of("outbound: to one of 64 addresses", v6), "%s", s.local);
		must_end(of("outbound: bound before", v6), &w->pod, app,
		    &(struct dial){.to = peer_ip[v6], .port = 80, .from = pod_ip[v6]}, OUT);
		must_end(of("outbound: excluded port", v6), &w->pod, app,
		    TO(peer_ip[v6], EXCLUDED_OUT), EXCLUDED_OUT);
		must_end(of("outbound: 300 in a row", v6), &w->pod, app,
		    &(struct dial){.to = peer_ip[v6], .port = 80, .again = 300}, OUT);
	}
	must_end("outbound, IPv4 on a socket of IPv6", &w->pod, app,
	    &(struct dial){.to = peer_ip[0], .port = 80, .mapped = true}, OUT);
}

static void check_self(const struct world *w)
{
	for (int v6 = 0; v6 < 2; v6++) {
		const struct dial own = {.to = pod_ip[v6], .port = 8080};
		must_end(of("self: app to its pod", v6), &w->pod, app, &own, 8080);
		must_end(of("self: Envoy to its pod", v6), &w->pod, envoy, &own, IN);
		must_end(of("self: app to its pod again", v6), &w->pod, app, &own, 8080);
	}
	must_end("self: 127.0.0.1", &w->pod, app, TO("127.0.0.1", 8080), 8080);
	must_end("self: 127.0.0.2", &w->pod, app, TO("127.0.0.2", 8080), 8080);
	must_end("self: ::1", &w->pod, app, TO("::1", 8080), 8080);
	must_end("self: Envoy from 127.0.0.6", &w->pod, envoy,
	    &(struct dial){.to = pod_ip[0], .port = 8080, .from = "127.0.0.6"}, 8080);
}

static void check_who(const struct world *w)
{
	static const struct {
		const char *name;
		struct who who;
		bool captured;
	} rows[] = {
	    {"who: root", {0, 0}, true},
	    {"who: Envoy", {ENVOY, ENVOY}, false},
	    {"who: uid of Envoy", {ENVOY, APP}, false},
	    {"who: gid of Envoy", {APP, ENVOY}, false},
	    {"who: Envoy in a user namespace", {5 * 65536 + ENVOY, 5 * 65536 + ENVOY}, false},
	    {"who: app in a user namespace", {5 * 65536 + APP, 5 * 65536 + APP}, true},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		for (int v6 = 0; v6 < 2; v6++)
			must_end(of(rows[i].name, v6), &w->pod, rows[i].who, TO(peer_ip[v6], 80),
			    rows[i].captured ? OUT : 80);
	must_end("who: a process of no pod", &w->stranger, app, TO(peer_ip[0], 80), 80);
	must_end("who: the peer", &w->peer, app, TO(peer_ip[0], 80), 80);
}

/* --- DNS --- */

static void must_answer(
    const char *name, const struct place *p, struct who who, const struct ask *a, uint16_t expected)
{
	struct answers r = ask(p, who, a);
	bool good = !r.error;

	for (int i = 0; i < r.n; i++)
		good &=
		    r.name[i] == expected && a->servers[i] && !strcmp(r.source[i], a->servers[i]);
	check(good, name, "%s; %d answers, the first by %u from %s", strerror(r.error), r.n,
	    r.name[0], r.source[0]);
}

static void check_dns(const struct world *w)
{
	const struct ask all = {.servers = {peer_ip[0], "10.88.0.3", peer_ip[0]}};
	const struct ask six = {.servers = {peer_ip[1]}};
	const struct ask connected = {.servers = {peer_ip[0]}, .connected = true};
	const struct ask connected6 = {.servers = {peer_ip[1]}, .connected = true};
	struct server proxy = {
	    .name = NAME_PROXY, .who = root, .tcp = {DNS}, .udp = {DNS}, .index = pod_index(w)};
	pid_t child = serve(&w->pod, &proxy);

	must_answer("DNS: a proxy without a mark", &w->pod, app, &all, NAME_PEER);
	evict(&child);
	proxy.mark = pinned_map(w, "sockets");
	child = serve(&w->pod, &proxy);
	close(proxy.mark);
	must_answer("DNS: three questions by one socket", &w->pod, app, &all, NAME_PROXY);
	must_answer("DNS: IPv6", &w->pod, app, &six, NAME_PROXY);
	must_answer("DNS: connected, IPv4", &w->pod, app, &connected, NAME_PROXY);
	must_answer("DNS: connected, IPv6", &w->pod, app, &connected6, NAME_PROXY);
	must_answer("DNS: Envoy's own", &w->pod, envoy, &all, NAME_PEER);
	must_answer("DNS: a process of no pod", &w->stranger, app, &all, NAME_PEER);
	for (int v6 = 0; v6 < 2; v6++)
		must_end(of("DNS: TCP", v6), &w->pod, app, TO(peer_ip[v6], 53), DNS);
	evict(&child);
	must_answer("DNS: the proxy is gone", &w->pod, app, &all, NAME_PEER);
}

/* --- agentd comes and goes --- */

static void check_adoption(struct loader *l, const struct world *w)
{
	struct redirect_rules rules = default_rules();
	struct err why = {.code = 0};

	loader_end(l);
	for (int v6 = 0; v6 < 2; v6++) {
		must_end(of("no agentd: outbound", v6), &w->pod, app, TO(peer_ip[v6], 80), OUT);
		must_end(of("no agentd: inbound", v6), &w->peer, root, TO(pod_ip[v6], 8080), IN);
	}
	check_start(l, w, "a second start");
	check(map_count(w, "pods") == 1, "a second start: the pod is known", "%d",
	    map_count(w, "pods"));
	must_end("a second start: outbound", &w->pod, app, TO(peer_ip[0], 80), OUT);
	must_end("a second start: inbound", &w->peer, root, TO(pod_ip[0], 8080), IN);
	did(loader_set(l, &rules, &why) || loader_live(l, &why), "a second start: told again",
	    &why);
}

void check_tally(const struct tally *t, uint64_t before, const char *name)
{
	char text[512];

	show(&t->wrong, text);
	check(t->good > before && t->bad == 0, name, "%llu right, %llu wrong, one: %s",
	    (unsigned long long)t->good, (unsigned long long)t->bad, text);
	printf("     %llu connections\n", (unsigned long long)t->good);
}

enum { UPGRADES = 3 };

static void check_upgrade(struct loader *l, const struct world *w)
{
	struct tally *t = tally_new();
	struct load in[2], out[2];
	pid_t children[2][2];
	uint64_t before = 0;

	for (int v6 = 0; v6 < 2; v6++) {
		in[v6] = (struct load){LONG(pod_ip[v6], 8080), IN, t};
		out[v6] = (struct load){LONG(peer_ip[v6], 80), OUT, t};
		children[v6][0] = load(&w->peer, root, &in[v6]);
		children[v6][1] = load(&w->pod, app, &out[v6]);
	}
	for (int i = 0; i < UPGRADES; i++) {
		loader_end(l);
		check_start(l, w, "all programs replaced under load");
		before = t->good;
		usleep(300000);
		/* One that stands still holds all of them up for a while. */
		for (int tries = 0; t->good == before && tries < 6000; tries++)
			usleep(10000);
	}
	check_tally(t, before, "under load: every connection by Envoy");
	for (int i = 0; i < 4; i++)
		evict(&children[i / 2][i % 2]);
}

/* --- interfaces, and the end --- */

static void check_interfaces(struct loader *l, const struct world *w)
{
	struct redirect_rules rules = default_rules();
	struct err why = {.code = 0};
	const struct dial other = {.to = pod_other_ip, .port = 8080};
	int rc;

	must_end("interfaces: none excluded", &w->peer, root, &other, IN);
	rules.ninterfaces = 1;
	strcpy(rules.interfaces[0], "eth1");
	rc = loader_set(l, &rules, &why);
	if (is_5_10()) {
		check(rc && why.code == EOPNOTSUPP, "interfaces: refused by name", "%s", why.msg);
		printf("     \"%s\"\n", why.msg);
	} else {
		did(rc || loader_live(l, &why), "interfaces: one excluded", &why);
		must_end("interfaces: the excluded one passes", &w->peer, root, &other, 8080);
		must_end("interfaces: another does not", &w->peer, root, TO(pod_ip[0], 8080), IN);
	}
	rules = default_rules();
	did(loader_set(l, &rules, &why) || loader_live(l, &why), "interfaces: none again", &why);
}

static void check_removal(struct loader *l, const struct world *w)
{
	static const char *const maps[] = {
	    "pods", "pods_by_index", "ports", "cidrs", "tuples", "self_calls", "listeners"};
	struct err why = {.code = 0};

	check(
	    counter(w, REDIRECT_LOST_DESTINATION) == 0 && counter(w, REDIRECT_DROP_NO_MEMORY) == 0,
	    "nothing was lost in all this", "%llu destinations, %llu for want of memory",
	    (unsigned long long)counter(w, REDIRECT_LOST_DESTINATION),
	    (unsigned long long)counter(w, REDIRECT_DROP_NO_MEMORY));
	did(loader_remove(l, &why), "removed", &why);
	for (size_t i = 0; i < sizeof(maps) / sizeof(*maps); i++) {
		char name[64];
		snprintf(name, sizeof(name), "removed: map %s is empty", maps[i]);
		check(map_count(w, maps[i]) == 0, name, "%d", map_count(w, maps[i]));
	}
	must_end("removed: outbound is direct", &w->pod, app, TO(peer_ip[0], 80), 80);
	must_end("removed: inbound is direct", &w->peer, root, TO(pod_ip[0], 8080), 8080);
}

static bool knows_envoy(const struct world *w)
{
	const struct dial *away = TO(peer_ip[0], 80);
	struct seen s = dial(&w->pod, app, away);

	return map_count(w, "listeners") && ends_at(&s, away, OUT);
}

/* One look lasts 20 ms at most, which is little in a VM on a busy machine; the next one comes 10 s
 * later. */
static int live_until_known(struct loader *l, const struct world *w, struct err *why)
{
	int rc = loader_live(l, why);

	for (int i = 0; i < LOOKS_S && !rc && !knows_envoy(w); i++) {
		sleep(1);
		rc = loader_live(l, why);
	}
	return rc;
}

/* Its sockets are found, both ports', all families'. */
static void check_late(const struct world *w, pid_t *fake)
{
	const struct server envoy_there = {
	    .name = NAME_ENVOY, .who = {ENVOY, ENVOY}, .tcp = {OUT, IN}};
	struct redirect_rules rules = default_rules();
	struct err why = {.code = 0};
	struct loader l;

	if (loader_start(&l, w, LOADER_CAPS | LOADER_VISITS, RLIM, &why))
		check(false, "late: load", "%s", why.msg);
	*fake = serve(&w->pod, &envoy_there);
	must_end("late: nobody redirects", &w->peer, root, TO(pod_ip[0], 8080), 8080);
	did(loader_set(&l, &rules, &why) || live_until_known(&l, w, &why), "late: rules, and live",
	    &why);
	for (int v6 = 0; v6 < 2; v6++) {
		must_end(of("late: outbound", v6), &w->pod, app, TO(peer_ip[v6], 80), OUT);
		must_end(of("late: inbound", v6), &w->peer, root, TO(pod_ip[v6], 8080), IN);
	}
	did(loader_remove(&l, &why), "late: removed", &why);
	must_end("late: the app's port again", &w->peer, root, TO(pod_ip[0], 8080), 8080);
	evict(fake);
	loader_end(&l);
}

static void check_all(const struct world *w, pid_t *fake)
{
	const struct server envoy_there = {
	    .name = NAME_ENVOY, .who = {ENVOY, ENVOY}, .tcp = {OUT, IN}};
	struct err why = {.code = 0};
	struct loader l;

	part("what is refused");
	check_refusals(w);
	part("load");
	check_start(&l, w, "load, attach and pin with BPF, NET_ADMIN and PERFMON alone");
	check_host(&l);
	part("gate");
	check_gate(&l, w);
	check_kubelet(w, 0);
	check_host_network(w);
	part("no Envoy");
	did(loader_live(&l, &why), "live", &why);
	check_no_envoy(w);
	*fake = serve(&w->pod, &envoy_there);
	part("inbound");
	check_inbound(w);
	part("the kubelet's probes");
	check_probes(w);
	part("outbound");
	check_outbound(w);
	part("self calls");
	check_self(w);
	part("uid and gid");
	check_who(w);
	part("DNS");
	check_dns(w);
	part("agentd dies, comes back");
	check_adoption(&l, w);
	part("upgrade under load");
	check_upgrade(&l, w);
	part("excluded interfaces");
	check_interfaces(&l, w);
	part("Envoy dies, another comes");
	evict(fake);
	check_no_envoy(w);
	*fake = serve(&w->pod, &envoy_there);
	must_end("a new Envoy: outbound", &w->pod, app, TO(peer_ip[0], 80), OUT);
	must_end("a new Envoy: inbound", &w->peer, root, TO(pod_ip[0], 8080), IN);
	evict(fake);
	part("removal");
	check_removal(&l, w);
	loader_end(&l);
	part("an Envoy that listened before its rules");
	check_late(w, fake);
}

int main(int argc, char **argv)
{
	const struct server app_there = {
	    .name = NAME_APP, .who = app, .tcp = {8080, EXCLUDED_IN, 15008}};
	const struct server peer_there = {
	    .name = NAME_PEER, .who = root, .tcp = {80, EXCLUDED_OUT, 53}, .udp = {53}};
	static struct world w;
	pid_t children[3] = {0};

	world_begin(&w);
	children[0] = serve(&w.pod, &app_there);
	children[1] = serve(&w.peer, &peer_there);
	if (argc > 1)
		check_envoy(&w, argv[1]);
	else
		check_all(&w, &children[2]);
	for (int i = 0; i < 3; i++)
		evict(&children[i]);
	printf("%d passed, %d failed\n", passed, failed);
	return failed ? 1 : 0;
}
