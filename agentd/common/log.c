/* log.c - from log_warn(...) to one write(2), if that need not wait.
 *
 * Scopes chain themselves together in constructors, before main().  A line is composed in a buffer
 * on the stack: time, level, scope, subject, message; each value escaped for the format in use, cut
 * at a whole character so that what closes the line always fits.  It goes out by a single write, so
 * lines of different threads never mix.  The levels are the only shared state: relaxed atomics,
 * since it does not matter which of two lines sees a new level first.
 *
 * Who reads the log may stand still: a frozen journald, a full disk of the container's runtime.  A
 * socket is asked per line not to wait.  A pipe has no such question, and the flag that says so is
 * shared with strangers: so it is opened anew.  A write below PIPE_BUF is whole or not at all.
 *
 * The broker reads no agentd.yaml, so its first lines are held until its worker has told the
 * format: hold -> kept with their times -> release.
 */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "mem.h"

enum {
	LINE_MAX_BYTES = 2048,
	CLOSING_BYTES = 3, /* "}\n */
	SUBJECT_MAX_BYTES = 600,
	LEVELS = 4,
	HELD_MAX = 64
};

static const char *const level_names[LEVELS] = {"error", "warn", "info", "debug"};
static const char journald[LEVELS] = {'3', '4', '6', '7'}; /* sd-daemon(3) */

static struct log_scope *scopes;
static bool as_json;
static bool with_priority;

struct held {
	struct timespec when;
	const struct log_scope *scope;
	enum log_level level;
	char *subject, *msg;
};
static struct held held[HELD_MAX];
static unsigned nheld;
static pid_t holder; /* 0: nothing is held */

_Static_assert((int)LINE_MAX_BYTES <= PIPE_BUF, "a line is written whole or not at all");
static uint64_t dropped; /* lines */
static uint64_t unsaid;  /* of these */

struct line {
	char text[LINE_MAX_BYTES];
	size_t len, limit;
};

void log_scope_register(struct log_scope *s)
{
	s->next = scopes;
	scopes = s;
}

void log_init(bool json)
{
	as_json = json;
	with_priority = !json && getenv("JOURNAL_STREAM");
}

bool log_is_json(void)
{
	return as_json;
}

/* All of it or nothing: half an escape sequence would make the line unreadable. */
static bool put(struct line *l, const char *s, size_t n)
{
	if (l->len + n > l->limit)
		return false;
	memcpy(l->text + l->len, s, n);
	l->len += n;
	return true;
}

static void puts_line(struct line *l, const char *s)
{
	put(l, s, strlen(s));
}

/* Bytes of the well-formed UTF-8 character at `s` (Unicode table 3-7), 0 if it is none. */
static unsigned utf8_char(const unsigned char *s, uint32_t *point)
{
	unsigned n = *s < 0x80   ? 1
		     : *s < 0xc2 ? 0
		     : *s < 0xe0 ? 2
		     : *s < 0xf0 ? 3
		     : *s < 0xf5 ? 4
				 : 0;

	if (n < 2) {
		*point = *s;
		return n;
	}
	*point = *s & (0x7f >> n);
	for (unsigned i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*point = *point << 6 | (s[i] & 0x3f);
	}
	if (n == 3 && (*point < 0x800 || (*point >= 0xd800 && *point < 0xe000)))
		return 0;
	if (n == 4 && (*point < 0x10000 || *point > 0x10ffff))
		return 0;
	return n;
}

/* Controls, and what makes a terminal show a line otherwise than it is: separators, bidi overrides.
 */
static bool is_printable(uint32_t c)
{
	return c >= 0x20 && (c < 0x7f || c >= 0xa0) && (c < 0x2028 || c > 0x202e) &&
	       (c < 0x2066 || c > 0x2069) && c != 0xfeff;
}

/* One character, escaped for inside quotes.  Both formats share the escapes of JSON; an invalid
 * byte is shown as \xNN to people and as U+FFFD in JSON, which has no way to say it. */
static bool put_char(struct line *l, const unsigned char *s, unsigned n, uint32_t c)
{
	char esc[8];

	if (n == 0)
		snprintf(esc, sizeof(esc), as_json ? "\xef\xbf\xbd" : "\\x%02x", *s);
	else if (c == '"' || c == '\\')
		snprintf(esc, sizeof(esc), "\\%c", (char)c);
	else if (c == '\n')
		snprintf(esc, sizeof(esc), "\\n");
	else if (!is_printable(c))
		snprintf(esc, sizeof(esc), "\\u%04x", (unsigned)(c & 0xffff));
	else
		return put(l, (const char *)s, n);
	return put(l, esc, strlen(esc));
}

static void put_escaped(struct line *l, const char *value)
{
	const unsigned char *s = (const unsigned char *)value;
	uint32_t c;

	while (*s) {
		unsigned n = utf8_char(s, &c);
		if (!put_char(l, s, n, c))
			return;
		s += n ? n : 1;
	}
}

