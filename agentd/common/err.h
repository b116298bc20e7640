/* err.h - why something failed: a value, filled once where it happens, wrapped on the way up.
 *
 * Functions that can fail take `struct err *` last and return 0/-1 or pointer/NULL.  On success
 * the error is untouched.  The message is one line of plain text for a user: it names what failed
 * and where; bytes that came from a peer are made printable before they get into it.  One that is
 * too long keeps its beginning and its end, where istiod and c-ares say the reason.
 */
#pragma once

enum { ERR_MSG_SIZE = 256 };

/* Beside errno values, for causes that have none. */
enum { ERR_PROTOCOL = 1000, ERR_DENIED, ERR_UNAVAILABLE, ERR_INVALID, ERR_PRECONDITION };

struct err {
	int code; /* errno value or ERR_* */
	char msg[ERR_MSG_SIZE];
};

/* Fill `e` and return -1, so that a caller can write `return err_set(e, EINVAL, "...")`. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The same with errno and its text appended: "open config: No such file or directory". */
int err_sys(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Put a prefix before the message a callee filled: "certificate of ns/sa: " + message; -1. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Copy `n` hostile bytes as printable ASCII ('?' for the rest), cut to `size`; for messages. */
char *err_printable(char *out, unsigned size, const char *bytes, unsigned n);
/* The same, but what is too long keeps its beginning and its end, " ... " between them. */
char *err_excerpt(char *out, unsigned size, const char *bytes, unsigned n);
