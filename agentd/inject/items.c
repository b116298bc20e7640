/* items.c - a byte comes -> is it inside a text? -> a bracket opens or closes -> an object that is
 * whole is read and handed over.
 *
 * The outermost object is kept like any other, until its member `items` turns out to be a list: it
 * is a List then, and each element is kept instead.
 */
#include "items.h"
#include "common/err.h"
#include "common/mem.h"
#include <stdbool.h>
#include <string.h>

enum { START_SIZE = 64 << 10, LIST_DEPTH = 2 }; /* { "items": [ */

struct items {
	items_cb *cb;
	void *ctx;
	char *kept; /* of the object that began */
	size_t len, room, text_at;
	size_t depth, objects;
	bool begun; /* there was an object */
	bool list;  /* inside or behind `items` */
	bool behind;
	bool text, escaped, items_key; /* was the last text on depth 1 "items" */
};

struct items *items_new(items_cb *cb, void *ctx)
{
	struct items *s = mem_zalloc(sizeof(*s));

	s->cb = cb;
	s->ctx = ctx;
	return s;
}

void items_free(struct items **items)
{
	struct items *s = take(*items);

	if (!s)
		return;
	free(s->kept);
	free(s);
}

/* On which an object stands. */
static size_t base(const struct items *s)
{
	return s->list ? LIST_DEPTH : 0;
}

static int refuse(const struct items *s, struct err *e, const char *why)
{
	return err_set(e, ERR_INVALID, "object %zu: %s", s->objects + 1, why);
}

static int keep(struct items *s, char byte, struct err *e)
{
	if (s->len == ITEMS_OBJECT_MAX)
		return refuse(s, e, "more than 4 MiB");
	if (s->len == s->room) {
		s->room = s->room ? 2 * s->room : START_SIZE;
		s->kept = mem_realloc(s->kept, s->room);
	}
	s->kept[s->len++] = byte;
	return 0;
}

static int hand_over(struct items *s, struct err *e)
{
	json_error_t why;
	json_t *object = json_loadb(s->kept, s->len, JSON_REJECT_DUPLICATES, &why);
	char shown[100];
	int rc;

	s->len = 0;
	if (!object)
		return refuse(s, e,
		    err_printable(shown, sizeof(shown), why.text, (unsigned)strlen(why.text)));
	rc = s->cb(object, e, s->ctx);
	json_decref(object);
	s->objects++;
	return rc;
}

/* What may stand between objects. */
static int between(const struct items *s, char byte, struct err *e)
{
	if (strchr(s->list ? " \t\r\n," : " \t\r\n", byte) && byte)
		return 0;
	return refuse(s, e, "must begin with \"{\": is it of kubectl get -o json?");
}

static void begin_list(struct items *s)
{
	s->list = true;
	s->len = 0;
}

static int open_bracket(struct items *s, char byte, struct err *e)
{
	if (s->depth == base(s) && byte != '{')
		return between(s, byte, e);
	s->depth++;
	s->begun = true;
	if (byte == '[' && s->depth == LIST_DEPTH && !s->list && s->items_key) {
		begin_list(s);
		return 0;
	}
	return keep(s, byte, e);
}

/* The end of a List's items, or of the List: nothing is kept there. */
static void close_list(struct items *s)
{
	s->depth--;
	s->behind = s->depth > 0;
	s->list = s->behind;
}

static int close_bracket(struct items *s, char byte, struct err *e)
{
	if (s->depth == 0)
		return between(s, byte, e);
	if (s->list && s->depth == LIST_DEPTH) {
		close_list(s);
		return byte == ']' ? 0 : refuse(s, e, "\"items\" must end with \"]\"");
	}
	if (keep(s, byte, e))
		return -1;
	return --s->depth == base(s) ? hand_over(s, e) : 0;
}

/* Behind the items: brackets are counted, up to the List's own. */
static void pass_over(struct items *s, char byte)
{
	if (byte == '{' || byte == '[')
		s->depth++;
	else if ((byte == '}' || byte == ']') && --s->depth == 0)
		s->behind = s->list = false;
}

static int in_text(struct items *s, char byte, struct err *e)
{
	static const char wanted[] = "\"items";

	if (!s->escaped && byte == '"') {
		s->text = false;
		s->items_key = s->depth == 1 && !s->list && s->len - s->text_at == 6 &&
			       !memcmp(s->kept + s->text_at, wanted, 6);
	}
	s->escaped = !s->escaped && byte == '\\';
	return s->behind ? 0 : keep(s, byte, e);
}

static int begin_text(struct items *s, struct err *e)
{
	if (!s->behind && s->depth == base(s))
		return between(s, '"', e);
	s->text = true;
	s->text_at = s->len;
	return s->behind ? 0 : keep(s, '"', e);
}

static int feed(struct items *s, char byte, struct err *e)
{
	if (s->text)
		return in_text(s, byte, e);
	if (byte == '"')
		return begin_text(s, e);
	if (s->behind) {
		pass_over(s, byte);
		return 0;
	}
	if (byte == '{' || byte == '[')
		return open_bracket(s, byte, e);
	if (byte == '}' || byte == ']')
		return close_bracket(s, byte, e);
	return s->depth == base(s) ? between(s, byte, e) : keep(s, byte, e);
}

int items_feed(struct items *s, const char *bytes, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++)
		if (feed(s, bytes[i], e))
			return -1;
	return 0;
}

int items_end(struct items *s, struct err *e)
{
	if (s->depth || s->text)
		return refuse(s, e, "the input ends inside of it: was it cut off?");
	return s->begun ? 0 : err_set(e, ERR_INVALID, "no object: is it of kubectl get -o json?");
}
