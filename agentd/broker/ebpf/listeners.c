/* listeners.c - enter -> the kernel's lists of listening sockets -> for each address of the proxy's
 * on its ports: look it up, from one port after the other -> leave.
 *
 * With SO_REUSEPORT each worker of Envoy has a socket of its own at one address; a look-up finds
 * the one that its ports happen to choose, so we look until as many were seen as are listed.  From
 * Linux 7.3 on that leaves the map of listeners to another program, which goes through all sockets.
 *
 * A look ends after LOOK_MS of this thread's own time: a hostile pod can make each look-up slow,
 * and costs no other pod more than that.  Whoever else has the core meanwhile is not the pod's
 * doing: by the clock on the wall a busy node would cut short what the next look begins anew.
 *
 * A port that changes hands between the list and the look-up is believed: an app that binds it in
 * that moment, its Envoy gone, is taken for that, in its own pod (SECURITY.md, "Traffic").
 */
#include "listeners.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "tcp_list.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

LOG_SCOPE("broker");

enum {
	PLACES_MAX = 16, /* addresses of Envoy's; it has one or two */
	TRIES = 16,      /* for each socket: one of 64 is missed in 1 of 10^5 looks */
	LOOK_MS = 20,    /* of this thread's time, and no longer */
	FIRST_PORT = 1024,
	PORTS = 60000,
	FRAME_SIZE = 64, /* less than a header is no packet */
	PAUSE_S = 10,
	PAUSE_S_MAX = 640, /* the lists cost some milliseconds, too */
};

struct place {
	struct redirect_address address;
	uint32_t family, sockets, seen;
	uint16_t kind;
};

struct search {
	struct redirect *r;
	const struct redirect_pod *entry;
	struct place places[PLACES_MAX];
	uint32_t family; /* of the list that is read */
	uint32_t nplaces, fresh, tries;
	uint64_t netns; /* its cookie */
	int64_t end_ms; /* of this thread's time */
	bool published;
};

static int64_t ms_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* --- who listens --- */

static uint16_t kind_of(const struct redirect_pod *entry, uint32_t port)
{
	if (port == entry->outbound_port)
		return REDIRECT_SOCKET_LISTENS_OUT;
	return port == entry->inbound_port ? REDIRECT_SOCKET_LISTENS_IN : 0;
}

static void add(struct search *s, const struct redirect_tcp_socket *l, uint16_t kind)
{
	struct place *p = s->places, *end = p + s->nplaces;

	while (p < end && (p->kind != kind || p->family != s->family ||
			      memcmp(&p->address, &l->address, sizeof(l->address)) != 0))
		p++;
	if (p == s->places + PLACES_MAX)
		return;
	if (p == end) {
		*p = (struct place){.address = l->address, .family = s->family, .kind = kind};
		s->nplaces++;
	}
	p->sockets++;
}

static bool on_socket(void *ctx, const struct redirect_tcp_socket *l)
{
	struct search *s = ctx;
	uint16_t kind = kind_of(s->entry, l->port);

	if (l->state != REDIRECT_TCP_LISTENS)
		return false; /* those come first */
	if (kind == REDIRECT_SOCKET_LISTENS_IN && ebpf_tcp_is_loopback(&l->address))
		return true; /* nobody arrives there */
	if (kind && (uint16_t)l->uid == (uint16_t)s->entry->proxy_uid)
		add(s, l, kind);
	return true;
}

static void list(struct search *s, uint32_t family)
{
	s->family = family;
	ebpf_tcp_list(family, on_socket, s);
}

/* --- mark them --- */

/* From another port each time, also in the next look. */
static enum redirect_found ask(struct search *s, const struct place *p, bool publish)
{
	static const char frame[FRAME_SIZE];
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = frame, .data_size_in = sizeof(frame));
	bool inbound = p->kind == REDIRECT_SOCKET_LISTENS_IN;

	s->r->bpf->bss->sought = (struct redirect_sought){.address = p->address,
	    .index = s->entry->index,
	    .family = p->family,
	    .kind = p->kind,
	    .port = inbound ? s->entry->inbound_port : s->entry->outbound_port,
	    .from = (uint16_t)(FIRST_PORT + (s->r->looks * 7919 + s->tries++) % PORTS),
	    .publish = publish,
	    .look = s->r->looks,
	    .netns = s->netns};
	if (bpf_prog_test_run_opts(bpf_program__fd(s->r->bpf->progs.redirect_seek), &o))
		return REDIRECT_FOUND_NONE;
	return o.retval;
}

static void seek(struct search *s, struct place *p)
{
	for (uint32_t n = 0; n < p->sockets * TRIES && p->seen < p->sockets; n++) {
		if (ms_of(CLOCK_THREAD_CPUTIME_ID) >= s->end_ms)
			return;
		enum redirect_found f = ask(s, p, false);
		p->seen += f == REDIRECT_FOUND_KNOWN || f == REDIRECT_FOUND_NEW;
		s->fresh += f == REDIRECT_FOUND_NEW;
	}
}

/* `sought` has the pod's index still. */
static bool collect(const struct search *s)
{
	auto_close int link = bpf_link_create(
	    bpf_program__fd(s->r->bpf->progs.redirect_collect), 0, BPF_TRACE_ITER, NULL);
	auto_close int all = link < 0 ? -1 : bpf_iter_create(link);
	char none[1];

	if (all >= 0 && read(all, none, sizeof(none)) >= 0)
		return true;
	log_warn(NULL, "the kernel's sockets cannot be listed: %m");
	return false;
}

