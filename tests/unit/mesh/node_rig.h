/* node_rig.h - a pod whose environment a test changes key by key, and what comes out of it.
 */
#pragma once
#include "common/err.h"
#include "mesh/node.h"
#include "mesh/pod.h"
#include "node_context.h"
#include <jansson.h>
#include <stdbool.h>

struct fixture {
	struct pod_spec pod; /* demo/web-0, service account web */
	struct node *node;
	struct err e; /* of the last refusal */
};

int node_rig_setup(void **state);
int node_rig_teardown(void **state);

void put(json_t *map, const char *key, const char *value);
struct node *make(struct fixture *f); /* the node of the pod as it is; NULL: refused */
struct node *make_in(struct fixture *f, const struct node_context *c);
/* A fresh node of the pod with one more key; the key is taken away again. */
struct node *with(struct fixture *f, const char *key, const char *value);
void accepted(struct fixture *f, const char *key, const char *value);
/* The refusal names the key and `allowed`. */
void refused(struct fixture *f, const char *key, const char *value, const char *allowed);

const json_t *meta(const struct fixture *f, const char *key);
const char *meta_text(const struct fixture *f, const char *key); /* "(none)" if it is no text */
bool lists(const struct fixture *f, const char *list, const char *key);
const struct node_settings *settings(const struct fixture *f);

/* The bootstrap; the caller's. */
json_t *render(const struct fixture *f);
json_t *rendered_with(struct fixture *f, const char *key, const char *value);
json_t *at(json_t *v, const char *path); /* "a.b.0.c" of a document; NULL: it is not there */
void text_at(json_t *v, const char *path, const char *expected);
void number_at(json_t *v, const char *path, json_int_t expected);
json_t *named(json_t *list, const char *name);
json_t *cluster(json_t *b, const char *name);
json_t *listener(json_t *b, const char *name);

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, node_rig_setup, node_rig_teardown)
