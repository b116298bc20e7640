/* env_keys.h - the table of keys that a pod's owner may use.  Private to mesh/node*.c. */
#pragma once
#include "env.h"
#include "env_meta.h"

struct pod_spec;

/* One pod's environment being read. */
struct node_reader {
	struct env *out;
	const struct pod_spec *pod;
	const struct node_context *context;
	const struct node_plane *plane;
	struct env_meta meta;
	unsigned misspelt;
};

struct env_key {
	const char *key; /* a '*' at the end: every key that begins so */
	int (*read)(struct node_reader *r, const struct env_key *row, const char *key,
	    const char *value, struct err *e);
	size_t at;           /* where it goes, or what it is compared with */
	size_t former;       /* of a plane: what else is taken; 0: nothing */
	const char *allowed; /* "A|B" */
	double min, max;
	bool lines; /* the value is JSON or YAML and may have line breaks */
	bool large; /* labels or annotations: outside of the totals */
};

/* Keys of the environment by their name, fields of ProxyConfig as "PROXY_CONFIG.field", annotations
 * as "annotation name".  NULL: unknown. */
const struct env_key *env_key_find(const char *key);
/* Of the n-th row, from 0; NULL: there are no more. */
const char *env_key_name(unsigned n);

/* Was the pod served under other settings of the node?  Then `key` is listed as ignored: `own`, the
 * node's word, counts. */
bool env_key_yields(
    const struct node_reader *r, const char *key, const char *value, const char *own);
