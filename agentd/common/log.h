/* log.h - one line per event on stderr: logfmt for people, JSON for collectors.
 *
 *   LOG_SCOPE("sds");                       once per .c file, at file scope; files may share a name
 *   log_warn(pod->label, "NACK of %s: %s", name, why);
 *
 * gives  time=2026-11-21T10:00:00.123Z level=warn scope=sds subject=demo/web-0 msg="NACK of ..."
 *
 * error: an operator must act.  warn: degraded, retried.  info: life of a pod, certificate,
 * connection (never per request).  debug: everything.  Tokens and keys are never passed in; bytes
 * of a peer may be: whatever is not printable UTF-8 is escaped here.  Lines are cut at 2 KiB.
 * Any thread may log, and none ever waits: a line for which there is no room is dropped whole,
 * counted, and said when there is room again.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

struct log_scope {
	const char *name;
	enum log_level level;
	struct log_scope *next;
};

struct err;

void log_scope_register(struct log_scope *s);

#define LOG_SCOPE(scope_name)                                                                      \
	static struct log_scope log_scope_ = {.name = (scope_name), .level = LOG_INFO};            \
	__attribute__((constructor)) static void log_scope_register_(void)                         \
	{                                                                                          \
		log_scope_register(&log_scope_);                                                   \
	}                                                                                          \
	struct log_scope /* wants a semicolon */

void log_init(bool json); /* journald's <N> prefix when JOURNAL_STREAM is set and not JSON */
bool log_is_json(void);

/* A pipe or a terminal that others write to as well becomes one that never waits, for us and our
 * children alone.  Where that is not allowed, two writers may still wait for one last room. */
void log_detach(void);
uint64_t log_dropped(void); /* lines, since the start */
uint64_t log_unsaid(void);  /* of these, after one more try to say so; 0: the log is read */

/* A program that does not know its format yet holds its lines, 64 at most; a 65th lets them go. Its
 * children hold none.  A line that the levels do not want any more is dropped when it is released.
 * For programs of one thread. */
void log_hold(void);
void log_release(void); /* writes them, in order; nothing is held: nothing happens */

/* Istio's spelling: "info", "sds:debug", "default:warn,xds:debug"; a bare level, "default" and "*"
 * mean all scopes.  -1: a scope or level is unknown, nothing was changed. */
int log_set_levels(const char *spec, struct err *e);
/* The same; scopes that are not here are another program's. */
int log_set_own_levels(const char *spec, struct err *e);
void log_set_level(enum log_level level); /* of all scopes */

/* Calls `each` once per distinct scope name, in alphabetical order. */
void log_each_scope(void (*each)(void *ctx, const char *scope, const char *level), void *ctx);

/* `subject`: the thing it is about ("ns/pod", a SPIFFE id), or NULL. */
void log_write(const struct log_scope *s, enum log_level level, const char *subject,
    const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#define log_at(level_, subject_, ...)                                                              \
	do {                                                                                       \
		if ((int)(level_) <= (int)__atomic_load_n(&log_scope_.level, __ATOMIC_RELAXED))    \
			log_write(&log_scope_, (level_), (subject_), __VA_ARGS__);                 \
	} while (0)
#define log_error(subject, ...) log_at(LOG_ERROR, subject, __VA_ARGS__)
#define log_warn(subject, ...) log_at(LOG_WARN, subject, __VA_ARGS__)
#define log_info(subject, ...) log_at(LOG_INFO, subject, __VA_ARGS__)
#define log_debug(subject, ...) log_at(LOG_DEBUG, subject, __VA_ARGS__)

/* A bug of ours.  assert() would write a line that is none of these; so do the last words of glibc
 * itself: an overrun stack, a call that it fortified, a heap that is broken. */
#define log_bug_if(condition)                                                                      \
	do {                                                                                       \
		if (condition) {                                                                   \
			log_error(NULL, "a bug of agentd's: %s", #condition);                      \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* For lines a pod can cause at will: 10 a minute, then how many there were.  Embed it zeroed. */
struct log_budget {
	int64_t since_s;
	unsigned said, hidden;
};
int64_t log_monotonic_s(void);
/* May one more be said?  `hidden`: how many were not, to be said first. */
bool log_budget_take(struct log_budget *b, int64_t now_s, unsigned *hidden);
#define log_warn_limited(budget_, subject_, ...)                                                   \
	do {                                                                                       \
		unsigned hidden_;                                                                  \
		if (!log_budget_take((budget_), log_monotonic_s(), &hidden_))                      \
			break;                                                                     \
		if (hidden_ > 0)                                                                   \
			log_warn(subject_, "%u lines suppressed", hidden_);                        \
		log_warn(subject_, __VA_ARGS__);                                                   \
	} while (0)
