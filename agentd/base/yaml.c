/* yaml.c - libyaml's events, one after the other, into a jansson value on an explicit stack.
 *
 * Every event is checked before anything is built from it, so what is refused costs at most its
 * scanning; depth and nodes are counted here because an alias or nesting bomb is small on the wire
 * (ecosystem.md 1.2: without limits the bridge worked for 12 s and then lost elements silently).
 */
#include "yaml.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "common/err.h"
#include "common/mem.h"
#include "yaml_scalar.h"

enum { INPUT_MAX = 1024 * 1024, DEPTH_MAX = 32, NODES_MAX = 4096 };

struct position {
	const json_t *value;
	unsigned line;
};

struct yaml_doc {
	json_t *root;
	struct position *positions; /* sorted by address once parsed */
	size_t npositions;
};

struct frame {
	json_t *container; /* borrowed: the parent holds it */
	char *key;         /* of a mapping: waits for its value */
};

struct builder {
	yaml_parser_t parser;
	struct yaml_doc *yaml;
	struct frame stack[DEPTH_MAX];
	unsigned depth;
	unsigned documents;
	bool typed;
	struct err *e;
};

static unsigned line_of(const yaml_event_t *ev)
{
	return (unsigned)ev->start_mark.line + 1;
}

static int refuse(struct builder *b, const yaml_event_t *ev, const char *what)
{
	return err_set(b->e, ERR_INVALID, "line %u: %s", line_of(ev), what);
}

/* ---- checks ---- */

/* Newlines and tabs belong to block scalars (a PROXY_CONFIG is YAML itself); no other control does.
 */
static bool has_controls(const unsigned char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if ((s[i] < 0x20 && s[i] != '\n' && s[i] != '\t') || s[i] == 0x7f)
			return true;
		if (s[i] == 0xc2 && i + 1 < n && s[i + 1] < 0xa0) /* U+0080 to U+009F */
			return true;
	}
	return false;
}

static int check_properties(
    struct builder *b, const yaml_event_t *ev, const yaml_char_t *anchor, const yaml_char_t *tag)
{
	if (anchor)
		return refuse(b, ev, "anchors are not allowed");
	if (tag)
		return refuse(b, ev, "tags are not allowed");
	return 0;
}

static int check_scalar(struct builder *b, const yaml_event_t *ev)
{
	if (check_properties(b, ev, ev->data.scalar.anchor, ev->data.scalar.tag) < 0)
		return -1;
	if (has_controls(ev->data.scalar.value, ev->data.scalar.length))
		return refuse(b, ev, "control character");
	return 0;
}

/* ---- building ---- */

static bool wants_key(const struct builder *b)
{
	const struct frame *top = b->depth ? &b->stack[b->depth - 1] : NULL;

	return top && json_is_object(top->container) && !top->key;
}

static int take_key(struct builder *b, const yaml_event_t *ev)
{
	struct frame *top = &b->stack[b->depth - 1];
	const char *key = (const char *)ev->data.scalar.value;
	char shown[64];

	if (strpbrk(key, "\n\t"))
		return refuse(b, ev, "control character");
	if (json_object_get(top->container, key))
		return err_set(b->e, ERR_INVALID, "line %u: duplicate key \"%s\"", line_of(ev),
		    err_printable(shown, sizeof(shown), key, (unsigned)ev->data.scalar.length));
	top->key = mem_strdup(key);
	return 0;
}

/* Puts a value where it belongs; takes it in any case. */
static int place(struct builder *b, const yaml_event_t *ev, json_t *value)
{
	struct yaml_doc *y = b->yaml;

	if (!value) /* the only cause left: jansson's UTF-8 is stricter than libyaml's */
		return refuse(b, ev, "invalid UTF-8");
	if (y->npositions == NODES_MAX) {
		json_decref(value);
		return refuse(b, ev, "more than 4096 values");
	}
	y->positions[y->npositions++] = (struct position){value, line_of(ev)};
	if (b->depth == 0) {
		y->root = value;
		return 0;
	}
	struct frame *top = &b->stack[b->depth - 1];
	if (json_is_array(top->container))
		return json_array_append_new(top->container, value) < 0
			   ? refuse(b, ev, "cannot be appended")
			   : 0;
	auto_free char *key = take(top->key);
	return json_object_set_new(top->container, key, value) < 0 ? refuse(b, ev, "invalid UTF-8")
								   : 0;
}

static json_t *scalar_of(const struct builder *b, const yaml_event_t *ev)
{
	const char *text = (const char *)ev->data.scalar.value;
	bool plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	json_t *v = b->typed && plain ? yaml_scalar(text) : NULL;

	return v ? v : json_stringn(text, ev->data.scalar.length);
}

static int on_scalar(struct builder *b, const yaml_event_t *ev)
{
	if (check_scalar(b, ev) < 0)
		return -1;
	if (wants_key(b))
		return take_key(b, ev);
	return place(b, ev, scalar_of(b, ev));
}