/* Last of all: what is in the map tells the next broker that nothing is left to be done. */
static void publish(struct search *s)
{
	bool any = false;

	for (uint32_t i = 0; i < s->nplaces; i++) {
		const struct place *p = &s->places[i];
		if (p->kind != REDIRECT_SOCKET_LISTENS_IN || !p->seen)
			continue;
		any = true;
		s->published |= !s->r->collects && ask(s, p, true) != REDIRECT_FOUND_NONE;
	}
	if (any && s->r->collects)
		s->published = collect(s);
}

static int search(void *ctx, struct err *e)
{
	struct search *s = ctx;

	(void)e;
	s->netns = netns_cookie();
	list(s, AF_INET);
	list(s, AF_INET6);
	s->end_ms = ms_of(CLOCK_THREAD_CPUTIME_ID) + LOOK_MS;
	for (uint32_t i = 0; i < s->nplaces; i++)
		seek(s, &s->places[i]);
	publish(s);
	s->r->bpf->bss->sought.index = 0;
	return 0;
}

/* Every socket that is listed, of both ports, and none for the first time. */
static bool is_done(const struct search *s)
{
	bool outbound = false;

	for (uint32_t i = 0; i < s->nplaces; i++) {
		if (s->places[i].seen < s->places[i].sockets)
			return false;
		outbound |= s->places[i].kind == REDIRECT_SOCKET_LISTENS_OUT;
	}
	return s->published && outbound && !s->fresh;
}

enum redirect_look ebpf_listeners_find(
    struct redirect *r, const struct redirect_pod *entry, int netns)
{
	struct search s = {.r = r, .entry = entry};
	char uid[UUID_TEXT_SIZE];
	struct err e;

	if (!r->can.late || !r->home || netns_is_home(r->home, netns))
		return REDIRECT_LOOK_IN_VAIN;
	r->looks++;
	if (netns_visit(r->home, netns, search, &s, &e))
		return REDIRECT_LOOK_IN_VAIN;
	uuid_format((const struct uuid *)entry->uid, uid);
	if (s.fresh)
		log_info(uid,
		    "Envoy listened before its pod's redirection began: %u sockets are known now",
		    s.fresh);
	if (is_done(&s))
		return REDIRECT_LOOK_DONE;
	return s.fresh ? REDIRECT_LOOK_FOUND : REDIRECT_LOOK_IN_VAIN;
}

/* --- when --- */

bool ebpf_listeners_possible(int cgroup)
{
	auto_close int fd = openat(cgroup, "cgroup.events", O_RDONLY | O_CLOEXEC);
	char text[256] = "";

	return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strstr(text, "populated 1");
}

bool ebpf_listeners_known(const struct redirect *r, uint32_t index)
{
	const struct redirect_listener_key four = {index, AF_INET}, six = {index, AF_INET6};
	int fd = bpf_map__fd(r->bpf->maps.listeners);
	uint64_t cookie;

	return !bpf_map_lookup_elem(fd, &four, &cookie) || !bpf_map_lookup_elem(fd, &six, &cookie);
}

void ebpf_listeners_look(struct redirect *r, struct redirect_pod_state *p, int netns)
{
	int64_t now = ms_of(CLOCK_MONOTONIC);

	if (!p->late || now < p->look_ms)
		return;
	switch (ebpf_listeners_find(r, &p->entry, netns)) {
	case REDIRECT_LOOK_DONE:
		p->late = false;
		return;
	case REDIRECT_LOOK_FOUND:
		p->pause_s = PAUSE_S;
		break;
	default:
		p->pause_s = p->pause_s ? 2 * p->pause_s : PAUSE_S;
	}
	if (p->pause_s > PAUSE_S_MAX)
		p->pause_s = PAUSE_S_MAX;
	p->look_ms = now + (int64_t)p->pause_s * 1000;
}

/* --- one that goes, and comes --- */

static void came(struct redirect_pod_state *p)
{
	p->envoy = REDIRECT_ENVOY_HEARD;
	p->pause_s = 0;
	p->look_ms = 0; /* when it goes, another one is looked for at once */
}

void ebpf_listeners_news(
    struct redirect *r, const struct uuid *pod, int netns, enum redirect_news_kind kind)
{
	struct redirect_pod_state *p = ebpf_pod_find(r, pod);

	if (!p)
		return;
	if (kind == REDIRECT_NEWS_LISTENS)
		came(p);
	if (ebpf_listeners_known(r, p->entry.index))
		return;
	p->late = true;
	if (netns < 0)
		return;
	ebpf_listeners_look(r, p, netns);
	if (ebpf_listeners_known(r, p->entry.index))
		came(p);
	else if (p->envoy == REDIRECT_ENVOY_HEARD)
		p->envoy = REDIRECT_ENVOY_DEAF;
}

int ebpf_listeners_check(struct redirect *r, const struct uuid *pod, struct err *e)
{
	struct redirect_pod_state *p = ebpf_pod_find(r, pod);

	if (p && p->envoy == REDIRECT_ENVOY_DEAF && ebpf_listeners_known(r, p->entry.index))
		came(p); /* what it told found no room */
	if (!p || p->envoy != REDIRECT_ENVOY_DEAF)
		return 0;
	return err_set(e, ECONNREFUSED,
	    "its Envoy does not listen on port %u any more, so clients are refused: look at the "
	    "log "
	    "of its container, and restart it",
	    p->entry.inbound_port);
}
