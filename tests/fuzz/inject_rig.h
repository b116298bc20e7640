/* inject_rig.h - what the fuzz targets of injection share: a mesh, and laws that hold for every
 * pod. */
#pragma once
#include "common/err.h"
#include "inject/config.h"
#include "inject/inject.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void must(bool held)
{
	if (!held)
		abort();
}

/* Where everything is rewritten, and istiod is kept away; or where little is, by a webhook that has
 * annotations of its own. */
static inline struct inject_config *rig_config(bool native)
{
	static struct inject_config *made[2];
	json_t *values, *own;

	if (made[native])
		return made[native];
	values = json_pack("{s:{s:s, s:s, s:[s]}}", "global", "hub", "r.io/i", "tag", "1.29.1",
	    "imagePullSecrets", "s");
	own = json_pack("{s:b, s:s, s:b}", "native", native, "redirectMode",
	    native ? "ebpf" : "istio-init", "hideFromIstiod", !native);
	made[native] = inject_config_new(values, NULL, own, NULL);
	if (native)
		made[native]->annotations = json_pack("{s:s}", "prometheus.io/port", "1");
	json_decref(values);
	json_decref(own);
	return made[native];
}

static inline json_t *rig_inject(const struct inject_config *c, const json_t *pod)
{
	static const struct inject_owner owner = {"apps/v1", "Deployment", "web", "demo"};
	json_t *warnings = json_array(), *out;
	struct err e;

	out = inject_pod(c, &owner, pod, warnings, &e);
	json_decref(warnings);
	return out;
}

/* Twice is once, and all of it can be taken back. */
static inline void rig_check(const struct inject_config *c, const json_t *pod)
{
	json_t *once = rig_inject(c, pod), *twice, *back, *again, *clean;
	struct err e;

	if (!once)
		return;
	must(inject_is_injected(once));
	twice = rig_inject(c, once);
	must(twice && json_equal(once, twice));
	back = inject_take_back(once, &e);
	must(back && !inject_is_injected(back));
	again = rig_inject(c, back);
	must(again && json_equal(again, once));
	clean = inject_take_back(again, &e);
	must(clean && json_equal(clean, back));
	json_decref(once);
	json_decref(twice);
	json_decref(back);
	json_decref(again);
	json_decref(clean);
}
