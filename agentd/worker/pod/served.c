/* served.c - restore: a record for each pod -> all pods are here -> 20 looks a second, until
 * nothing is lost or open -> in charge -> a look each five seconds, whose changes are kept.
 *
 * Before it is in charge a worker only adds to a record: what it lacks the one before gave, and may
 * give again.
 */
#include "served.h"
#include "border/protocol.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/uuid.h"
#include "worker/link/link.h"
#include "worker/link/ready.h"
#include "worker/pods/pod.h"
#include <stdio.h>
#include <string.h>
#include <uthash.h>

LOG_SCOPE("pod");

enum {
	LOOK_MS = 50,
	KEEP_MS = 5000,
	AWAY_MS = 4000, /* an Envoy's first back-off is half a second */
	RECORD_SIZE = 512,
	NAMED_MAX = 16, /* pods */
	NOTHING = -1,
};

struct record {
	struct uuid pod;
	uint32_t kept, has; /* rows, as bits: what stands in the record; what is seen */
	int lost;           /* a row that was kept and is not there; NOTHING: none */
	bool is_open;       /* that, for it is not known yet */
	char why[LINK_WHY_SIZE];
	struct pod *of; /* NULL: the pod has not come, or went meanwhile */
	struct link_call *putting;
	bool unstored; /* the last one failed: the next look asks again */
	UT_hash_handle hh;
};

struct pod_served {
	struct pod_served_of of;
	struct record *records;
	struct pod_registry *pods; /* NULL: they are not all here */
	struct loop_timer look;
	int64_t begun_ms;
	struct link_call *listing;
	loop_cb done;
	void *ctx;
	bool in_charge, told;
	char said[LINK_SERVED_SIZE];
};

static struct record *record_of(struct pod_served *s, const struct uuid *pod)
{
	struct record *r;

	HASH_FIND(hh, s->records, pod, sizeof(*pod), r);
	if (r)
		return r;
	r = mem_zalloc(sizeof(*r));
	r->pod = *pod;
	r->lost = NOTHING;
	HASH_ADD(hh, s->records, pod, sizeof(r->pod), r);
	return r;
}

static void drop(struct pod_served *s, struct record *r)
{
	link_call_cancel(&r->putting);
	HASH_DEL(s->records, r); /* NOLINT(clang-analyzer-*): uthash */
	free(r);
}

static void id_of(const struct uuid *pod, uint8_t id[LINK_STATE_ID_SIZE])
{
	memset(id, 0, LINK_STATE_ID_SIZE);
	memcpy(id, pod->bytes, sizeof(pod->bytes));
}

/* --- the record: names of rows, with blanks --- */

static void on_put(void *ctx, const struct err *e)
{
	struct record *r = ctx;

	r->unstored = e;
}

static void keep(struct pod_served *s, struct record *r, uint32_t rows)
{
	char text[RECORD_SIZE] = "";
	uint8_t id[LINK_STATE_ID_SIZE];
	size_t n = 0;

	if (r->putting || (rows == r->kept && !r->unstored))
		return;
	r->kept = rows;
	for (size_t i = 0; s->of.rows[i]; i++)
		if (rows & 1U << i && n < sizeof(text))
			n += (size_t)snprintf(
			    text + n, sizeof(text) - n, "%s ", s->of.rows[i]->name);
	id_of(&r->pod, id);
	const struct link_kept k = {
	    .kind = LINK_STATE_SERVED, .id = id, .data = text, .size = strlen(text)};
	link_state_put(s->of.link, &r->putting, &k, on_put, r);
}

/* A name that this release does not know is no row of it. */
static uint32_t rows_of(const struct pod_served *s, const char *text, size_t size)
{
	char words[RECORD_SIZE], *rest = NULL;
	uint32_t rows = 0;

	snprintf(
	    words, sizeof(words), "%.*s", (int)(size < RECORD_SIZE ? size : RECORD_SIZE), text);
	for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
		for (size_t i = 0; s->of.rows[i]; i++)
			if (!strcmp(s->of.rows[i]->name, w))
				rows |= 1U << i;
	return rows;
}

static void on_kept(void *ctx, const struct link_kept *k)
{
	struct pod_served *s = ctx;
	struct uuid pod;

	if (!k->data) {
		if (k->e)
			log_warn(NULL, "it cannot be read what pods had before: %s", k->e->msg);
		s->done(s->ctx);
		return;
	}
	memcpy(pod.bytes, k->id, sizeof(pod.bytes));
	struct record *r = record_of(s, &pod);
	r->kept = r->has = rows_of(s, k->data, k->size);
}

void pod_served_restore(struct pod_served *s, loop_cb done, void *ctx)
{
	s->done = done;
	s->ctx = ctx;
	link_state_list(s->of.link, &s->listing, LINK_STATE_SERVED, on_kept, s);
}

/* --- a look --- */

static enum pod_has row_of(const struct record *r, size_t row, const char **why)
{
	*why = "";
	if (r->of->services)
		return pod_services_has(r->of->services, row, why);
	*why = pod_why_not(r->of);
	return POD_LACKS;
}

/* What is not known yet counts as lost, until its time is over. */
static bool is_early(const struct pod_served *s)
{
	return loop_uptime_ms(s->of.loop) - s->begun_ms < AWAY_MS;
}

static bool is_lost(const struct pod_served *s, enum pod_has has)
{
	return has == POD_LACKS || has == POD_WAITS || (has == POD_AWAY && is_early(s));
}

