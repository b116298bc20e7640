/* csi_refused.c - see csi_refused.h. */
#include "csi_refused.h"
#include "common/err.h"
#include "common/mem.h"
#include "worker/link/link.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

/* It tries again after 2 min 2 s at most (kubelet-csi.md 3e). */
enum { FORGOTTEN_MS = 5 * 60 * 1000, REFUSED_MAX = LINK_FOLLOWS_KUBELET_MAX };

struct csi_refused {
	struct csi_refusals *all;
	struct link_follow *directory; /* the kubelet's, of the pod */
	struct csi_target target;
	char pod[POD_LABEL_SIZE];
	char why[ERR_MSG_SIZE];
	int64_t at_ms; /* uptime */
	struct csi_refused *prev, *next;
};

static void drop(struct csi_refusals *all, struct csi_refused *r)
{
	link_unfollow(&r->directory);
	DL_DELETE(all->list, r);
	free(r);
}

void csi_refused_drop(struct csi_refusals *all, const struct uuid *pod)
{
	struct csi_refused *r, *tmp;

	DL_FOREACH_SAFE (all->list, r, tmp)
		if (uuid_equal(&r->target.pod, pod))
			drop(all, r);
}

/* A follow that is refused leaves the entry to its five minutes. */
static void on_directory(void *ctx, const struct link_content *c)
{
	struct csi_refused *r = ctx;

	if (c->e && c->e->code == ENOENT)
		drop(r->all, r);
}

void csi_refused_add(struct csi_refusals *all, const struct csi_publish *p, const char *why)
{
	struct csi_refused *r;
	int n;

	csi_refused_drop(all, &p->target.pod);
	DL_COUNT(all->list, r, n);
	if (n >= REFUSED_MAX)
		drop(all, all->list);
	r = mem_zalloc(sizeof(*r));
	r->all = all;
	r->target = p->target;
	r->at_ms = loop_uptime_ms(all->loop);
	snprintf(r->pod, sizeof(r->pod), "%s/%s", p->spec.ns, p->spec.name);
	snprintf(r->why, sizeof(r->why), "%s", why);
	DL_APPEND(all->list, r);
	r->directory =
	    link_follow(all->link, LINK_FOLLOW_KUBELET_POD, &r->target.pod, 0, on_directory, r);
}

void csi_refused_dump(struct csi_refusals *all, json_t *to)
{
	struct csi_refused *r = NULL, *tmp = NULL;
	char uid[UUID_TEXT_SIZE];

	DL_FOREACH_SAFE (all->list, r, tmp) {
		if (loop_uptime_ms(all->loop) - r->at_ms >= FORGOTTEN_MS) {
			drop(all, r);
			continue;
		}
		uuid_format(&r->target.pod, uid);
		json_array_append_new(to, json_pack("{s:s, s:s, s:s, s:s}", "uid", uid, "volume",
					      r->target.volume, "pod", r->pod, "problem", r->why));
	}
}

void csi_refused_clear(struct csi_refusals *all)
{
	while (all->list)
		drop(all, all->list);
}
