/* broker_log.h - what the broker says: log lines for people, reasons for the worker.
 *
 * Lines have the format of common/log.h, on stderr, one write(2) each; there are no levels to set.
 */
#pragma once
#include "common/protocol.h"
#include <stddef.h>

enum broker_level { BROKER_ERROR, BROKER_WARN, BROKER_INFO };

/* `subject`: the uid of the pod it is about, or NULL. */
void broker_log(enum broker_level level, const char *subject, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Why something was not done: becomes code and text of a reply, or a log line. */
struct broker_why {
	int code; /* errno */
	char text[LINK_WHY_SIZE];
};
/* Both return -1. */
int broker_refuse(struct broker_why *w, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* With errno as code, and its text appended. */
int broker_refuse_sys(struct broker_why *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Zeroed memory, or the end of the process. */
void *broker_zalloc(size_t size) __attribute__((malloc, returns_nonnull));
