/* keep.c - put: a digest -> known: its table is shared, nothing is read -> else read, and stored
 * -> the index follows, then tables that it does not name go.  Beside it the eBPF programs are told
 * all names, if they are others.
 * restore: a list, tables and index in any order -> at its end each pod has its table's bytes; they
 * are read when the pod comes.
 */
#include "keep.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/uuid.h"
#include "ebpf/names.h"
#include "worker/crypto/x509.h"
#include "worker/link/link.h"
#include "worker/link/redirect.h"
#include <errno.h>
#include <string.h>
#include <utlist.h>

LOG_SCOPE("dns");

enum { PAUSE_MS = 1000, AGAIN_MS = 10000, ID_SIZE = LINK_STATE_ID_SIZE };

/* The index is an array of these, under the id of zeroes. */
struct row {
	struct uuid pod;
	uint8_t id[ID_SIZE];
};
static const uint8_t index_id[ID_SIZE];

/* A table as istiod sent it. */
struct content {
	struct dns_keep *keep;
	uint8_t id[ID_SIZE]; /* SHA-256 */
	char *data;          /* until it is stored; a restored one's, until the pods have come */
	size_t size;
	bool stored, failed;
	struct link_call *storing;
	struct content *prev, *next;
};

struct owner {
	struct uuid pod;
	struct content *has;
	struct dns_table *table; /* NULL: not read yet */
	struct owner *prev, *next;
};

struct dns_keep {
	struct loop *loop;
	struct link *link;
	struct content *contents;
	struct owner *owners;
	struct loop_timer due; /* the index is to be written */
	int64_t not_before;    /* uptime in ms: two writes have a pause between them */
	struct link_call *writing, *listing, *telling;
	uint8_t told[X509_SHA256_SIZE]; /* the programs know these names; zeroes: never */
	char *index;                    /* as found */
	size_t index_size;
	bool settled;
	bool again; /* it changed while it was written */
	loop_cb done;
	void *ctx;
};

/* --- what there is --- */

static struct content *find_content(const struct dns_keep *k, const uint8_t *id)
{
	struct content *c;

	DL_FOREACH (k->contents, c)
		if (!memcmp(c->id, id, ID_SIZE))
			return c;
	return NULL;
}

static struct content *add_content(struct dns_keep *k, const uint8_t *id)
{
	struct content *c = mem_zalloc(sizeof(*c));

	c->keep = k;
	memcpy(c->id, id, ID_SIZE);
	DL_APPEND(k->contents, c);
	return c;
}

static void drop_content(struct content *c)
{
	DL_DELETE(c->keep->contents, c);
	link_call_cancel(&c->storing);
	free(c->data);
	free(c);
}

static struct owner *find_owner(const struct dns_keep *k, const struct uuid *pod)
{
	struct owner *o;

	DL_FOREACH (k->owners, o)
		if (uuid_equal(&o->pod, pod))
			return o;
	return NULL;
}

static struct owner *add_owner(struct dns_keep *k, const struct uuid *pod)
{
	struct owner *o = mem_zalloc(sizeof(*o));

	o->pod = *pod;
	DL_APPEND(k->owners, o);
	return o;
}

static void drop_owner(struct dns_keep *k, struct owner *o)
{
	DL_DELETE(k->owners, o);
	dns_table_unref(&o->table);
	free(o);
}

static bool is_owned(const struct content *c)
{
	const struct owner *o;

	DL_FOREACH (c->keep->owners, o)
		if (o->has == c)
			return true;
	return false;
}

/* --- stored --- */

static void on_due(void *ctx);

/* The first change of many is written at once. */
static void changed(struct dns_keep *k)
{
	const int64_t wait = k->not_before - loop_uptime_ms(k->loop);

	if (!k->due.armed)
		loop_timer_in(k->loop, &k->due, wait > 0 ? wait : 0, on_due, k);
}

static void failed(struct dns_keep *k)
{
	k->not_before = loop_uptime_ms(k->loop) + AGAIN_MS;
	changed(k);
}

static void forget_data(struct content *c)
{
	if (c->stored && c->keep->settled)
		free(take(c->data));
}

static void on_stored(void *ctx, const struct err *e)
{
	struct content *c = ctx;

	c->stored = !e;
	forget_data(c);
	if (e && !c->failed)
		log_warn(NULL,
		    "a name table of %zu bytes is not kept, and is tried again: %s; after a "
		    "restart of "
		    "agentd its pods have none until istiod answers",
		    c->size, e->msg);
	c->failed = e != NULL;
	e ? failed(c->keep) : changed(c->keep);
}

static void store(struct content *c)
{
	const struct link_kept kept = {
	    .kind = LINK_STATE_NAMES, .id = c->id, .data = c->data, .size = c->size};

	if (!c->stored && !c->storing && c->data)
		link_state_put(c->keep->link, &c->storing, &kept, on_stored, c);
}

