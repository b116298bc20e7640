/* broker_redirect_listeners.c - enter -> the kernel's lists of who listens -> for each address of
 * the proxy's on its ports: look it up, from one port after the other -> leave.
 *
 * With SO_REUSEPORT each worker of Envoy has a socket of its own at one address; a look-up finds
 * the one that its ports happen to choose, so we look until as many were new as are listed.  From
 * Linux 7.3 on that leaves the map of listeners to another program, which goes through all sockets.
 *
 * A port that changes hands between the list and the look-up would be believed.  Who can make that
 * happen can end Envoy, and so be Envoy.
 */
#include "broker_redirect_listeners.h"
#include "../../../base/mem.h"
#include <endian.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	LINES_MAX = 4096, /* of each list: some milliseconds */
	PLACES_MAX = 16,  /* addresses of Envoy's; it has one or two */
	TRIES = 32,       /* for each: one in e^32 is missed */
	TRIES_MAX = 2048, /* in all: some milliseconds */
	FIRST_PORT = 1024,
	FRAME_SIZE = 64, /* less than a header is no packet */
	PAUSE_S = 10, /* a list costs milliseconds: the kernel goes through its connections, too */
	LISTENS = 10, /* TCP_LISTEN, as the list has it */
};

struct place {
	struct redirect_address address;
	uint32_t family, sockets;
	uint16_t kind;
};

struct search {
	const struct broker_redirect *r;
	const struct redirect_pod *entry;
	struct place places[PLACES_MAX];
	uint32_t nplaces, fresh, tries;
	bool inbound, outbound; /* found */
};

/* --- who listens --- */

struct line {
	struct redirect_address address;
	uint32_t port, state, uid;
};

/* The list's fields, parted by blanks and colons. */
enum { ADDRESS = 1, PORT = 2, STATE = 5, UID = 11, FIELDS };

static uint32_t hex(const char *text)
{
	char word[9];

	snprintf(word, sizeof(word), "%s", text);
	return (uint32_t)strtoul(word, NULL, 16);
}

/* Words of the address are shown as they lie in memory.  False: the heading. */
static bool parse(char *text, struct line *out)
{
	char *field[FIELDS], *rest = NULL;
	size_t length;

	for (int i = 0; i < FIELDS; i++)
		if (!(field[i] = strtok_r(i ? NULL : text, " :", &rest)))
			return false;
	length = strlen(field[ADDRESS]);
	if (length != 8 && length != 32)
		return false;
	out->address = (struct redirect_address){{0, 0, htobe32(0xffff), hex(field[ADDRESS])}};
	for (int i = 0; i < 4 && length == 32; i++)
		out->address.word[i] = hex(field[ADDRESS] + (ptrdiff_t)i * 8);
	out->port = hex(field[PORT]);
	out->state = hex(field[STATE]);
	out->uid = (uint32_t)strtoul(field[UID], NULL, 10);
	return true;
}

static uint16_t kind_of(const struct redirect_pod *entry, uint32_t port)
{
	if (port == entry->outbound_port)
		return REDIRECT_SOCKET_LISTENS_OUT;
	return port == entry->inbound_port ? REDIRECT_SOCKET_LISTENS_IN : 0;
}

static void add(struct search *s, const struct line *l, uint32_t family, uint16_t kind)
{
	struct place *p = s->places, *end = p + s->nplaces;

	while (p < end && (p->kind != kind || p->family != family ||
			      memcmp(&p->address, &l->address, sizeof(l->address)) != 0))
		p++;
	if (p == s->places + PLACES_MAX)
		return;
	if (p == end) {
		*p = (struct place){.address = l->address, .family = family, .kind = kind};
		s->nplaces++;
	}
	p->sockets++;
}