static bool needs_quotes(const char *value)
{
	const unsigned char *s = (const unsigned char *)value;
	uint32_t c;

	if (!*s)
		return true;
	while (*s) {
		unsigned n = utf8_char(s, &c);
		if (n == 0 || !is_printable(c) || strchr(" \"=\\", (int)*s))
			return true;
		s += n;
	}
	return false;
}

static void put_pair(struct line *l, const char *key, const char *value)
{
	bool quotes = as_json || needs_quotes(value);

	if (as_json) {
		puts_line(l, l->len > 1 ? ",\"" : "\"");
		puts_line(l, key);
		puts_line(l, "\":");
	} else {
		puts_line(l, l->len > 3 ? " " : "");
		puts_line(l, key);
		puts_line(l, "=");
	}
	puts_line(l, quotes ? "\"" : "");
	put_escaped(l, value);
	/* The message is last and may fill the line; room for its quote is kept by CLOSING_BYTES.
	 */
	if (quotes)
		l->text[l->len++] = '"';
}

static void put_time(struct line *l, const struct timespec *when)
{
	struct tm tm;
	char text[40];

	gmtime_r(&when->tv_sec, &tm);
	size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text + n, sizeof(text) - n, ".%03dZ", (int)(when->tv_nsec / 1000000));
	put_pair(l, "time", text);
}

static void compose(struct line *l, const struct held *h)
{
	l->len = 0;
	l->limit = LINE_MAX_BYTES - CLOSING_BYTES;
	if (with_priority)
		put(l, (char[]){'<', journald[h->level], '>'}, 3);
	puts_line(l, as_json ? "{" : "");
	put_time(l, &h->when);
	put_pair(l, "level", level_names[h->level]);
	put_pair(l, "scope", h->scope->name);
	size_t limit = l->limit;
	l->limit = l->len + SUBJECT_MAX_BYTES; /* an endless subject leaves room for the message */
	if (h->subject)
		put_pair(l, "subject", h->subject);
	l->limit = limit;
	put_pair(l, "msg", h->msg);
	if (as_json)
		l->text[l->len++] = '}';
	l->text[l->len++] = '\n';
}

/* --- out --- */

static bool has_room(void)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLOUT);
}

/* False: it was not written, since that would have to wait, or fails. */
static bool emit(const struct line *l)
{
	ssize_t n;

	do
		n = send(STDERR_FILENO, l->text, l->len, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == ENOTSOCK) {
		if (!has_room())
			return false;
		do
			n = write(STDERR_FILENO, l->text, l->len);
		while (n < 0 && errno == EINTR);
	}
	return n == (ssize_t)l->len;
}

/* False: there is no room still. */
static bool say_dropped(const struct held *next)
{
	const uint64_t n = __atomic_exchange_n(&unsaid, 0, __ATOMIC_RELAXED);
	char msg[80];
	struct held h = {.when = next->when, .scope = next->scope, .level = LOG_WARN, .msg = msg};
	struct line l;

	if (!n)
		return true;
	snprintf(msg, sizeof(msg), "%llu line%s dropped: nobody read this log",
	    (unsigned long long)n, n == 1 ? " was" : "s were");
	compose(&l, &h);
	if (emit(&l))
		return true;
	__atomic_add_fetch(&unsaid, n, __ATOMIC_RELAXED);
	return false;
}

static void say(const struct held *h)
{
	struct line l;

	compose(&l, h);
	if (say_dropped(h) && emit(&l))
		return;
	__atomic_add_fetch(&dropped, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&unsaid, 1, __ATOMIC_RELAXED);
}

uint64_t log_unsaid(void)
{
	static const struct log_scope scope = {.name = "log"};
	struct held now = {.scope = &scope};

	clock_gettime(CLOCK_REALTIME, &now.when);
	(void)say_dropped(&now);
	return __atomic_load_n(&unsaid, __ATOMIC_RELAXED);
}

uint64_t log_dropped(void)
{
	return __atomic_load_n(&dropped, __ATOMIC_RELAXED);
}

/* A file is left alone: the offset of its description is shared, and ours would begin anew. */
void log_detach(void)
{
	struct stat st;

	if (fstat(STDERR_FILENO, &st) || !(S_ISFIFO(st.st_mode) || isatty(STDERR_FILENO)))
		return;
	int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return;
	dup2(fd, STDERR_FILENO);
	close(fd);
}

void log_hold(void)
{
	holder = getpid();
}

void log_release(void)
{
	holder = 0;
	for (unsigned i = 0; i < nheld; i++) {
		if (held[i].level <= held[i].scope->level)
			say(&held[i]);
		free(held[i].subject);
		free(held[i].msg);
	}
	nheld = 0;
}

/* A child says its own lines at once, and none of its parent's. */
static bool keep(const struct held *h)
{
	if (!holder || holder != getpid())
		return false;
	if (nheld == HELD_MAX) {
		log_release();
		return false;
	}
	held[nheld] = *h;
	held[nheld].subject = mem_strdup(h->subject);
	held[nheld++].msg = mem_strdup(h->msg);
	return true;
}

