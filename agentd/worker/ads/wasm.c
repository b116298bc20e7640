/* wasm.c - a response -> each of its extensions: as it came, cleaned, or replaced and noted.
 * Envoy's requests -> names that it does not ask for any more are forgotten.
 *
 * A new stream of the same Envoy asks at once for all extensions that it has; one of a new Envoy
 * asks when it has listeners.  So what was not asked for by the time listeners are answered for is
 * no one's.
 */
#include "wasm.h"
#include "common/err.h"
#include "common/mem.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>
#include <uthash.h>

enum { RESPONSE_RESOURCES = 2, RESPONSE_REMOVED = 6 /* delta */ };
enum { RESOURCE_ANY = 2 }; /* of a delta resource */
enum { ANY_TYPE = 1, ANY_VALUE = 2 };

struct ads_wasm_row {
	char *name;
	const char *why;
	bool open;
	unsigned asked; /* when Envoy asked for it last, as ads_wasm.asked */
	UT_hash_handle hh;
};

/* --- the rows --- */

static struct ads_wasm_row *find(const struct ads_wasm *w, const char *name)
{
	struct ads_wasm_row *row;

	HASH_FIND_STR(w->rows, name, row);
	return row;
}

static void drop(struct ads_wasm *w, struct ads_wasm_row *row)
{
	if (!row)
		return;
	HASH_DEL(w->rows, row); /* NOLINT(clang-analyzer-unix.Malloc) */
	w->n--;
	w->changes++;
	w->open -= row->open;
	free(row->name);
	free(row);
}

static void note(struct ads_wasm *w, const struct plugin *p)
{
	struct ads_wasm_row *row;

	drop(w, find(w, p->name));
	if (!p->why || w->n == ADS_WASM_MAX)
		return;
	row = mem_zalloc(sizeof(*row));
	*row = (struct ads_wasm_row){mem_strdup(p->name), p->why, p->open, w->asked, .hh = {0}};
	HASH_ADD_KEYPTR(hh, w->rows, row->name, strlen(row->name), row);
	w->n++;
	w->changes++;
	w->open += row->open;
}

static void drop_unasked(struct ads_wasm *w)
{
	struct ads_wasm_row *row, *next;

	HASH_ITER (hh, w->rows, row, next)
		if (row->asked != w->asked)
			drop(w, row);
}

/* --- a response --- */

/* The Any of TYPE_EXTENSION in a resource. */
static int extension_of(struct pbwire resource, enum discovery_flavour f, struct pbwire *extension)
{
	char type[DISCOVERY_TYPE_SIZE];
	struct pbwire any = resource, text;

	if (f == DISCOVERY_DELTA && pbwire_only(resource, RESOURCE_ANY, &any) <= 0)
		return -1;
	if (pbwire_only(any, ANY_TYPE, &text) <= 0 || pbwire_string(text, type, sizeof(type)) ||
	    strcmp(type, TYPE_EXTENSION) != 0)
		return -1;
	return pbwire_only(any, ANY_VALUE, extension) > 0 ? 0 : -1;
}

/* Takes `extension`. */
static struct evbuffer *resource_with(
    struct evbuffer *extension, struct pbwire resource, enum discovery_flavour f)
{
	struct evbuffer *any = evbuffer_new(), *out;
	struct pbwire before = resource;
	struct pbwire_field field;

	pbwire_put_bytes(any, ANY_TYPE, TYPE_EXTENSION, strlen(TYPE_EXTENSION));
	pbwire_put_message(any, ANY_VALUE, extension);
	if (f == DISCOVERY_SOTW)
		return any;
	out = evbuffer_new();
	for (; pbwire_next(&resource, &field) > 0; before = resource)
		if (field.number != RESOURCE_ANY)
			pbwire_put_raw(out, before, field.size);
	pbwire_put_message(out, RESOURCE_ANY, any);
	return out;
}

/* As ads_wasm_response(), of one resource, which is appended if it is another now. */
static int give(struct ads_wasm *w, enum discovery_flavour f, const struct pbwire_field *resource,
    struct evbuffer *out)
{
	struct evbuffer *given;
	struct pbwire extension;
	struct plugin p;
	int rc;