static const char *const not_yet[] = {[POD_AWAY] = "its Envoy is not back yet",
    [POD_WAITS] = "it is not there yet",
    [POD_LACKS] = "it is not there"};

static void look_at(struct pod_served *s, struct record *r)
{
	const int before = r->lost;
	enum pod_has gravest = POD_HAS;
	const char *why;

	r->lost = NOTHING;
	for (int i = 0; s->of.rows[i]; i++) {
		enum pod_has has = row_of(r, (size_t)i, &why);
		uint32_t bit = 1U << i;

		if (has == POD_HAS)
			r->has |= bit;
		else if (has == POD_LACKS)
			r->has &= ~bit;
		if (has <= gravest || !is_lost(s, has) ||
		    !(s->in_charge ? before == i : r->kept & bit))
			continue;
		gravest = has;
		r->lost = i;
		snprintf(r->why, sizeof(r->why), "%s", *why ? why : not_yet[has]);
	}
	r->is_open = gravest < POD_LACKS;
	keep(s, r, s->in_charge ? r->has : r->kept | r->has);
}

/* Lines for people; the number of pods that lost something. */
static unsigned write_lost(const struct pod_served *s, char out[LINK_SERVED_SIZE])
{
	const struct record *r;
	unsigned lost = 0;
	size_t n = 0;

	out[0] = '\0';
	for (r = s->records; r; r = r->hh.next) {
		if (!r->of || r->lost == NOTHING)
			continue;
		if (++lost <= NAMED_MAX && n < LINK_SERVED_SIZE)
			n += (size_t)snprintf(out + n, LINK_SERVED_SIZE - n, "%s: %s: %s\n",
			    r->of->spec.label, s->of.rows[r->lost]->name, r->why);
	}
	if (lost > NAMED_MAX && n < LINK_SERVED_SIZE)
		snprintf(out + n, LINK_SERVED_SIZE - n, "and %u more pods\n", lost - NAMED_MAX);
	return lost;
}

/* Records of pods that went while no worker ran. */
static void forget_others(struct pod_served *s)
{
	struct record *r, *next;

	HASH_ITER (hh, s->records, r, next)
		if (!r->of)
			pod_served_forget(s, &r->pod);
}

/* What is lost is no reason; what is not known yet is, for a while, so that it can be said. */
static bool goes_on_anyway(const struct pod_served *s)
{
	const struct record *r;
	bool is_open = false;

	for (r = s->records; r; r = r->hh.next)
		is_open |= r->of && r->lost != NOTHING && r->is_open;
	return s->of.anyway && !(is_open && is_early(s));
}

static void tell(struct pod_served *s)
{
	char text[LINK_SERVED_SIZE];
	unsigned lost = write_lost(s, text);

	if (lost && goes_on_anyway(s)) {
		log_warn(NULL, "ready anyway, though pods lost what they had: %s", text);
		lost = 0;
	}
	s->in_charge = !lost;
	if (s->in_charge)
		forget_others(s);
	else if (s->told && !strcmp(text, s->said))
		return;
	s->told = true;
	memcpy(s->said, text, sizeof(text));
	link_served(s->of.link, lost, text);
}

static void on_look(void *ctx)
{
	struct pod_served *s = ctx;

	pod_served_look(s);
	loop_timer_in(s->of.loop, &s->look, s->in_charge ? KEEP_MS : LOOK_MS, on_look, s);
}

void pod_served_look(struct pod_served *s)
{
	struct record *r;

	if (!s->pods)
		return;
	for (struct pod *p = pod_first(s->pods); p; p = p->next) {
		r = record_of(s, &p->spec.uid);
		r->of = p;
		look_at(s, r);
	}
	if (!s->in_charge)
		tell(s);
}

void pod_served_begin(struct pod_served *s, struct pod_registry *pods)
{
	s->pods = pods;
	s->begun_ms = loop_uptime_ms(s->of.loop);
	on_look(s);
}

void pod_served_forget(struct pod_served *s, const struct uuid *pod)
{
	uint8_t id[LINK_STATE_ID_SIZE];
	struct record *r;

	HASH_FIND(hh, s->records, pod, sizeof(*pod), r);
	if (!r)
		return;
	id_of(pod, id); /* which may be the record's own */
	drop(s, r);
	link_state_del(s->of.link, LINK_STATE_SERVED, id);
}

/* --- pages, life --- */

bool pod_served_is_in_charge(const struct pod_served *s)
{
	return s->in_charge;
}

json_t *pod_served_lost(const struct pod_served *s)
{
	json_t *all = json_array();
	const struct record *r;
	char uid[UUID_TEXT_SIZE];

	for (r = s->records; r; r = r->hh.next) {
		if (!r->of || r->lost == NOTHING)
			continue;
		uuid_format(&r->pod, uid);
		json_array_append_new(
		    all, json_pack("{s:s, s:s, s:s, s:s}", "pod", r->of->spec.label, "uid", uid,
			     "service", s->of.rows[r->lost]->name, "why", r->why));
	}
	return all;
}

struct pod_served *pod_served_new(const struct pod_served_of *of)
{
	struct pod_served *s = mem_zalloc(sizeof(*s));

	s->of = *of;
	return s;
}

void pod_served_free(struct pod_served **served)
{
	struct pod_served *s = take(*served);
	struct record *r, *next;

	if (!s)
		return;
	link_call_cancel(&s->listing);
	loop_timer_stop(&s->look);
	HASH_ITER (hh, s->records, r, next)
		drop(s, r);
	free(s);
}