void log_write(
    const struct log_scope *s, enum log_level level, const char *subject, const char *fmt, ...)
{
	int saved_errno = errno;
	char msg[LINE_MAX_BYTES];
	struct held h = {.scope = s, .level = level, .subject = (char *)subject, .msg = msg};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	clock_gettime(CLOCK_REALTIME, &h.when);
	if (!keep(&h))
		say(&h);
	errno = saved_errno;
}

int64_t log_monotonic_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

bool log_budget_take(struct log_budget *b, int64_t now_s, unsigned *hidden)
{
	enum { MINUTE_S = 60, LINES = 10 };

	*hidden = 0;
	if (b->said == 0 || now_s - b->since_s >= MINUTE_S) {
		*hidden = b->hidden;
		*b = (struct log_budget){.since_s = now_s};
	}
	if (b->said == LINES) {
		b->hidden++;
		return false;
	}
	b->said++;
	return true;
}

/* ---- levels at run time ---- */

struct setting {
	const char *scope; /* not terminated */
	size_t scope_len;  /* 0: all of them */
	int level;
};

static bool is_meant(const struct log_scope *s, const struct setting *set)
{
	return set->scope_len == 0 || (strlen(s->name) == set->scope_len &&
					  memcmp(s->name, set->scope, set->scope_len) == 0);
}

static bool is_known(const struct setting *set)
{
	const struct log_scope *s = scopes;

	while (s && !is_meant(s, set))
		s = s->next;
	return s || set->scope_len == 0;
}

static bool is_general(const char *scope, size_t len)
{
	return (len == 7 && memcmp(scope, "default", len) == 0) || (len == 1 && *scope == '*');
}

static void append_scope(void *ctx, const char *scope, const char *level)
{
	struct err *e = ctx;
	size_t n = strlen(e->msg);

	(void)level;
	snprintf(e->msg + n, sizeof(e->msg) - n, " %s", scope);
}

/* -1: the level is unknown, or the scope is and `strict`. */
static int parse_setting(
    const char *text, size_t len, bool strict, struct setting *out, struct err *e)
{
	const char *colon = memchr(text, ':', len);
	const char *level = colon ? colon + 1 : text;
	size_t level_len = (size_t)(text + len - level);
	size_t scope_len = colon ? (size_t)(colon - text) : 0;
	char shown[48];

	*out = (struct setting){.scope = text, .scope_len = scope_len, .level = -1};
	for (int i = 0; i < LEVELS; i++)
		if (strlen(level_names[i]) == level_len &&
		    !memcmp(level, level_names[i], level_len))
			out->level = i;
	if (out->level < 0)
		return err_set(e, ERR_INVALID,
		    "unknown log level \"%s\"; known: error warn info debug",
		    err_printable(shown, sizeof(shown), level, (unsigned)level_len));
	if (is_general(text, scope_len))
		out->scope_len = 0;
	if ((is_known(out) || !strict) && !(colon && scope_len == 0))
		return 0;
	err_set(e, ERR_INVALID, "unknown log scope \"%s\"; known: default",
	    err_printable(shown, sizeof(shown), text, (unsigned)scope_len));
	log_each_scope(append_scope, e);
	return -1;
}

static void apply(const struct setting *set)
{
	for (struct log_scope *s = scopes; s; s = s->next)
		if (is_meant(s, set))
			__atomic_store_n(&s->level, (enum log_level)set->level, __ATOMIC_RELAXED);
}

static int set_levels(const char *spec, bool strict, struct err *e)
{
	enum { CHECK, DEFAULTS, SCOPES, PASSES };
	struct setting set;

	/* Nothing changes before all of it was understood; then the general settings first, so that
	 * "xds:debug,default:warn" means the same as "default:warn,xds:debug". */
	for (int pass = CHECK; pass < PASSES; pass++) {
		const char *p = spec;
		for (;;) {
			size_t len = strcspn(p, ",");
			if (parse_setting(p, len, strict, &set, e) < 0)
				return -1;
			if (pass == (set.scope_len ? SCOPES : DEFAULTS))
				apply(&set);
			if (!p[len])
				break;
			p += len + 1;
		}
	}
	return 0;
}

int log_set_levels(const char *spec, struct err *e)
{
	return set_levels(spec, true, e);
}

int log_set_own_levels(const char *spec, struct err *e)
{
	return set_levels(spec, false, e);
}

void log_set_level(enum log_level level)
{
	apply(&(struct setting){.level = (int)level});
}

void log_each_scope(void (*each)(void *ctx, const char *scope, const char *level), void *ctx)
{
	const struct log_scope *last = NULL;

	/* The smallest name above the last one, until there is none: sorted, distinct, no memory.
	 */
	for (;;) {
		const struct log_scope *next = NULL;
		for (const struct log_scope *s = scopes; s; s = s->next)
			if ((!last || strcmp(s->name, last->name) > 0) &&
			    (!next || strcmp(s->name, next->name) < 0))
				next = s;
		if (!next)
			return;
		each(ctx, next->name, level_names[__atomic_load_n(&next->level, __ATOMIC_RELAXED)]);
		last = next;
	}
}
