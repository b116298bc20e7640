/* yaml_tree.c - text -> libyaml's events, checked -> libyaml's document -> JSON; and back: nodes
 * whose value is the same are kept, others are made, and the emitter writes the document.
 */
#include "yaml_tree.h"
#include "common/err.h"
#include "common/mem.h"
#include "json_text.h"
#include "yaml_scalar.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

enum { DEPTH_MAX = 64, PEEK_DEPTH_MAX = 1000, NODES_MAX = 1000000 };

struct yaml_tree {
	yaml_document_t document;
	bool has_document, crlf;
	json_t *value;
};

/* --- what is refused --- */

static int refuse(const yaml_mark_t *at, const char *why, struct err *e)
{
	return err_set(e, ERR_INVALID, "line %zu: %s", at->line + 1, why);
}

/* Of bytes that are no text libyaml says an offset alone. */
static int refuse_syntax(const yaml_parser_t *p, const char *text, struct err *e)
{
	size_t line = p->problem_mark.line;

	for (size_t i = 0; p->error == YAML_READER_ERROR && i < p->problem_offset; i++)
		line += text[i] == '\n';
	return err_set(
	    e, ERR_INVALID, "line %zu: %s", line + 1, p->problem ? p->problem : "malformed");
}

static bool starts_plain_merge(const yaml_event_t *ev)
{
	return ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       !strcmp((const char *)ev->data.scalar.value, "<<");
}

struct scan {
	unsigned depth, nodes, documents;
};

static int check_node(struct scan *s, const yaml_event_t *ev, const yaml_char_t *anchor,
    const yaml_char_t *tag, struct err *e)
{
	if (anchor)
		return refuse(&ev->start_mark, "anchors and aliases are not supported", e);
	if (tag)
		return refuse(&ev->start_mark, "tags are not supported", e);
	if (++s->nodes > NODES_MAX)
		return refuse(&ev->start_mark, "more than 1000000 values", e);
	return 0;
}

static int check_event(struct scan *s, const yaml_event_t *ev, struct err *e)
{
	switch (ev->type) {
	case YAML_DOCUMENT_START_EVENT:
		return s->documents++ ? refuse(&ev->start_mark, "a second document", e) : 0;
	case YAML_ALIAS_EVENT:
		return refuse(&ev->start_mark, "anchors and aliases are not supported", e);
	case YAML_SCALAR_EVENT:
		if (starts_plain_merge(ev))
			return refuse(&ev->start_mark, "merge keys are not supported", e);
		if (strlen((const char *)ev->data.scalar.value) != ev->data.scalar.length)
			return refuse(&ev->start_mark, "control character", e);
		return check_node(s, ev, ev->data.scalar.anchor, ev->data.scalar.tag, e);
	case YAML_SEQUENCE_START_EVENT:
	case YAML_MAPPING_START_EVENT:
		if (++s->depth > DEPTH_MAX)
			return refuse(&ev->start_mark, "nested too deeply", e);
		return ev->type == YAML_MAPPING_START_EVENT
			   ? check_node(s, ev, ev->data.mapping_start.anchor,
				 ev->data.mapping_start.tag, e)
			   : check_node(s, ev, ev->data.sequence_start.anchor,
				 ev->data.sequence_start.tag, e);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		s->depth--;
		return 0;
	default:
		return 0;
	}
}

static void start(yaml_parser_t *p, const char *text, size_t len)
{
	if (!yaml_parser_initialize(p))
		abort(); /* out of memory */
	yaml_parser_set_input_string(p, (const unsigned char *)text, len);
	yaml_parser_set_encoding(p, YAML_UTF8_ENCODING);
}

/* Calls one() of each event until it is not 0, which is returned; -1: no YAML. */
static int each_event(const char *text, size_t len,
    int (*one)(void *ctx, const yaml_event_t *ev, struct err *e), void *ctx, struct err *e)
{
	yaml_parser_t p;
	yaml_event_t ev;
	bool ended = false;
	int rc = 0;

	start(&p, text, len);
	while (!ended && !rc) {
		if (!yaml_parser_parse(&p, &ev)) {
			rc = refuse_syntax(&p, text, e);
			break;
		}
		ended = ev.type == YAML_STREAM_END_EVENT;
		rc = one(ctx, &ev, e);
		yaml_event_delete(&ev);
	}
	yaml_parser_delete(&p);
	return rc;
}

