/* csi_volume_watch.c - volumes as others see them: agentctl, Prometheus; and the alarm that rings
 * when the kubelet has published nothing for too long.
 */
#include "base/metrics.h"
#include "csi_volume_internal.h"
#include "mesh/refusal.h"
#include <string.h>

LOG_SCOPE("csi");

/* It calls for each volume every 60 to 90 s (kubelet-csi.md 3b). */
enum { SILENCE_MS = 5 * 60 * 1000 };

static const char *state_of(const struct csi_volume *v)
{
	if (v->state == UNPUBLISHING)
		return "unpublishing";
	if (v->state != PUBLISHED && v->state != UNKNOWN)
		return "starting";
	if (!csi_volume_pod(v))
		return "waiting";
	return v->state == PUBLISHED ? "published" : "unknown";
}

static unsigned count_of(const struct csi_volumes *all, const char *state)
{
	unsigned n = 0;

	for (const struct csi_volume *v = all->volumes; v; v = v->hh.next)
		n += !strcmp(state_of(v), state);
	return n;
}

/* Tokens end, and whose driver's name it was may have been taken (security-rules.md 5). */
static void on_silence(void *ctx)
{
	struct csi_volumes *all = ctx;

	if (!count_of(all, "published") && !count_of(all, "waiting"))
		return;
	all->silent = true;
	log_error(NULL,
	    "no publish of any volume for 5 minutes: is the kubelet well, has the CSIDriver object "
	    "requiresRepublish: true, and who is registered as " CSI_DRIVER_NAME "?");
}

void csi_volumes_heard(struct csi_volumes *all)
{
	if (all->silent)
		log_info(NULL, "the kubelet publishes again");
	all->silent = false;
	loop_timer_in(all->o.loop, &all->silence, SILENCE_MS, on_silence, all);
}

/* Its republish is the heartbeat of each volume; one that an earlier worker published is heard of
 * from then on. */
static int64_t silent_ms(const struct csi_volume *v)
{
	if (v->state != PUBLISHED && v->state != UNKNOWN)
		return 0;
	return loop_uptime_ms(v->all->o.loop) - (v->last_ms ? v->last_ms : v->since_ms);
}

static bool is_forgotten(const struct csi_volume *v)
{
	return silent_ms(v) >= SILENCE_MS;
}

/* False: it has none. */
static bool problem_of(const struct csi_volume *v, struct err *why)
{
	static const struct err writable = {
	    ERR_INVALID, REFUSAL_WRITABLE "; it runs on: restart it with the word"};

	*why = v->problem.code ? v->problem : v->why_unkept;
	if (!why->code && is_forgotten(v))
		err_set(why, ERR_UNAVAILABLE,
		    "the kubelet has not asked for it for %lld min, so its token ends: are its "
		    "service account and the CSIDriver object (requiresRepublish: true) there?",
		    (long long)silent_ms(v) / 60000);
	if (!why->code && v->writable)
		*why = writable;
	return why->code != 0;
}

unsigned csi_volumes_troubled(const struct csi_volumes *all, struct err *why)
{
	unsigned n = 0;

	for (const struct csi_volume *v = all->volumes; v; v = v->hh.next) {
		const struct pod *p = csi_volume_pod(v);
		struct err its;

		if (!p || !problem_of(v, &its))
			continue;
		n++;
		*why = its;
		err_wrap(why, "volume %s of %s", v->target.volume, p->spec.label);
	}
	return n;
}

json_t *csi_volume_dump(const struct csi_volumes *all, const struct uuid *pod)
{
	const struct csi_volume *v = csi_volume_find(all, pod);
	int64_t now = loop_uptime_ms(all->o.loop);
	struct err why;
	json_t *o;

	if (!v)
		return NULL;
	(void)problem_of(v, &why);
	o = json_pack("{s:s, s:s, s:s, s:b, s:i, s:s}", "name", v->target.volume, "id",
	    v->volume_id, "state", state_of(v), "published", v->state == PUBLISHED, "waiting_calls",
	    (int)(csi_waiting_count(&v->publishing) + csi_waiting_count(&v->unpublishing)),
	    "problem", why.msg);
	if (v->last_ms)
		json_object_set_new(
		    o, "last_publish_age_s", json_integer((now - v->last_ms) / 1000));
	return o;
}

json_t *csi_volumes_waiting(struct csi_volumes *all)
{
	json_t *list = json_array();

	for (const struct csi_volume *v = all->volumes; v; v = v->hh.next) {
		char uid[UUID_TEXT_SIZE];

		if (strcmp(state_of(v), "waiting") != 0)
			continue;
		uuid_format(&v->target.pod, uid);
		json_array_append_new(list,
		    json_pack("{s:s, s:s, s:s}", "uid", uid, "volume", v->target.volume, "problem",
			v->problem.code ? v->problem.msg : "waits for the kubelet's next publish"));
	}
	csi_refused_dump(&all->refused, list);
	return list;
}

void csi_volumes_measure(struct csi_volumes *all)
{
	json_t *refused = json_array();
	unsigned forgotten = 0;
	static const char *const states[] = {
	    "starting", "published", "waiting", "unpublishing", "unknown"};

	for (unsigned i = 0; i < sizeof(states) / sizeof(*states); i++) {
		char label[32];

		metric_labels(label, sizeof(label), "state", states[i], NULL);
		metric_set(all->metrics.volumes, label, count_of(all, states[i]));
	}
	csi_refused_dump(&all->refused, refused);
	metric_set(all->metrics.volumes, "state=\"refused\"", (double)json_array_size(refused));
	json_decref(refused);
	for (const struct csi_volume *v = all->volumes; v; v = v->hh.next)
		forgotten += is_forgotten(v);
	metric_set(all->metrics.forgotten, "", forgotten);
	metric_set(all->metrics.alarm, "alarm=\"no_republish\"", all->silent);
}
