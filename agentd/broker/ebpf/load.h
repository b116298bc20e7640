/* load.h - the eBPF object: programs and maps, loaded; maps pinned below <bpffs>/agentd/v<layout>/.
 *
 * A restarted or newer broker loads its programs onto the maps that are in use.
 */
#pragma once
#include "broker/netns/netns.h"
#include "common/err.h"
#include "kernel_can.h"
#include "place.h"
#include "redirect.skel.h"
#include <bpf/bpf.h>

enum { REDIRECT_PATH_SIZE = 256 };

/* probes.h */
struct redirect_probes {
	const char *root;  /* absolute: above the kubelet; NULL: where the others hang */
	const char *trees; /* absolute, each with its NUL, an empty one ends them; NULL: none */
	int fd;            /* of the root; -1: not attached */
	bool lost;         /* no tree is there, so nobody is let in: it was said */
	struct redirect_probing said;
};

struct redirect {
	const char *bpffs;
	const struct netns_home *home; /* nobody's network; NULL: we enter no pod's */
	struct redirect_top top;       /* where the programs hang */
	char pins[128];                /* <bpffs>/agentd/v<layout> */
	struct redirect_bpf *bpf;
	struct redirect_can can;
	struct redirect_probes probes;
	bool collects;  /* redirect_collect is loaded */
	uint32_t looks; /* for listeners, by all brokers: begins anywhere */
	/* table.h */
	struct redirect_pod_state *pods;
	struct redirect_pod_state *rows[REDIRECT_PODS_MAX + 1]; /* the pod that has it */
	uint16_t times; /* that a row was given out: REDIRECT_ROW_BITS */
};

/* The directories of pins, on a bpffs, which is mounted if it is not. */
int ebpf_load_directories(struct redirect *r, struct err *e);
/* With `home` and `top`.  No `pins`: a trial that leaves nothing behind. */
int ebpf_load(struct redirect *r, struct err *e);
/* Directories and maps, pinned; there already: nothing. */
int ebpf_load_pin(struct redirect *r, struct err *e);
