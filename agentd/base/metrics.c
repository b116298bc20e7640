/* metrics.c - made at start, counted in callbacks, rendered when somebody scrapes.
 *
 * The text: one HELP and one TYPE line for each metric in the order they were made, then its
 * samples sorted by label text, so two scrapes differ only where a value does.
 */
#include "metrics.h"

#include <event2/buffer.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

#include "common/mem.h"

static const char *const bounds[] = {
    "0.005", "0.025", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30"};
enum { BOUNDS = sizeof(bounds) / sizeof(*bounds) };

struct sample {
	char *labels;
	double value; /* a histogram's sum */
	uint64_t
	    *counts; /* a histogram's, not cumulated, the last one is beyond all bounds; or NULL */
	UT_hash_handle hh;
};

enum kind { COUNTER, GAUGE, HISTOGRAM };
static const char *const kinds[] = {"counter", "gauge", "histogram"};

struct metric {
	const char *name, *help;
	enum kind kind;
	struct sample *samples;
	struct metric *next;
};

static struct metric *metrics;

static struct metric *make(const char *name, const char *help, enum kind kind)
{
	struct metric *m;

	/* Two objects of a module share their metric. */
	LL_FOREACH (metrics, m)
		if (strcmp(m->name, name) == 0)
			return m;
	m = mem_zalloc(sizeof(*m));
	m->name = name;
	m->help = help;
	m->kind = kind;
	LL_APPEND(metrics, m);
	return m;
}

struct metric *metric_counter(const char *name, const char *help)
{
	return make(name, help, COUNTER);
}

struct metric *metric_gauge(const char *name, const char *help)
{
	return make(name, help, GAUGE);
}

struct metric *metric_histogram(const char *name, const char *help)
{
	return make(name, help, HISTOGRAM);
}

static struct sample *sample_of(struct metric *m, const char *labels)
{
	struct sample *s;

	HASH_FIND_STR(m->samples, labels, s);
	if (s)
		return s;
	s = mem_zalloc(sizeof(*s));
	s->labels = mem_strdup(labels);
	if (m->kind == HISTOGRAM)
		s->counts = mem_zalloc((BOUNDS + 1) * sizeof(*s->counts));
	HASH_ADD_KEYPTR(hh, m->samples, s->labels, strlen(s->labels), s);
	return s;
}

void metric_add(struct metric *m, const char *labels, double n)
{
	sample_of(m, labels)->value += n;
}

void metric_set(struct metric *m, const char *labels, double v)
{
	sample_of(m, labels)->value = v;
}

void metric_observe(struct metric *m, const char *labels, double seconds)
{
	struct sample *s = sample_of(m, labels);
	unsigned i = 0;

	while (i < BOUNDS && seconds > strtod(bounds[i], NULL))
		i++;
	s->counts[i]++;
	s->value += seconds;
}

static void drop_samples(struct metric *m, const char *prefix)
{
	struct sample *s, *next;

	HASH_ITER (hh, m->samples, s, next) {
		if (strncmp(s->labels, prefix, strlen(prefix)) != 0)
			continue;
		/* The analyzer does not see that uthash frees its table with the last element only.
		 */
		HASH_DEL(m->samples, s); /* NOLINT(clang-analyzer-unix.Malloc) */
		free(s->labels);
		free(s->counts);
		free(s);
	}
}

void metrics_drop(const char *labels)
{
	struct metric *m;

	LL_FOREACH (metrics, m)
		drop_samples(m, labels);
}

void metrics_clear(void)
{
	struct metric *m, *next;

	LL_FOREACH_SAFE (metrics, m, next) {
		drop_samples(m, "");
		free(m);
	}
	metrics = NULL;
}

/* Appends one byte of a value as the format wants it; false if it does not fit. */
static bool put_escaped(char *out, unsigned size, unsigned *len, char c)
{
	const char *text = c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : NULL;
	/* One byte that is not UTF-8 would make the whole page unreadable, and values are names. */
	char plain[2] = {c >= 0x20 && c < 0x7f ? c : '?', '\0'};

	if (!text)
		text = plain;
	size_t n = strlen(text);
	if (*len + n >= size)
		return false;
	memcpy(out + *len, text, n + 1);
	*len += (unsigned)n;
	return true;
}

/* Appends one pair at `out`; 0 if it does not fit as a whole. */
static unsigned put_pair(char *out, unsigned size, bool first, const char *key, const char *value)
{
	int head = snprintf(out, size, "%s%s=\"", first ? "" : ",", key);
	unsigned len = (unsigned)head;

	if (head < 0 || len >= size)
		return 0;
	for (; *value; value++)
		if (!put_escaped(out, size, &len, *value))
			return 0;
	if (len + 1 >= size)
		return 0;
	out[len++] = '"';
	out[len] = '\0';
	return len;
}

char *metric_labels(char *out, unsigned size, ...)
{
	unsigned len = 0;
	const char *key;
	va_list ap;

	if (size > 0)
		out[0] = '\0';
	va_start(ap, size);
	while (size > 0 && (key = va_arg(ap, const char *))) {
		const char *value = va_arg(ap, const char *);
		unsigned n = put_pair(out + len, size - len, len == 0, key, value);
		out[len + n] = '\0'; /* half a pair is no pair */
		if (n == 0)
			break;
		len += n;
	}
	va_end(ap);
	return out;
}

static int by_labels(const struct sample *a, const struct sample *b)
{
	return strcmp(a->labels, b->labels);
}

static void render_value(struct evbuffer *out, double v)
{
	char text[32];

	/* Whole numbers without exponent, others as short as they stay exact. */
	if (isnan(v))
		evbuffer_add_printf(out, "NaN\n");
	else if (isinf(v))
		evbuffer_add_printf(out, v > 0 ? "+Inf\n" : "-Inf\n");
	else if (fabs(v) < 1e18 && (double)(int64_t)v == v)
		evbuffer_add_printf(out, "%lld\n", (long long)v);
	else {
		snprintf(text, sizeof(text), "%.15g", v);
		if (strtod(text, NULL) != v)
			snprintf(text, sizeof(text), "%.17g", v);
		evbuffer_add_printf(out, "%s\n", text);
	}
}

static void render_line(
    struct evbuffer *out, const struct metric *m, const char *suffix, const char *labels, double v)
{
	evbuffer_add_printf(out, *labels ? "%s%s{%s} " : "%s%s ", m->name, suffix, labels);
	render_value(out, v);
}

static void render_histogram(struct evbuffer *out, const struct metric *m, const struct sample *s)
{
	uint64_t n = 0;

	for (unsigned i = 0; i <= BOUNDS; i++) {
		auto_free char *labels = mem_printf("%s%sle=\"%s\"", s->labels,
		    *s->labels ? "," : "", i < BOUNDS ? bounds[i] : "+Inf");

		n += s->counts[i];
		render_line(out, m, "_bucket", labels, (double)n);
	}
	render_line(out, m, "_sum", s->labels, s->value);
	render_line(out, m, "_count", s->labels, (double)n);
}

void metrics_render(struct evbuffer *out)
{
	struct metric *m;

	LL_FOREACH (metrics, m) {
		struct sample *s, *next;
		if (!m->samples)
			continue;
		HASH_SORT(m->samples, by_labels);
		evbuffer_add_printf(
		    out, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, kinds[m->kind]);
		HASH_ITER (hh, m->samples, s, next)
			if (m->kind == HISTOGRAM)
				render_histogram(out, m, s);
			else
				render_line(out, m, "", s->labels, s->value);
	}
}
