/* pod.c - a list of pods, ordered by label, their sources, and one observer.
 *
 * A source announces a pod: checked and copied -> observer.added -> ... -> pod_set_ready() ->
 * source.progress.  Announced again with another environment: observer.changed.  With another
 * identity: refused, as a uid never becomes another pod (security-rules.md G4).  Removed: out of
 * the list first, so that nobody finds it any more, then observer.removed, then its memory goes.
 * When all sources have announced what there was and each pod was told whether it is served:
 * observer.settled.
 */
#include "pod.h"
#include "common/mem.h"
#include "common/secret.h"
#include "mesh/identity.h"
#include <stdio.h>
#include <string.h>
#include <utlist.h>

enum { PROXY_ID_DEFAULT = 1337 };

struct pod_registry {
	const struct pod_observer *observer;
	void *ctx;
	struct pod_source *sources;
	struct pod *pods;
	bool settled;
};

struct pod_registry *pod_registry_new(const struct pod_observer *o, void *ctx)
{
	struct pod_registry *r = mem_zalloc(sizeof(*r));

	r->observer = o;
	r->ctx = ctx;
	return r;
}

static void drop_json(struct pod *p)
{
	json_decref(p->spec.env);
	json_decref(p->spec.labels);
	json_decref(p->spec.annotations);
	json_decref(p->spec.redirect);
}

static void pod_free(struct pod *p)
{
	drop_json(p);
	secret_free(p->spec.token);
	free(p);
}

void pod_registry_free(struct pod_registry **registry)
{
	struct pod_registry *r = take(*registry);
	struct pod *p, *next;

	if (!r)
		return;
	LL_FOREACH_SAFE (r->pods, p, next)
		pod_free(p);
	free(r);
}

struct pod *pod_find(const struct pod_registry *r, const struct uuid *uid)
{
	struct pod *p;

	LL_FOREACH (r->pods, p)
		if (uuid_equal(&p->spec.uid, uid))
			return p;
	return NULL;
}

struct pod *pod_first(const struct pod_registry *r)
{
	return r->pods;
}

static void check_settled(struct pod_registry *r)
{
	const struct pod_source *s;
	const struct pod *p;

	if (r->settled)
		return;
	LL_FOREACH (r->sources, s)
		if (!s->synced)
			return;
	LL_FOREACH (r->pods, p)
		if (!p->told)
			return;
	r->settled = true;
	if (r->observer->settled)
		r->observer->settled(r->ctx);
}

void pod_source_add(struct pod_registry *r, struct pod_source *source)
{
	LL_PREPEND(r->sources, source);
}

void pod_registry_synced(struct pod_registry *r, struct pod_source *source)
{
	source->synced = true;
	check_settled(r);
}

bool pod_registry_is_settled(const struct pod_registry *r)
{
	return r->settled;
}

/* Two pods may share a label for a while: a StatefulSet's new pod comes before the old one is gone.
 */
static int by_label(const struct pod *a, const struct pod *b)
{
	int c = strcmp(a->spec.label, b->spec.label);

	return c ? c : memcmp(&a->spec.uid, &b->spec.uid, sizeof(a->spec.uid));
}

static int check_names(const struct pod_spec *spec, struct err *e)
{
	if (!identity_valid_ns(spec->ns))
		return err_set(e, ERR_INVALID, "the namespace is not a DNS label");
	if (!identity_valid_sa(spec->name))
		return err_set(e, ERR_INVALID, "the pod's name is not a DNS subdomain");
	if (!identity_valid_sa(spec->sa))
		return err_set(e, ERR_INVALID, "the service account is not a DNS subdomain");
	return 0;
}

static json_t *object_or_empty(json_t *o)
{
	return o ? json_incref(o) : json_object();
}

static void take_over(struct pod *p, const struct pod_spec *spec)
{
	p->spec.env = object_or_empty(spec->env);
	p->spec.labels = object_or_empty(spec->labels);
	p->spec.annotations = object_or_empty(spec->annotations);
	p->spec.redirect = object_or_empty(spec->redirect);
	p->spec.proxy_uid = spec->proxy_uid ? spec->proxy_uid : PROXY_ID_DEFAULT;
	p->spec.proxy_gid = spec->proxy_gid ? spec->proxy_gid : PROXY_ID_DEFAULT;
	p->spec.by_certificate = spec->by_certificate;
	p->spec.machine = spec->machine;
	p->spec.running = spec->running;
	p->spec.redirected = spec->redirected;
	memcpy(p->spec.locality, spec->locality, sizeof(p->spec.locality));
}