	if (resource->type != PBWIRE_BYTES || extension_of(resource->bytes, f, &extension))
		return -1;
	given = evbuffer_new();
	rc = plugin_give(&p, extension, given);
	if (rc > 0)
		pbwire_put_message(
		    out, RESPONSE_RESOURCES, resource_with(take(given), resource->bytes, f));
	if (rc >= 0)
		note(w, &p);
	if (given)
		evbuffer_free(given);
	return rc;
}

static void forget(struct ads_wasm *w, const struct pbwire_field *name)
{
	char text[DISCOVERY_NAME_SIZE];

	if (name->type == PBWIRE_BYTES && !pbwire_string(name->bytes, text, sizeof(text)))
		drop(w, find(w, text));
}

int ads_wasm_response(struct ads_wasm *w, enum discovery_flavour f, struct pbwire msg,
    struct evbuffer *out, struct err *e)
{
	struct pbwire before = msg;
	struct pbwire_field field;
	unsigned n = 0;
	int more, rc, changed = 0;

	for (; (more = pbwire_next(&msg, &field)) > 0; before = msg) {
		rc = 0;
		if (field.number == RESPONSE_RESOURCES) {
			n++;
			rc = give(w, f, &field, out);
		} else if (field.number == RESPONSE_REMOVED && f == DISCOVERY_DELTA) {
			forget(w, &field);
		}
		if (rc < 0)
			return err_set(e, ERR_PROTOCOL,
			    "resource %u is no extension with a name and a configuration", n);
		changed |= rc;
		if (!rc)
			pbwire_put_raw(out, before, field.size);
	}
	return more < 0 ? err_set(e, ERR_PROTOCOL, "malformed response") : changed;
}

/* --- requests --- */

static int on_name(void *ctx, const struct discovery_name *n, struct err *e)
{
	struct ads_wasm *w = ctx;
	struct ads_wasm_row *row = find(w, n->name);

	(void)e;
	if (row && n->verb == DISCOVERY_UNSUBSCRIBE)
		drop(w, row);
	else if (row)
		row->asked = w->asked;
	return 0;
}

void ads_wasm_request(struct ads_wasm *w, enum discovery_flavour f,
    const struct discovery_request *q, struct pbwire msg)
{
	struct err e;

	if (!w->rows)
		return;
	if (!strcmp(q->type_url, TYPE_LISTENER) && q->nonce[0])
		drop_unasked(w);
	if (strcmp(q->type_url, TYPE_EXTENSION) != 0)
		return;
	if (f == DISCOVERY_SOTW)
		w->asked++; /* it names all that it asks for, each time */
	if (!discovery_each_name(f, msg, on_name, w, &e) && f == DISCOVERY_SOTW)
		drop_unasked(w);
}

void ads_wasm_stream_ended(struct ads_wasm *w)
{
	w->asked++;
}

/* --- for people --- */

static char *text_of(const struct ads_wasm_row *row)
{
	return mem_printf("%s: %s", row->why,
	    row->open ? "traffic passes without the filter (FAIL_OPEN)" : "no traffic passes");
}

const char *ads_wasm_why(const struct ads_wasm *w, char *out, size_t size)
{
	auto_free char *why = w->rows ? text_of(w->rows) : NULL;

	if (!why)
		return NULL;
	(void)snprintf(out, size, "Wasm filter %s: %s", w->rows->name, why);
	return out;
}

json_t *ads_wasm_dump(const struct ads_wasm *w)
{
	json_t *all = json_object();
	const struct ads_wasm_row *row;

	for (row = w->rows; row; row = row->hh.next) {
		auto_free char *why = text_of(row);

		json_object_set_new(all, row->name, json_string(why));
	}
	return all;
}

void ads_wasm_clear(struct ads_wasm *w)
{
	struct ads_wasm_row *row, *next;

	HASH_ITER (hh, w->rows, row, next)
		drop(w, row);
}
