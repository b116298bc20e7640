/* redirect.h - what a pod's manifest, annotations and environment ask for its traffic: pure.
 *
 * The flags and annotations of istio-agent.md 11.1 and 11.2 under their own names (flags in
 * snake_case, as keys of a manifest's `redirect:`).  A flag wins over its annotation, that over its
 * environment variable.  What eBPF does not cover (TPROXY, KubeVirt's interfaces, groups by name)
 * is refused with the key's name: silence would let a user believe that his traffic is captured.
 */
#pragma once
#include "border/rules.h"
#include <jansson.h>
#include <stdbool.h>

struct err;
struct pod_spec;

enum redirect_mode {
	REDIRECT_MODE_NONE,
	REDIRECT_MODE_EBPF,
	REDIRECT_MODE_ISTIO_CNI,  /* rules by istio's node agent: nothing for us to do */
	REDIRECT_MODE_ISTIO_INIT, /* by an init container */
};
int traffic_mode_parse(enum redirect_mode *out, const char *text); /* -1: no such mode */
const char *traffic_mode_name(enum redirect_mode m);

/* The node's defaults for pods. */
struct redirect_node {
	enum redirect_mode mode;
	bool strict;
	unsigned status_port; /* of the pod: never captured; 0: it has none */
};

/* All of it, checked; `rules` are empty unless the mode is EBPF. */
struct redirect_plan {
	enum redirect_mode mode;
	struct redirect_rules rules;
};
int traffic_read(struct redirect_plan *out, const struct pod_spec *p, const struct redirect_node *n,
    struct err *e);

/* Of a pod that is refused, whatever for: would it be strict?  What cannot be read counts as the
 * node's default. */
bool traffic_is_strict(const struct pod_spec *p, const struct redirect_node *n);

/* "excluded outbound port", ...: the rule behind a verdict, for agentctl. */
const char *traffic_verdict_name(enum redirect_verdict v); /* for people */
const char *traffic_verdict_word(enum redirect_verdict v); /* for labels: [a-z_] */
bool traffic_verdict_redirects(enum redirect_verdict v);
bool traffic_verdict_drops(enum redirect_verdict v);
/* The keys of `redirect:` and their sources, for documentation: one line each. */
void traffic_keys_each(void (*one)(void *ctx, const char *flag, const char *annotation,
			   const char *variable, const char *otherwise),
    void *ctx);