static bool same_content(const struct pod *a, const struct pod *b)
{
	return a->spec.proxy_uid == b->spec.proxy_uid && a->spec.proxy_gid == b->spec.proxy_gid &&
	       a->spec.by_certificate == b->spec.by_certificate &&
	       a->spec.machine == b->spec.machine && !strcmp(a->spec.locality, b->spec.locality) &&
	       json_equal(a->spec.env, b->spec.env) && json_equal(a->spec.labels, b->spec.labels) &&
	       json_equal(a->spec.annotations, b->spec.annotations) &&
	       json_equal(a->spec.redirect, b->spec.redirect);
}

static int change(struct pod_registry *r, struct pod *p, const struct pod_spec *spec, struct err *e)
{
	struct pod fresh = {0};

	if (strcmp(p->spec.ns, spec->ns) != 0 || strcmp(p->spec.name, spec->name) != 0 ||
	    strcmp(p->spec.sa, spec->sa) != 0)
		return err_set(e, ERR_DENIED, "this uid is the pod %s of service account %s",
		    p->spec.label, p->spec.sa);
	take_over(&fresh, spec);
	if (same_content(p, &fresh)) {
		drop_json(&fresh);
		return 0;
	}
	drop_json(p);
	take_over(p, spec);
	drop_json(&fresh);
	r->observer->changed(r->ctx, p);
	return 0;
}

int pod_add(
    struct pod_registry *r, struct pod_source *source, const struct pod_spec *spec, struct err *e)
{
	struct pod *p = pod_find(r, &spec->uid);

	if (check_names(spec, e))
		return -1;
	if (p && p->source != source)
		return err_set(
		    e, ERR_DENIED, "this uid is a pod of the source %s", p->source->name);
	if (p)
		return change(r, p, spec, e);
	p = mem_zalloc(sizeof(*p));
	p->spec.uid = spec->uid;
	memcpy(p->spec.ns, spec->ns, sizeof(p->spec.ns));
	memcpy(p->spec.name, spec->name, sizeof(p->spec.name));
	memcpy(p->spec.sa, spec->sa, sizeof(p->spec.sa));
	(void)snprintf(p->spec.label, sizeof(p->spec.label), "%s/%s", p->spec.ns, p->spec.name);
	p->source = source;
	p->spec.token = secret_dup(spec->token);
	err_set(&p->state, ERR_UNAVAILABLE, "starting");
	take_over(p, spec);
	p->registry = r;
	LL_INSERT_INORDER(r->pods, p, by_label);
	r->observer->added(r->ctx, p);
	return 0;
}

void pod_set_token(struct pod *p, const char *token)
{
	if (p->spec.token && !strcmp(p->spec.token, token))
		return;
	secret_free(p->spec.token);
	p->spec.token = secret_dup(token);
	p->registry->observer->token(p->registry->ctx, p);
}

void pod_remove(struct pod_registry *r, const struct pod_source *source, const struct uuid *uid)
{
	struct pod *p = pod_find(r, uid);

	if (!p || p->source != source)
		return;
	LL_DELETE(r->pods, p);
	r->observer->removed(r->ctx, p);
	pod_free(p);
	check_settled(r);
}

static void tell_source(struct pod *p)
{
	if (p->source->progress)
		p->source->progress(p->source->ctx, p);
}

static void judge(struct pod *p)
{
	p->ready = p->told && !p->state.code && !p->away.code;
}

const char *pod_why_not(const struct pod *p)
{
	if (p->state.code)
		return p->state.msg;
	return p->away.code ? p->away.msg : "";
}

static void set_state(struct pod *p, bool may_start, const struct err *why_not)
{
	p->may_start = may_start;
	p->state = why_not ? *why_not : (struct err){0};
	p->told = true;
	judge(p);
	tell_source(p);
	check_settled(p->registry);
}

void pod_set_ready(struct pod *p, const struct err *why_not)
{
	set_state(p, !why_not, why_not);
}

void pod_set_degraded(struct pod *p, const struct err *why)
{
	set_state(p, true, why);
}

void pod_set_away(struct pod *p, const struct err *why)
{
	p->away = why ? *why : (struct err){0};
	judge(p);
}

void pod_set_certified(struct pod *p)
{
	p->certified = true;
	tell_source(p);
}
