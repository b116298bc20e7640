/* env_meta.h - what of a pod's environment istiod is told: ISTIO_META_NAME and ISTIO_METAJSON_*,
 * but for what node.c writes itself (security-rules.md 3).  Private to mesh/env*.c.
 */
#pragma once
#include "env.h"

struct env_key;
struct node_reader;

/* 128 keys and 128 KiB in all; -1: this one is too much. */
int env_meta_count(struct node_reader *r, const char *key, const char *value, struct err *e);
int env_meta_read(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e);
int env_meta_read_json(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e);
