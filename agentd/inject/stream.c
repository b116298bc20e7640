/* stream.c - the text is cut at lines of "---" -> has the document a kind with pods? -> it is read,
 * done, and written only if that changed it; all other bytes are copied.
 */
#include "stream.h"
#include "base/json_text.h"
#include "base/yaml_tree.h"
#include "common/err.h"
#include "common/mem.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct out {
	const struct inject_work *work;
	char *bytes;
	size_t len, room;
};

static void put(struct out *o, const char *bytes, size_t n)
{
	if (o->len + n + 1 > o->room) {
		o->room = 2 * o->room + n + 1;
		o->bytes = mem_realloc(o->bytes, o->room);
	}
	if (n)
		memcpy(o->bytes + o->len, bytes, n);
	o->len += n;
	o->bytes[o->len] = '\0';
}

/* A new text where a document stood; after "---" on a line of its own. */
static void put_new(struct out *o, const char *bytes, size_t n)
{
	if (o->len && o->bytes[o->len - 1] == '-')
		put(o, "\n", 1);
	put(o, bytes, n);
}

/* --- lines --- */

static size_t line_len(const char *text, size_t len)
{
	const char *end = memchr(text, '\n', len);

	return end ? (size_t)(end - text) + 1 : len;
}

static bool is_blank(const char *text, size_t len)
{
	for (size_t i = 0; i < len && text[i] != '#'; i++)
		if (!isspace((unsigned char)text[i]))
			return false;
	return true;
}

static bool is_separator(const char *text, size_t len)
{
	return len >= 3 && !memcmp(text, "---", 3) && (len == 3 || isspace((unsigned char)text[3]));
}

/* Up to the next separator. */
static size_t document_len(const char *text, size_t len)
{
	size_t at = line_len(text, len);

	while (at < len && !is_separator(text + at, len - at))
		at += line_len(text + at, len - at);
	return at;
}

/* Separator, comments, directives, and a byte order mark. */
static size_t header_len(const char *text, size_t len)
{
	size_t at = len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;

	while (at < len) {
		size_t n = line_len(text + at, len - at);
		size_t skip = is_separator(text + at, n) ? 3 : 0;

		if (text[at] != '%' && !is_blank(text + at + skip, n - skip))
			return skip ? at + skip : at;
		at += n;
	}
	return at;
}

/* --- one document --- */

static bool is_json(const char *text, size_t len)
{
	while (len && isspace((unsigned char)*text))
		text++, len--;
	return len && (*text == '{' || *text == '[');
}

static json_t *read_json(const char *text, size_t len)
{
	return is_json(text, len) ? json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL) : NULL;
}

/* As kubectl prints it, or on one line as it came. */
static int do_json(struct out *o, json_t *object, const char *text, size_t len, struct err *e)
{
	json_t *done = inject_object(o->work, object, e);
	bool lines = memchr(text, '\n', len ? len - 1 : 0);
	char *written;

	if (!done)
		return -1;
	if (json_equal(done, object)) {
		put(o, text, len);
	} else {
		written = json_text(done, lines ? JSON_INDENT(4) : JSON_COMPACT);
		put_new(o, written, strlen(written));
		put(o, "\n", 1);
		free(written);
	}
	json_decref(done);
	return 0;
}

/* Of other kinds nothing else is looked at. */
static int has_pods(const char *text, size_t len, struct err *e)
{
	struct err why = {0};
	auto_free char *api = yaml_tree_peek(text, len, "apiVersion", &why);
	auto_free char *kind = why.code ? NULL : yaml_tree_peek(text, len, "kind", &why);

	if (!why.code)
		return inject_has_pods(api, kind);
	*e = why;
	return -1;
}

static int do_tree(struct out *o, struct yaml_tree *t, const char *text, size_t len, struct err *e)
{
	json_t *done = inject_object(o->work, yaml_tree_value(t), e);
	char *written;
	size_t n;
	int rc = done ? 0 : -1;

	if (done && json_equal(done, yaml_tree_value(t)))
		put(o, text, len);
	else if (done && !(rc = yaml_tree_write(t, done, &written, &n, e))) {
		put_new(o, written, n);
		free(written);
	}
	json_decref(done);
	return rc;
}

static int do_yaml(struct out *o, const char *text, size_t len, struct err *e)
{
	int pods = has_pods(text, len, e);
	struct yaml_tree *t;
	int rc;

	if (pods < 0)
		return -1;
	if (!pods) {
		put(o, text, len);
		return 0;
	}
	if (!(t = yaml_tree_parse(text, len, e)))
		return -1;
	rc = do_tree(o, t, text, len, e);
	yaml_tree_free(&t);
	return rc;
}

static int do_document(struct out *o, const char *text, size_t len, struct err *e)
{
	size_t header = header_len(text, len);
	json_t *object = read_json(text + header, len - header);
	int rc = 0;

	put(o, text, header);
	if (object)
		rc = do_json(o, object, text + header, len - header, e);
	else if (header < len)
		rc = do_yaml(o, text + header, len - header, e);
	json_decref(object);
	return rc;
}

/* --- all of them --- */

static size_t count_lines(const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += text[i] == '\n';
	return n;
}

/* An error of the reader counts lines from where it began; users count those of the file. */
static void locate(struct err *e, const char *text, size_t body, size_t line)
{
	static const char word[] = "line ";
	struct err relative = *e;
	size_t at = 0;
	char *end = relative.msg;

	line += count_lines(text, body);
	if (!strncmp(relative.msg, word, strlen(word)))
		at = strtoul(relative.msg + strlen(word), &end, 10);
	if (at)
		err_set(e, relative.code, "line %zu%s", line + at - 1, end);
	else
		err_wrap(e, "document at line %zu", line);
}

char *inject_stream(
    const struct inject_work *w, const char *text, size_t len, size_t *out_len, struct err *e)
{
	struct out o = {.work = w};
	size_t at = 0, line = 1;

	put(&o, "", 0);
	while (at < len) {
		size_t n = document_len(text + at, len - at);

		if (do_document(&o, text + at, n, e)) {
			locate(e, text + at, header_len(text + at, n), line);
			free(o.bytes);
			return NULL;
		}
		line += count_lines(text + at, n);
		at += n;
	}
	*out_len = o.len;
	return o.bytes;
}

json_t *inject_read(const char *text, size_t len, struct err *e)
{
	json_t *v = read_json(text, len);
	struct yaml_tree *t;

	if (v || !(t = yaml_tree_parse(text, len, e)))
		return v;
	v = json_incref(yaml_tree_value(t));
	yaml_tree_free(&t);
	return v;
}
