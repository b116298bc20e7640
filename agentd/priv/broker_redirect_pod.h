/* broker_redirect_pod.h - one pod's part of broker_redirect.h: its rows, its links, its sk_lookup.
 */
#pragma once
#include "broker_redirect.h"
#include "redirect.skel.h"
#include <bpf/bpf.h>
#include <limits.h>

enum { REDIRECT_PATH_SIZE = 256 };

struct redirect_pod_state;

struct broker_redirect {
	struct broker_redirect_place at;
	char pins[128]; /* <bpffs>/agentd/v<layout> */
	struct redirect_bpf *bpf;
	int cgroup;
	bool interfaces; /* the kernel tells sk_lookup where a packet came in */
	struct redirect_pod_state *pods;
	bool used[REDIRECT_PODS_MAX + 1]; /* indexes */
};

/* A pinned link: made, or given this program in place of the one it has. */
struct redirect_link {
	char path[REDIRECT_PATH_SIZE];
	int program, target;
	enum bpf_attach_type type;
};
int redirect_link(const struct redirect_link *l, struct broker_why *w);

uint32_t broker_redirect_index(
    const struct broker_redirect *r, const struct uuid *pod); /* 0: unknown */

uint32_t broker_redirect_index(
    const struct broker_redirect *r, const struct uuid *pod); /* 0: unknown */

int redirect_pod_uid(const struct broker_redirect *r, uint32_t index, struct uuid *out);
void redirect_pod_trace(struct broker_redirect *r, const struct uuid *pod, bool on);

/* The pods that have pins: their links get the programs of now. */
int redirect_pods_adopt(struct broker_redirect *r, struct broker_why *w);
void redirect_pods_free(struct broker_redirect *r);