/* Only now: until here an earlier index named them. */
static void sweep(struct dns_keep *k)
{
	struct content *c, *tmp;

	DL_FOREACH_SAFE (k->contents, c, tmp) {
		if (is_owned(c) || c->storing)
			continue;
		link_state_del(k->link, LINK_STATE_NAMES, c->id);
		drop_content(c);
	}
}

static void on_written(void *ctx, const struct err *e)
{
	struct dns_keep *k = ctx;

	if (k->again)
		changed(k);
	k->again = false;
	if (!e) {
		sweep(k);
		return;
	}
	log_warn(NULL, "the list of pods' name tables is not kept, and is tried again: %s", e->msg);
	failed(k);
}

static char *index_of(const struct dns_keep *k, size_t *size)
{
	const struct owner *o;
	struct row *rows;
	size_t n = 0;

	DL_COUNT(k->owners, o, n);
	rows = mem_zalloc((n + 1) * sizeof(*rows));
	n = 0;
	DL_FOREACH (k->owners, o) {
		if (!o->has->stored)
			continue;
		rows[n].pod = o->pod;
		memcpy(rows[n++].id, o->has->id, ID_SIZE);
	}
	*size = n * sizeof(*rows);
	return (char *)rows;
}

static void write_index(struct dns_keep *k)
{
	size_t size;
	auto_free char *data = index_of(k, &size);
	const struct link_kept kept = {
	    .kind = LINK_STATE_NAMES, .id = index_id, .data = data, .size = size};

	link_state_put(k->link, &k->writing, &kept, on_written, k);
	k->not_before = loop_uptime_ms(k->loop) + PAUSE_MS;
}

/* --- told to the programs --- */

/* The first one that has the same table. */
static const struct owner *first_with(const struct dns_keep *k, const struct owner *o)
{
	const struct owner *at = NULL;

	DL_FOREACH (k->owners, at)
		if (at->table == o->table)
			break;
	return at;
}

/* As long as the table is the same, so is its salt. */
static uint64_t salt_of(const struct owner *o)
{
	uint64_t salt;

	memcpy(&salt, o->has->id, sizeof(salt));
	return dns_table_salt(o->table, salt);
}

static struct redirect_names_told *names_of_all(const struct dns_keep *k)
{
	struct redirect_names_told *all = mem_zalloc(sizeof(*all));
	const struct owner *o, *first;

	DL_FOREACH (k->owners, o) {
		if (!o->table || all->npods == REDIRECT_PODS_MAX)
			continue;
		first = first_with(k, o);
		struct redirect_names_of *row = &all->pods[all->npods++];
		memcpy(row->pod, &o->pod, sizeof(row->pod));
		row->salt = salt_of(first);
		if (o == first)
			dns_table_know(o->table, row->salt, &all->names);
	}
	return all;
}

static void tell(struct dns_keep *k);

static void on_told(void *ctx, const struct err *e)
{
	struct dns_keep *k = ctx;

	if (!e) {
		tell(k); /* they may be others by now */
		return;
	}
	memset(k->told, 0, sizeof(k->told));
	log_warn(NULL,
	    "the names that istiod told are not told to the eBPF programs, and are tried again: "
	    "%s; while agentd is away its pods may hear that they do not exist",
	    e->msg);
	failed(k);
}

/* Not before all pods are here: until then the programs know what an earlier worker told. */
static void tell(struct dns_keep *k)
{
	uint8_t digest[X509_SHA256_SIZE];

	if (!k->settled || k->telling)
		return;
	auto_free struct redirect_names_told *all = names_of_all(k);
	x509_sha256(all, sizeof(*all), digest);
	if (!memcmp(digest, k->told, sizeof(digest)))
		return;
	memcpy(k->told, digest, sizeof(digest));
	link_redirect_names(k->link, &k->telling, all, on_told, k);
}

static void on_due(void *ctx)
{
	struct dns_keep *k = ctx;
	struct content *c = NULL;

	DL_FOREACH (k->contents, c)
		if (is_owned(c))
			store(c);
	if (!k->writing)
		write_index(k);
	else
		k->again = true;
	tell(k);
}

/* --- read --- */

static void take_content(struct dns_keep *k, const struct link_kept *in)
{
	uint8_t id[X509_SHA256_SIZE];
	struct content *c;

	x509_sha256(in->data, in->size, id);
	if (memcmp(id, in->id, ID_SIZE) != 0) {
		log_warn(NULL, "a kept name table is damaged: deleted");
		link_state_del(k->link, LINK_STATE_NAMES, in->id);
		return;
	}
	c = add_content(k, id);
	c->data = mem_dup(in->data, in->size);
	c->size = in->size;
	c->stored = true;
}

static void take_index(struct dns_keep *k)
{
	const struct row *rows = (const struct row *)k->index;
	struct content *c;

	for (size_t i = 0; i < k->index_size / sizeof(*rows); i++) {
		c = find_content(k, rows[i].id);
		if (c && !find_owner(k, &rows[i].pod))
			add_owner(k, &rows[i].pod)->has = c;
	}
	free(take(k->index));
}

