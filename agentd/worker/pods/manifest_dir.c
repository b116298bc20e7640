/* manifest_dir.c - files become pods.
 *
 * The broker tells a file's content, now and at each change -> parsed -> pod_add(); a refused one
 * leaves what it described before as it was, and is kept with its reason until it is changed or
 * gone.  A file goes, whatever was in it (its name is the uid) -> a moment of grace ->
 * pod_remove(). Anything that is told of the file meanwhile keeps the pod: editors rename the old
 * file away before they write the new one, and a removal would take the directory that is mounted
 * into the pod.  The names of a pod's owner (env, labels, annotations) are only taken for text
 * here; mesh/node judges them.
 */
#include "manifest_dir.h"
#include "base/loop.h"
#include "base/yaml.h"
#include "common/log.h"
#include "common/mem.h"
#include "mesh/identity.h"
#include "pod.h"
#include "worker/link/link.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

LOG_SCOPE("manifest");

enum { MAP_ENTRIES_MAX = 256, GRACE_MS = 2000 };

struct refused {
	struct refused *next;
	char file[LINK_NAME_SIZE];
	char why[ERR_MSG_SIZE];
};

/* A file that went a moment ago. */
struct removal {
	struct manifest_dir *of;
	struct removal *next;
	char file[LINK_NAME_SIZE];
	struct uuid uid;
	struct loop_timer timer;
};

struct manifest_dir {
	struct loop *loop;
	struct pod_registry *pods;
	struct pod_source source;
	struct link_follow *follow;
	struct refused *refused; /* ordered by file */
	struct removal *removals;
};

struct reader {
	struct pod_spec *out;
	const char *file;
	const struct yaml_doc *yaml;
};

/* "pods.d/FILE: line N: ", or without the line when there is none. */
static int wrap_at(const struct reader *r, unsigned line, struct err *e)
{
	char file[80];

	err_printable(file, sizeof(file), r->file, (unsigned)strlen(r->file));
	if (line)
		return err_wrap(e, "pods.d/%s: line %u", file, line);
	return err_wrap(e, "pods.d/%s", file);
}

static int bad(struct err *e, const char *key, const char *why)
{
	char printable[80];

	err_printable(printable, sizeof(printable), key, (unsigned)strlen(key));
	return err_set(e, ERR_INVALID, "%s: %s", printable, why);
}

static int read_uid(struct reader *r, const char *key, json_t *v, struct err *e)
{
	char expected[UUID_TEXT_SIZE + sizeof(".yaml")];

	if (!json_is_string(v) || !uuid_parse(&r->out->uid, json_string_value(v)))
		return bad(e, key, "must be a uid as Kubernetes writes it");
	(void)snprintf(expected, sizeof(expected), "%s.yaml", json_string_value(v));
	if (strcmp(expected, r->file) != 0)
		return bad(e, key, "must be the file's name without .yaml");
	return 0;
}

static bool is_valid(const json_t *v, bool (*valid)(const char *))
{
	return json_is_string(v) && valid(json_string_value(v));
}

static int read_pod_name(struct reader *r, const char *key, json_t *v, struct err *e)
{
	if (!is_valid(v, identity_valid_sa))
		return bad(e, key, "must be a DNS subdomain (lower case, at most 253)");
	(void)snprintf(r->out->name, sizeof(r->out->name), "%s", json_string_value(v));
	return 0;
}

static int read_namespace(struct reader *r, const char *key, json_t *v, struct err *e)
{
	if (!is_valid(v, identity_valid_ns))
		return bad(e, key, "must be a DNS label (lower case, at most 63)");
	(void)snprintf(r->out->ns, sizeof(r->out->ns), "%s", json_string_value(v));
	return 0;
}

static int read_account(struct reader *r, const char *key, json_t *v, struct err *e)
{
	if (!is_valid(v, identity_valid_sa))
		return bad(e, key, "must be a DNS subdomain (lower case, at most 253)");
	(void)snprintf(r->out->sa, sizeof(r->out->sa), "%s", json_string_value(v));
	return 0;
}

static int read_map(json_t **out, const char *key, json_t *v, struct err *e)
{
	const char *k;
	json_t *value;

	if (!json_is_object(v))
		return bad(e, key, "must be a map");
	json_object_foreach (v, k, value)
		if (!json_is_string(value))
			return bad(
			    e, key, "values must be text (quote JSON, or write it as a block)");
	*out = json_incref(v);
	return 0;
}

/* mesh/node bounds the others. */
static int read_bounded_map(json_t **out, const char *key, json_t *v, struct err *e)
{
	if (json_object_size(v) > MAP_ENTRIES_MAX)
		return bad(e, key, "more than 256 entries");
	return read_map(out, key, v, e);
}

static int read_env(struct reader *r, const char *key, json_t *v, struct err *e)
{
	return read_bounded_map(&r->out->env, key, v, e);
}

static int read_labels(struct reader *r, const char *key, json_t *v, struct err *e)
{
	return read_map(&r->out->labels, key, v, e);
}

