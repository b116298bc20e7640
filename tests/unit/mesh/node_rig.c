/* node_rig.c - one pod. */
#include "node_rig.h"
#include "common/mem.h"
#include "worker/envoy/bootstrap.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

int node_rig_setup(void **state)
{
	struct fixture *f = mem_zalloc(sizeof(*f));

	strcpy(f->pod.ns, "demo");
	strcpy(f->pod.name, "web-0");
	strcpy(f->pod.sa, "web");
	f->pod.env = json_object();
	f->pod.labels = json_object();
	f->pod.annotations = json_object();
	*state = f;
	return 0;
}

int node_rig_teardown(void **state)
{
	struct fixture *f = *state;

	node_free(&f->node);
	json_decref(f->pod.env);
	json_decref(f->pod.labels);
	json_decref(f->pod.annotations);
	free(f);
	return 0;
}

void put(json_t *map, const char *key, const char *value)
{
	assert_int_equal(json_object_set_new(map, key, json_string(value)), 0);
}

struct node *make_in(struct fixture *f, const struct node_context *c)
{
	f->e = (struct err){0};
	node_free(&f->node);
	f->node = node_new(&f->pod, c, &f->e);
	return f->node;
}

struct node *make(struct fixture *f)
{
	return make_in(f, &node_context);
}

/* A fresh node of the fixture with one more key; the key is taken away again. */
struct node *with(struct fixture *f, const char *key, const char *value)
{
	struct node *n;

	put(f->pod.env, key, value);
	n = make(f);
	json_object_del(f->pod.env, key);
	return n;
}

void accepted(struct fixture *f, const char *key, const char *value)
{
	if (!with(f, key, value))
		fail_msg("%s=%s: %s", key, value, f->e.msg);
}

/* The refusal names the key and `allowed`. */
void refused(struct fixture *f, const char *key, const char *value, const char *allowed)
{
	if (with(f, key, value))
		fail_msg("%s=%s was taken", key, value);
	if (!strstr(f->e.msg, key) || !strstr(f->e.msg, allowed))
		fail_msg("%s=%s: \"%s\" does not name %s", key, value, f->e.msg, allowed);
}

const json_t *meta(const struct fixture *f, const char *key)
{
	return json_object_get(json_object_get(node_json(f->node), "metadata"), key);
}

const char *meta_text(const struct fixture *f, const char *key)
{
	const char *v = json_string_value(meta(f, key));

	return v ? v : "(none)";
}

bool lists(const struct fixture *f, const char *list, const char *key)
{
	const json_t *names = json_object_get(node_leftovers(f->node), list), *v;
	size_t i;

	json_array_foreach (names, i, v)
		if (!strcmp(json_string_value(v), key))
			return true;
	return false;
}

const struct node_settings *settings(const struct fixture *f)
{
	return node_settings(f->node);
}

/* --- the bootstrap that comes of it --- */

json_t *render(const struct fixture *f)
{
	size_t len;
	auto_free char *text = bootstrap_render(f->node, &len);
	json_t *b = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

	assert_int_equal(strlen(text), len);
	assert_non_null(b);
	return b;
}

json_t *rendered_with(struct fixture *f, const char *key, const char *value)
{
	accepted(f, key, value);
	return render(f);
}

/* "a.b.0.c" inside a document; NULL if it is not there. */
json_t *at(json_t *v, const char *path)
{
	while (*path) {
		size_t n = strcspn(path, ".");
		auto_free char *key = mem_printf("%.*s", (int)n, path);

		v = json_is_array(v) ? json_array_get(v, strtoul(key, NULL, 10))
				     : json_object_get(v, key);
		path += path[n] ? n + 1 : n;
	}
	return v;
}

void text_at(json_t *v, const char *path, const char *expected)
{
	const char *text = json_string_value(at(v, path));

	if (!text || strcmp(text, expected) != 0)
		fail_msg("%s is %s, not %s", path, text ? text : "no text", expected);
}

void number_at(json_t *v, const char *path, json_int_t expected)
{
	if (!json_is_integer(at(v, path)) || json_integer_value(at(v, path)) != expected)
		fail_msg("%s is not %lld", path, (long long)expected);
}

json_t *named(json_t *list, const char *name)
{
	size_t i;
	json_t *v;

	json_array_foreach (list, i, v)
		if (!strcmp(json_string_value(json_object_get(v, "name")), name))
			return v;
	return NULL;
}

json_t *cluster(json_t *b, const char *name)
{
	return named(at(b, "static_resources.clusters"), name);
}

json_t *listener(json_t *b, const char *name)
{
	return named(at(b, "static_resources.listeners"), name);
}
