/* machine.h - the files of `istioctl x workload entry configure` as a manifest
 * (bare-metal-identity.md 1, 6): texts in, texts out.
 *
 * What it cannot take over is said, key by key.  The uid is made of namespace and name: the same
 * workload has the same one each time, so that its manifest is never there twice.
 */
#pragma once
#include "common/uuid.h"
#include <jansson.h>
#include <stddef.h>

struct err;

struct machine_files {
	const char *name; /* of the pod: a DNS subdomain */
	const char *env, *mesh;
	size_t env_size, mesh_size; /* of cluster.env and mesh.yaml */
};

struct machine {
	struct uuid uid;
	char *manifest; /* the text of <uid>.yaml */
	char *plane;    /* one entry of control_planes:, in one line */
	json_t *left;   /* {what: why} of what was not taken over; printable */
};

/* -1: `e` names the file; nothing is left to clear. */
int machine_read(struct machine *m, const struct machine_files *f, struct err *e);
void machine_clear(struct machine *m);