static int read_annotations(struct reader *r, const char *key, json_t *v, struct err *e)
{
	return read_map(&r->out->annotations, key, v, e);
}

/* Envoy's user: never root, and -1 means "no change" to the kernel. */
static int read_id(unsigned *out, const char *key, const json_t *v, struct err *e)
{
	const char *text = json_string_value(v);
	size_t digits = text ? strspn(text, "0123456789") : 0;
	unsigned long long n;

	if (!digits || digits > 10 || text[digits])
		return bad(e, key, "must be a number");
	n = strtoull(text, NULL, 10);
	if (n == 0 || n >= UINT32_MAX)
		return bad(e, key, "must be 1 to 4294967294");
	*out = (unsigned)n;
	return 0;
}

static int read_proxy_uid(struct reader *r, const char *key, json_t *v, struct err *e)
{
	return read_id(&r->out->proxy_uid, key, v, e);
}

static int read_proxy_gid(struct reader *r, const char *key, json_t *v, struct err *e)
{
	return read_id(&r->out->proxy_gid, key, v, e);
}

static int read_identity(struct reader *r, const char *key, json_t *v, struct err *e)
{
	const char *how = json_is_string(v) ? json_string_value(v) : "";

	if (strcmp(how, "token") != 0 && strcmp(how, "certificate") != 0)
		return bad(e, key, "must be token or certificate");
	r->out->by_certificate = !strcmp(how, "certificate");
	return 0;
}

