/* csi_refused.c - see csi_refused.h. */
#include "csi_refused.h"
#include "common/err.h"
#include "common/mem.h"
#include <stdio.h>
#include <string.h>
#include <utlist.h>

/* It tries again after 2 min 2 s at most (kubelet-csi.md 3e). */
enum { FORGOTTEN_MS = 5 * 60 * 1000, REFUSED_MAX = 256 };

struct csi_refused {
	struct csi_target target;
	char pod[POD_LABEL_SIZE];
	char why[ERR_MSG_SIZE];
	int64_t at_ms; /* uptime */
	struct csi_refused *prev, *next;
};

static void drop(struct csi_refused **list, struct csi_refused *r)
{
	DL_DELETE(*list, r);
	free(r);
}

void csi_refused_drop(struct csi_refused **list, const struct uuid *pod)
{
	struct csi_refused *r, *tmp;

	DL_FOREACH_SAFE (*list, r, tmp)
		if (uuid_equal(&r->target.pod, pod))
			drop(list, r);
}

void csi_refused_add(
    struct csi_refused **list, struct loop *l, const struct csi_publish *p, const char *why)
{
	struct csi_refused *r;
	int n;

	csi_refused_drop(list, &p->target.pod);
	DL_COUNT(*list, r, n);
	if (n >= REFUSED_MAX)
		drop(list, *list);
	r = mem_zalloc(sizeof(*r));
	r->target = p->target;
	r->at_ms = loop_uptime_ms(l);
	snprintf(r->pod, sizeof(r->pod), "%s/%s", p->spec.ns, p->spec.name);
	snprintf(r->why, sizeof(r->why), "%s", why);
	DL_APPEND(*list, r);
}

void csi_refused_dump(struct csi_refused **list, struct loop *l, json_t *to)
{
	struct csi_refused *r = NULL, *tmp = NULL;
	char uid[UUID_TEXT_SIZE];

	DL_FOREACH_SAFE (*list, r, tmp) {
		if (loop_uptime_ms(l) - r->at_ms >= FORGOTTEN_MS) {
			drop(list, r);
			continue;
		}
		uuid_format(&r->target.pod, uid);
		json_array_append_new(to, json_pack("{s:s, s:s, s:s, s:s}", "uid", uid, "volume",
					      r->target.volume, "pod", r->pod, "problem", r->why));
	}
}

void csi_refused_clear(struct csi_refused **list)
{
	while (*list)
		drop(list, *list);
}