static int on_checked(void *ctx, const yaml_event_t *ev, struct err *e)
{
	return check_event(ctx, ev, e);
}

/* --- the document as JSON --- */

static json_t *value_of(yaml_document_t *d, int id, struct err *e);

static json_t *scalar_of(const yaml_node_t *n, struct err *e)
{
	const char *text = (const char *)n->data.scalar.value;
	json_t *v = NULL;

	if (n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
		v = yaml_scalar(text);
	if (!v)
		v = json_stringn(text, n->data.scalar.length);
	if (!v)
		refuse(&n->start_mark, "invalid UTF-8", e);
	return v;
}

static json_t *sequence_of(yaml_document_t *d, const yaml_node_t *n, struct err *e)
{
	json_t *out = json_array();

	for (yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top;
	     i++) {
		json_t *v = value_of(d, *i, e);

		if (!v) {
			json_decref(out);
			return NULL;
		}
		json_array_append_new(out, v);
	}
	return out;
}

/* NULL: it is none. */
static const char *key_of(yaml_document_t *d, const yaml_node_pair_t *p)
{
	const yaml_node_t *k = yaml_document_get_node(d, p->key);

	return k->type == YAML_SCALAR_NODE ? (const char *)k->data.scalar.value : NULL;
}

static json_t *mapping_of(yaml_document_t *d, const yaml_node_t *n, struct err *e)
{
	json_t *out = json_object();

	for (yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
	     p++) {
		const char *key = key_of(d, p);
		const yaml_node_t *at = yaml_document_get_node(d, p->key);
		json_t *v = NULL;

		if (!key)
			refuse(&at->start_mark, "a key must be a scalar", e);
		else if (json_object_get(out, key))
			refuse(&at->start_mark, "duplicate key", e);
		else if (!(v = value_of(d, p->value, e)))
			; /* it has said why */
		else if (!json_object_set_new(out, key, v))
			continue;
		else
			refuse(&at->start_mark, "invalid UTF-8", e);
		json_decref(out);
		return NULL;
	}
	return out;
}

/* The depth was checked. */
static json_t *value_of(yaml_document_t *d, int id, struct err *e)
{
	const yaml_node_t *n = yaml_document_get_node(d, id);

	if (n->type == YAML_SCALAR_NODE)
		return scalar_of(n, e);
	return n->type == YAML_SEQUENCE_NODE ? sequence_of(d, n, e) : mapping_of(d, n, e);
}

struct yaml_tree *yaml_tree_parse(const char *text, size_t len, struct err *e)
{
	struct scan scan = {0};
	struct yaml_tree *t;
	yaml_parser_t p;

	if (each_event(text, len, on_checked, &scan, e))
		return NULL;
	t = mem_zalloc(sizeof(*t));
	start(&p, text, len);
	if (!yaml_parser_load(&p, &t->document))
		abort(); /* it has been parsed before: out of memory */
	yaml_parser_delete(&p);
	t->has_document = true;
	t->crlf = memmem(text, len, "\r\n", 2);
	t->value =
	    yaml_document_get_root_node(&t->document) ? value_of(&t->document, 1, e) : json_null();
	if (!t->value)
		yaml_tree_free(&t);
	return t;
}

void yaml_tree_free(struct yaml_tree **tree)
{
	struct yaml_tree *t = take(*tree);

	if (!t)
		return;
	if (t->has_document)
		yaml_document_delete(&t->document);
	json_decref(t->value);
	free(t);
}

json_t *yaml_tree_value(const struct yaml_tree *t)
{
	return t->value;
}

/* --- changing it --- */

static int add(yaml_document_t *d, const json_t *v);

static int add_scalar(yaml_document_t *d, const char *text, yaml_scalar_style_t style)
{
	int id =
	    yaml_document_add_scalar(d, NULL, (const yaml_char_t *)text, (int)strlen(text), style);

	if (!id)
		abort(); /* out of memory: JSON's text is UTF-8 */
	return id;
}

/* Quoted where it would mean something else. */
static int add_text(yaml_document_t *d, const char *text)
{
	json_t *other = yaml_scalar(text);
	bool plain = !other && strcmp(text, "<<") != 0;

	json_decref(other);
	return add_scalar(d, text, plain ? YAML_ANY_SCALAR_STYLE : YAML_DOUBLE_QUOTED_SCALAR_STYLE);
}

static int add_number(yaml_document_t *d, const json_t *v)
{
	auto_free char *text = json_text(v, JSON_ENCODE_ANY);

	return add_scalar(d, text, YAML_PLAIN_SCALAR_STYLE);
}

static void append_pair(yaml_document_t *d, int mapping, const char *key, int value)
{
	if (!yaml_document_append_mapping_pair(d, mapping, add_text(d, key), value))
		abort();
}

static int add_mapping(yaml_document_t *d, const json_t *v)
{
	int id = yaml_document_add_mapping(
	    d, NULL, json_object_size(v) ? YAML_BLOCK_MAPPING_STYLE : YAML_FLOW_MAPPING_STYLE);
	const char *key;
	json_t *item;

	json_object_foreach ((json_t *)v, key, item)
		append_pair(d, id, key, add(d, item));
	return id;
}

static void append_item(yaml_document_t *d, int sequence, int item)
{
	if (!yaml_document_append_sequence_item(d, sequence, item))
		abort();
}

static int add_sequence(yaml_document_t *d, const json_t *v)
{
	int id = yaml_document_add_sequence(
	    d, NULL, json_array_size(v) ? YAML_BLOCK_SEQUENCE_STYLE : YAML_FLOW_SEQUENCE_STYLE);
	json_t *item;
	size_t i;

	json_array_foreach (v, i, item)
		append_item(d, id, add(d, item));
	return id;
}

static int add(yaml_document_t *d, const json_t *v)
{
	if (json_is_object(v))
		return add_mapping(d, v);
	if (json_is_array(v))
		return add_sequence(d, v);
	return json_is_string(v) ? add_text(d, json_string_value(v)) : add_number(d, v);
}

static int change(yaml_document_t *d, int id, const json_t *old, const json_t *now);

static yaml_node_t *node(yaml_document_t *d, int id)
{
	return yaml_document_get_node(d, id);
}

/* Nodes move when one is added, so they are asked for each time. */
static void change_mapping(yaml_document_t *d, int id, const json_t *old, const json_t *now)
{
	const char *key;
	json_t *v;
	long kept = 0,
	     n = node(d, id)->data.mapping.pairs.top - node(d, id)->data.mapping.pairs.start;

	for (long i = 0; i < n; i++) {
		yaml_node_pair_t pair = node(d, id)->data.mapping.pairs.start[i];

		key = key_of(d, &pair);
		if (!(v = json_object_get(now, key)))
			continue;
		pair.value = change(d, pair.value, json_object_get(old, key), v);
		node(d, id)->data.mapping.pairs.start[kept++] = pair;
	}
	node(d, id)->data.mapping.pairs.top = node(d, id)->data.mapping.pairs.start + kept;
	json_object_foreach ((json_t *)now, key, v)
		if (!json_object_get(old, key))
			append_pair(d, id, key, add(d, v));
}

/* The same thing in an older list: of the same name, or equal. */
static bool is_same(const json_t *a, const json_t *b)
{
	const char *x = json_string_value(json_object_get(a, "name"));
	const char *y = json_string_value(json_object_get(b, "name"));

	return x && y ? !strcmp(x, y) : json_equal(a, b);
}

/* An item's node is taken once, in the order of the new list. */
static int change_item(yaml_document_t *d, int *items, const json_t *old, const json_t *v)
{
	json_t *was;
	size_t i;

	json_array_foreach (old, i, was)
		if (items[i] && is_same(was, v)) {
			int id = items[i];

			items[i] = 0;
			return change(d, id, was, v);
		}
	return add(d, v);
}

static void change_sequence(yaml_document_t *d, int id, const json_t *old, const json_t *now)
{
	size_t n = json_array_size(old), i;
	auto_free int *items = mem_zalloc((n + 1) * sizeof(*items));
	json_t *v;

	if (n)
		memcpy(items, node(d, id)->data.sequence.items.start, n * sizeof(*items));
	node(d, id)->data.sequence.items.top = node(d, id)->data.sequence.items.start;
	json_array_foreach (now, i, v)
		append_item(d, id, change_item(d, items, old, v));
}

/* The node of `now`, made of that of `old`; not of an empty one, for that is written as {} or [].
 */
static int change(yaml_document_t *d, int id, const json_t *old, const json_t *now)
{
	if (json_equal(old, now))
		return id;
	if (json_object_size(old) && json_object_size(now)) {
		change_mapping(d, id, old, now);
		return id;
	}
	if (json_array_size(old) && json_array_size(now)) {
		change_sequence(d, id, old, now);
		return id;
	}
	return add(d, now);
}

/* --- writing --- */

struct text {
	char *bytes;
	size_t len, room;
};

static int on_write(void *ctx, unsigned char *bytes, size_t n)
{
	struct text *t = ctx;

	if (t->len + n + 1 > t->room) {
		t->room = 2 * t->room + n + 1;
		t->bytes = mem_realloc(t->bytes, t->room);
	}
	memcpy(t->bytes + t->len, bytes, n);
	t->len += n;
	t->bytes[t->len] = '\0';
	return 1;
}

static bool dump(struct yaml_tree *t, struct text *out)
{
	yaml_emitter_t emitter;
	bool fine;

	if (!yaml_emitter_initialize(&emitter))
		abort();
	yaml_emitter_set_output(&emitter, on_write, out);
	yaml_emitter_set_unicode(&emitter, 1);
	yaml_emitter_set_width(&emitter, -1);
	yaml_emitter_set_break(&emitter, t->crlf ? YAML_CRLN_BREAK : YAML_LN_BREAK);
	t->document.start_implicit = t->document.end_implicit = 1;
	t->has_document = false; /* the emitter frees it */
	fine = yaml_emitter_open(&emitter) && yaml_emitter_dump(&emitter, &t->document) &&
	       yaml_emitter_close(&emitter);
	yaml_emitter_delete(&emitter);
	return fine;
}

static bool means(const struct text *text, const json_t *value)
{
	struct err ignored;
	struct yaml_tree *t = yaml_tree_parse(text->bytes, text->len, &ignored);
	bool same = t && json_equal(t->value, value);

	yaml_tree_free(&t);
	return same;
}

int yaml_tree_write(struct yaml_tree *t, json_t *value, char **out, size_t *out_len, struct err *e)
{
	struct text text = {.bytes = mem_strdup("")};

	if (!json_is_object(value) || !json_object_size(value) || !json_is_object(t->value)) {
		free(text.bytes);
		return err_set(e, ERR_INVALID, "only a map can be written");
	}
	change_mapping(&t->document, 1, t->value, value);
	if (!dump(t, &text) || !means(&text, value)) {
		free(text.bytes);
		return err_set(e, ERR_INVALID, "this document cannot be written as YAML: use JSON");
	}
	*out = text.bytes;
	*out_len = text.len;
	return 0;
}

/* --- peeking --- */

struct peek {
	const char *key;
	unsigned depth;
	bool is_value, found;
	char *text;
};

/* 1: it was found. */
static int peek_scalar(struct peek *p, const yaml_event_t *ev)
{
	const char *text = (const char *)ev->data.scalar.value;

	if (p->depth != 1)
		return 0;
	if (p->is_value && p->found) {
		p->text = mem_strdup(text);
		return 1;
	}
	if (!p->is_value)
		p->found = !strcmp(text, p->key);
	p->is_value = !p->is_value;
	return 0;
}

/* A map in the outermost one is a value, unless the outermost thing is a list: nothing is found. */
static int on_peek(void *ctx, const yaml_event_t *ev, struct err *e)
{
	struct peek *p = ctx;

	switch (ev->type) {
	case YAML_SCALAR_EVENT:
		return peek_scalar(p, ev);
	case YAML_ALIAS_EVENT:
		p->is_value ^= p->depth == 1;
		return 0;
	case YAML_SEQUENCE_START_EVENT:
	case YAML_MAPPING_START_EVENT:
		p->is_value ^= p->depth == 1;
		p->depth += p->depth || ev->type == YAML_MAPPING_START_EVENT ? 1 : 2;
		/* What libyaml does for each token grows with the depth. */
		return p->depth > PEEK_DEPTH_MAX ? refuse(&ev->start_mark, "nested too deeply", e)
						 : 0;
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		p->depth--;
		return 0;
	default:
		return 0;
	}
}

char *yaml_tree_peek(const char *text, size_t len, const char *key, struct err *e)
{
	struct peek p = {.key = key};

	each_event(text, len, on_peek, &p, e);
	return p.text;
}