/* One to three parts, of the characters of label values. */
static bool is_locality(const char *text)
{
	static const char characters[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";

	if (strlen(text) >= POD_LOCALITY_SIZE)
		return false;
	for (unsigned parts = 1; parts <= 3; parts++) {
		size_t n = strspn(text, characters);

		if (!n || !text[n])
			return n;
		if (text[n] != '/')
			return false;
		text += n + 1;
	}
	return false;
}

static int read_locality(struct reader *r, const char *key, json_t *v, struct err *e)
{
	if (!is_valid(v, is_locality))
		return bad(e, key,
		    "must be REGION, REGION/ZONE or REGION/ZONE/SUBZONE, each of letters, digits, "
		    "'-', '_' and '.', at most 253 in all");
	(void)snprintf(r->out->locality, sizeof(r->out->locality), "%s", json_string_value(v));
	return 0;
}

/* redirect/ reads it. */
static int read_redirect(struct reader *r, const char *key, json_t *v, struct err *e)
{
	return read_bounded_map(&r->out->redirect, key, v, e);
}

static const struct key {
	const char *name;
	int (*read)(struct reader *r, const char *key, json_t *value, struct err *e);
	bool required;
} keys[] = {
    {"uid", read_uid, true},
    {"name", read_pod_name, true},
    {"namespace", read_namespace, true},
    {"service_account", read_account, true},
    {"identity", read_identity, false},
    {"locality", read_locality, false},
    {"env", read_env, false},
    {"labels", read_labels, false},
    {"annotations", read_annotations, false},
    {"proxy_uid", read_proxy_uid, false},
    {"proxy_gid", read_proxy_gid, false},
    {"redirect", read_redirect, false},
};
enum { KEYS = sizeof(keys) / sizeof(*keys) };

static int read_value(struct reader *r, const char *name, json_t *v, struct err *e)
{
	for (unsigned i = 0; i < KEYS; i++)
		if (!strcmp(keys[i].name, name))
			return keys[i].read(r, name, v, e);
	return bad(e, name, "no such key");
}

static int read_manifest(struct reader *r, json_t *root, struct err *e)
{
	const char *name;
	json_t *value;

	if (!json_is_object(root)) {
		err_set(e, ERR_INVALID, "not a map of keys");
		return wrap_at(r, yaml_doc_line(r->yaml, root), e);
	}
	json_object_foreach (root, name, value)
		if (read_value(r, name, value, e))
			return wrap_at(r, yaml_doc_line(r->yaml, value), e);
	for (unsigned i = 0; i < KEYS; i++)
		if (keys[i].required && !json_object_get(root, keys[i].name)) {
			bad(e, keys[i].name, "is missing");
			return wrap_at(r, 0, e);
		}
	return 0;
}

int manifest_parse(
    struct pod_spec *out, const char *file, const char *text, size_t len, struct err *e)
{
	struct yaml_doc *y = yaml_doc_parse(text, len, e);
	struct reader r = {out, file, y};
	int rc;

	*out = (struct pod_spec){.proxy_uid = 1337, .proxy_gid = 1337, .machine = true};
	if (!y)
		return wrap_at(&r, 0, e);
	rc = read_manifest(&r, yaml_doc_root(y), e);
	yaml_doc_free(&y);
	if (rc)
		manifest_clear(out);
	return rc;
}

void manifest_clear(struct pod_spec *spec)
{
	json_decref(take(spec->env));
	json_decref(take(spec->labels));
	json_decref(take(spec->annotations));
	json_decref(take(spec->redirect));
}

static int by_file(const struct refused *a, const struct refused *b)
{
	return strcmp(a->file, b->file);
}

static struct refused *find_refused(const struct manifest_dir *m, const char *file)
{
	struct refused *r;

	LL_FOREACH (m->refused, r)
		if (!strcmp(r->file, file))
			return r;
	return NULL;
}

static void forget_refused(struct manifest_dir *m, const char *file)
{
	struct refused *r = find_refused(m, file);

	if (!r)
		return;
	LL_DELETE(m->refused, r);
	free(r);
}

/* The same reason is not logged twice. */
static void note_refused(struct manifest_dir *m, const char *file, const struct err *e)
{
	struct refused *r = find_refused(m, file);

	if (r && !strcmp(r->why, e->msg))
		return;
	if (!r) {
		r = mem_zalloc(sizeof(*r));
		(void)snprintf(r->file, sizeof(r->file), "%s", file);
		LL_INSERT_INORDER(m->refused, r, by_file);
	}
	(void)snprintf(r->why, sizeof(r->why), "%s", e->msg);
	log_error(NULL, "manifest refused: %s", e->msg);
}

static int add_pod(struct manifest_dir *m, const struct link_content *c, struct err *e)
{
	struct reader at = {.file = c->name};
	struct pod_spec spec;
	int rc;

	if (!c->data) {
		*e = *c->e;
		return wrap_at(&at, 0, e);
	}
	if (manifest_parse(&spec, c->name, c->data, c->size, e))
		return -1;
	spec.running = c->running;
	spec.redirected = c->running & LINK_RUNNING_REDIRECTED;
	rc = pod_add(m->pods, &m->source, &spec, e);
	manifest_clear(&spec);
	return rc ? wrap_at(&at, 0, e) : 0;
}

static bool uid_of_file(const char *file, struct uuid *uid)
{
	char text[UUID_TEXT_SIZE];

	if (strlen(file) != UUID_TEXT_SIZE - 1 + strlen(".yaml"))
		return false;
	(void)snprintf(text, sizeof(text), "%s", file);
	return uuid_parse(uid, text);
}

static struct removal *find_removal(const struct manifest_dir *m, const char *file)
{
	struct removal *r;

	LL_FOREACH (m->removals, r)
		if (!strcmp(r->file, file))
			return r;
	return NULL;
}

static void end_removal(struct removal *r)
{
	if (!r)
		return;
	LL_DELETE(r->of->removals, r);
	loop_timer_stop(&r->timer);
	free(r);
}

static void on_grace_over(void *ctx)
{
	struct removal *r = ctx;
	struct manifest_dir *m = r->of;
	struct uuid uid = r->uid;

	end_removal(r);
	pod_remove(m->pods, &m->source, &uid);
}

static void on_removed(struct manifest_dir *m, const char *file)
{
	struct uuid uid;
	struct removal *r;

	forget_refused(m, file);
	if (!uid_of_file(file, &uid) || !pod_find(m->pods, &uid) || find_removal(m, file))
		return;
	r = mem_zalloc(sizeof(*r));
	r->of = m;
	r->uid = uid;
	(void)snprintf(r->file, sizeof(r->file), "%s", file);
	LL_PREPEND(m->removals, r);
	loop_timer_in(m->loop, &r->timer, GRACE_MS, on_grace_over, r);
}

static void take_content(struct manifest_dir *m, const struct link_content *c)
{
	struct err e;

	end_removal(find_removal(m, c->name));
	if (add_pod(m, c, &e))
		note_refused(m, c->name, &e);
	else
		forget_refused(m, c->name);
}

static void on_content(void *ctx, const struct link_content *c)
{
	struct manifest_dir *m = ctx;

	if (c->synced) {
		log_info(NULL, "all manifests read");
		pod_registry_synced(m->pods, &m->source);
	} else if (!c->data && c->e->code == ENOENT) {
		on_removed(m, c->name);
	} else {
		take_content(m, c);
	}
}

struct manifest_dir *manifest_dir_new(struct loop *l, struct link *p, struct pod_registry *pods)
{
	struct manifest_dir *m = mem_zalloc(sizeof(*m));

	m->loop = l;
	m->pods = pods;
	m->source.name = "manifest";
	pod_source_add(pods, &m->source);
	m->follow = link_follow(p, LINK_FOLLOW_MANIFESTS, NULL, 0, on_content, m);
	return m;
}

void manifest_dir_free(struct manifest_dir **dir)
{
	struct manifest_dir *m = take(*dir);
	struct removal *gone, *after;
	struct refused *r, *next;

	if (!m)
		return;
	link_unfollow(&m->follow);
	LL_FOREACH_SAFE (m->removals, gone, after)
		end_removal(gone);
	LL_FOREACH_SAFE (m->refused, r, next)
		free(r);
	free(m);
}

json_t *manifest_dir_refused(const struct manifest_dir *m)
{
	json_t *all = json_array();
	struct refused *r;

	LL_FOREACH (m->refused, r) {
		char file[LINK_NAME_SIZE];

		err_printable(file, sizeof(file), r->file, (unsigned)strlen(r->file));
		json_array_append_new(all, json_pack("{s:s, s:s}", "file", file, "why", r->why));
	}
	return all;
}