static void on_kept(void *ctx, const struct link_kept *in)
{
	struct dns_keep *k = ctx;

	if (in->data && memcmp(in->id, index_id, ID_SIZE) != 0)
		return take_content(k, in);
	if (in->data) {
		free(k->index);
		k->index = mem_dup(in->data, in->size);
		k->index_size = in->size;
		return;
	}
	if (in->e)
		log_warn(NULL, "kept name tables cannot be read: %s", in->e->msg);
	take_index(k);
	k->done(k->ctx);
}

void dns_keep_restore(struct dns_keep *k, loop_cb done, void *ctx)
{
	k->done = done;
	k->ctx = ctx;
	link_state_list(k->link, &k->listing, LINK_STATE_NAMES, on_kept, k);
}

/* --- a pod's --- */

/* Another pod's of the same bytes, or read from them. */
static struct dns_table *table_of(const struct dns_keep *k, const struct content *c,
    const struct dns_zone *z, const void *data, struct err *e)
{
	const struct iovec bytes = {.iov_base = (void *)data, .iov_len = c->size};
	const struct owner *o;
	struct pbwire names;

	DL_FOREACH (k->owners, o)
		if (o->has == c && o->table && dns_table_is_of(o->table, z))
			return dns_table_ref(o->table);
	if (!data) {
		err_set(e, ENOENT, "its bytes are not here any more");
		return NULL;
	}
	pbwire_init(&names, &bytes, 1);
	return dns_table_new(names, z, e);
}

struct dns_table *dns_keep_get(struct dns_keep *k, const struct uuid *pod, const struct dns_zone *z)
{
	struct owner *o = find_owner(k, pod);
	struct err e;

	if (!o)
		return NULL;
	if (!o->table)
		o->table = table_of(k, o->has, z, o->has->data, &e);
	if (!o->table)
		log_warn(NULL, "a kept name table is ignored: %s", e.msg);
	return dns_table_ref(o->table);
}

/* New bytes stay ours until they are stored. */
static struct content *content_of(struct dns_keep *k, char **data, size_t size)
{
	uint8_t id[X509_SHA256_SIZE];
	struct content *c;

	x509_sha256(*data, size, id);
	c = find_content(k, id);
	if (c)
		return c;
	c = add_content(k, id);
	c->size = size;
	if (size <= LINK_FILE_SIZE_MAX)
		c->data = take(*data);
	else
		log_warn(NULL,
		    "a name table of %zu bytes is not kept, since it has more than %d: after a "
		    "restart of agentd its pods have none until istiod answers",
		    size, LINK_FILE_SIZE_MAX);
	return c;
}

struct dns_table *dns_keep_put(struct dns_keep *k, const struct uuid *pod, const struct dns_zone *z,
    struct pbwire names, struct err *e)
{
	const size_t size = names.left;
	auto_free char *data = mem_zalloc(size + 1);
	struct owner *o = find_owner(k, pod);
	struct dns_table *t;
	struct content *c;

	pbwire_copy(names, data, size);
	c = content_of(k, &data, size);
	t = table_of(k, c, z, c->data ? c->data : data, e);
	if (!t) {
		if (!is_owned(c))
			drop_content(c);
		return NULL;
	}
	if (!o)
		o = add_owner(k, pod);
	if (o->has != c && (c->stored || !c->data))
		changed(k);
	o->has = c;
	dns_table_unref(&o->table);
	o->table = t;
	store(c);
	return dns_table_ref(t);
}

void dns_keep_forget(struct dns_keep *k, const struct uuid *pod)
{
	struct owner *o = find_owner(k, pod);

	if (!o)
		return;
	drop_owner(k, o);
	changed(k);
}

/* --- life --- */

struct dns_keep *dns_keep_new(struct loop *l, struct link *p)
{
	struct dns_keep *k = mem_zalloc(sizeof(*k));

	k->loop = l;
	k->link = p;
	return k;
}

void dns_keep_settle(struct dns_keep *k)
{
	struct owner *o, *tmp;
	struct content *c = NULL;

	k->settled = true;
	DL_FOREACH_SAFE (k->owners, o, tmp)
		if (!o->table)
			drop_owner(k, o);
	DL_FOREACH (k->contents, c) {
		forget_data(c);
		if (!is_owned(c))
			changed(k);
	}
	if (k->owners)
		tell(k);
}

/* An index that is due is written now; nobody hears the answer. */
void dns_keep_free(struct dns_keep **slot)
{
	struct dns_keep *k = take(*slot);
	struct content *c, *ctmp;
	struct owner *o, *otmp;

	if (!k)
		return;
	if (k->due.armed && !k->writing)
		write_index(k);
	if (k->due.armed)
		tell(k);
	loop_timer_stop(&k->due);
	link_call_cancel(&k->writing);
	link_call_cancel(&k->listing);
	link_call_cancel(&k->telling);
	DL_FOREACH_SAFE (k->owners, o, otmp)
		drop_owner(k, o);
	DL_FOREACH_SAFE (k->contents, c, ctmp)
		drop_content(c);
	free(k->index);
	free(k);
}