/* Those who listen come first. */
static void list(struct search *s, const char *path, uint32_t family)
{
	FILE *f = fopen(path, "re");
	char text[512];
	struct line l;

	if (!f)
		return; /* no IPv6 */
	for (int n = 0; n < LINES_MAX && fgets(text, sizeof(text), f); n++) {
		if (!parse(text, &l))
			continue; /* the heading */
		if (l.state != LISTENS)
			break;
		uint16_t kind = kind_of(s->entry, l.port);
		if (kind && (uint16_t)l.uid == (uint16_t)s->entry->proxy_uid)
			add(s, &l, family, kind);
	}
	fclose(f);
}

/* --- mark them --- */

static enum redirect_found ask(const struct search *s, const struct place *p, uint16_t from)
{
	static const char frame[FRAME_SIZE];
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = frame, .data_size_in = sizeof(frame));
	bool inbound = p->kind == REDIRECT_SOCKET_LISTENS_IN;

	s->r->bpf->bss->sought = (struct redirect_sought){.address = p->address,
	    .index = s->entry->index,
	    .family = p->family,
	    .kind = p->kind,
	    .port = inbound ? s->entry->inbound_port : s->entry->outbound_port,
	    .from = from};
	if (bpf_prog_test_run_opts(bpf_program__fd(s->r->bpf->progs.redirect_seek), &o))
		return REDIRECT_FOUND_NONE;
	return o.retval;
}

static void seek(struct search *s, const struct place *p)
{
	bool *found = p->kind == REDIRECT_SOCKET_LISTENS_IN ? &s->inbound : &s->outbound;
	uint32_t fresh = 0;

	for (uint32_t n = 0; n < p->sockets * TRIES && fresh < p->sockets; n++) {
		if (s->tries++ >= TRIES_MAX)
			break;
		enum redirect_found f = ask(s, p, (uint16_t)(FIRST_PORT + n));
		*found |= f != REDIRECT_FOUND_NONE;
		fresh += f == REDIRECT_FOUND_NEW;
	}
	s->fresh += fresh;
}

/* `sought` has the pod's index still. */
static void collect(const struct search *s)
{
	auto_close int link = bpf_link_create(
	    bpf_program__fd(s->r->bpf->progs.redirect_collect), 0, BPF_TRACE_ITER, NULL);
	auto_close int all = link < 0 ? -1 : bpf_iter_create(link);
	char none[1];

	if (all < 0 || read(all, none, sizeof(none)) < 0)
		broker_log(BROKER_WARN, NULL, "the kernel's sockets cannot be listed: %m");
}

static int search(void *ctx, struct broker_why *w)
{
	struct search *s = ctx;

	(void)w;
	list(s, "/proc/thread-self/net/tcp", AF_INET);
	list(s, "/proc/thread-self/net/tcp6", AF_INET6);
	for (uint32_t i = 0; i < s->nplaces; i++)
		seek(s, &s->places[i]);
	if (s->inbound && s->r->collects)
		collect(s);
	return 0;
}

bool redirect_listeners_find(
    const struct broker_redirect *r, const struct redirect_pod *entry, int netns)
{
	struct search s = {.r = r, .entry = entry};
	char uid[UUID_TEXT_SIZE];
	struct broker_why w;

	if (!r->at.home || broker_netns_is_home(r->at.home, netns) ||
	    broker_netns_visit(r->at.home, netns, search, &s, &w))
		return false;
	uuid_format((const struct uuid *)entry->uid, uid);
	if (s.fresh)
		broker_log(BROKER_INFO, uid,
		    "Envoy listened before its pod's redirection began: %u sockets are known now",
		    s.fresh);
	return s.inbound && s.outbound && !s.fresh;
}

/* --- when --- */

bool redirect_listeners_possible(int cgroup)
{
	auto_close int fd = openat(cgroup, "cgroup.events", O_RDONLY | O_CLOEXEC);
	char text[256] = "";

	return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strstr(text, "populated 1");
}

void redirect_listeners_look(
    const struct broker_redirect *r, struct redirect_pod_state *p, int netns)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (!p->late || (p->looked && now.tv_sec - p->looked < PAUSE_S))
		return;
	p->looked = now.tv_sec;
	p->late = !redirect_listeners_find(r, &p->entry, netns);
}