static int open_container(struct builder *b, const yaml_event_t *ev, json_t *container)
{
	if (b->depth == DEPTH_MAX || wants_key(b)) {
		const char *why = wants_key(b) ? "a key must be a scalar" : "nested too deeply";
		json_decref(container);
		return refuse(b, ev, why);
	}
	if (place(b, ev, container) < 0)
		return -1;
	b->stack[b->depth++] = (struct frame){.container = container};
	return 0;
}

static int on_event(struct builder *b, const yaml_event_t *ev)
{
	switch (ev->type) {
	case YAML_DOCUMENT_START_EVENT:
		return b->documents++ ? refuse(b, ev, "a second document is not allowed") : 0;
	case YAML_ALIAS_EVENT:
		return refuse(b, ev, "aliases are not allowed");
	case YAML_SCALAR_EVENT:
		return on_scalar(b, ev);
	case YAML_SEQUENCE_START_EVENT:
		if (check_properties(
			b, ev, ev->data.sequence_start.anchor, ev->data.sequence_start.tag) < 0)
			return -1;
		return open_container(b, ev, json_array());
	case YAML_MAPPING_START_EVENT:
		if (check_properties(
			b, ev, ev->data.mapping_start.anchor, ev->data.mapping_start.tag) < 0)
			return -1;
		return open_container(b, ev, json_object());
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		b->depth--;
		return 0;
	default:
		return 0;
	}
}

/* ---- the whole text ---- */

/* An encoding error has an offset but no line. */
static int refuse_syntax(struct builder *b, const char *text, size_t len)
{
	const yaml_parser_t *p = &b->parser;
	size_t line = p->problem_mark.line;

	if (p->error == YAML_READER_ERROR) {
		line = 0;
		for (size_t i = 0; i < p->problem_offset && i < len; i++)
			line += text[i] == '\n';
	}
	return err_set(b->e, ERR_INVALID, "line %zu: %s%s%s", line + 1,
	    p->problem ? p->problem : "malformed", p->context ? " " : "",
	    p->context ? p->context : "");
}

static int build(struct builder *b, const char *text, size_t len)
{
	bool ended = false;

	yaml_parser_set_input_string(&b->parser, (const unsigned char *)text, len);
	/* Fixed, so that a byte order mark cannot choose UTF-16. */
	yaml_parser_set_encoding(&b->parser, YAML_UTF8_ENCODING);
	while (!ended) {
		yaml_event_t ev;
		if (!yaml_parser_parse(&b->parser, &ev))
			return refuse_syntax(b, text, len);
		ended = ev.type == YAML_STREAM_END_EVENT;
		int rc = on_event(b, &ev);
		yaml_event_delete(&ev);
		if (rc < 0)
			return -1;
	}
	if (!b->yaml->root) /* nothing but comments */
		b->yaml->root = json_object();
	return 0;
}

static int by_address(const void *a, const void *b)
{
	const struct position *x = a;
	const struct position *y = b;

	return (x->value > y->value) - (x->value < y->value);
}

static struct yaml_doc *parse(const char *text, size_t len, bool typed, struct err *e)
{
	struct builder b = {.typed = typed, .e = e};

	if (len > INPUT_MAX) {
		err_set(e, ERR_INVALID, "line 1: more than 1 MiB");
		return NULL;
	}
	if (!yaml_parser_initialize(&b.parser))
		abort(); /* out of memory */
	b.yaml = mem_zalloc(sizeof(*b.yaml));
	b.yaml->positions = mem_zalloc(NODES_MAX * sizeof(*b.yaml->positions));
	int rc = build(&b, text, len);
	yaml_parser_delete(&b.parser);
	for (unsigned i = 0; i < DEPTH_MAX; i++)
		free(b.stack[i].key);
	if (rc < 0) {
		yaml_doc_free(&b.yaml);
		return NULL;
	}
	qsort(b.yaml->positions, b.yaml->npositions, sizeof(*b.yaml->positions), by_address);
	return b.yaml;
}

struct yaml_doc *yaml_doc_parse(const char *text, size_t len, struct err *e)
{
	return parse(text, len, false, e);
}

json_t *yaml_typed(const char *text, size_t len, struct err *e)
{
	struct yaml_doc *y = parse(text, len, true, e);
	json_t *root = y ? json_incref(y->root) : NULL;

	yaml_doc_free(&y);
	return root;
}

void yaml_doc_free(struct yaml_doc **yaml)
{
	struct yaml_doc *y = take(*yaml);

	if (!y)
		return;
	json_decref(y->root);
	free(y->positions);
	free(y);
}

json_t *yaml_doc_root(const struct yaml_doc *y)
{
	return y->root;
}

unsigned yaml_doc_line(const struct yaml_doc *y, const json_t *value)
{
	struct position wanted = {.value = value};
	const struct position *p =
	    bsearch(&wanted, y->positions, y->npositions, sizeof(*y->positions), by_address);

	return p ? p->line : 0;
}
