/* fdstore.h - descriptors that must outlive this process, by name.
 *
 * *Kept*: made or adopted by somebody in this broker, who still owns the fd; listed here so that it
 * can be given to the next broker (re-execution, hand-over, systemd's FDSTORE).  *Found*: came from
 * an earlier broker and belongs to this list until its maker takes it.  A taker must check that it
 * is what its name says, then put it; what he does not want he drops and closes.  Names are
 * `<uid>.<kind>` or `<kind>` (security-rules.md 7): no ':', no control character.
 */
#pragma once
#include <stddef.h>

enum { BROKER_FDSTORE_NAME = 128 }; /* with its NUL; FDSTORE would allow 255 */

struct broker_fdstore;

struct broker_fdstore *broker_fdstore_new(void);
void broker_fdstore_free(struct broker_fdstore **k); /* closes what was found and not taken */

/* Lists `fd`, which stays the caller's and must be dropped before it is closed.  One that had the
 * name before is dropped. */
void broker_fdstore_put(struct broker_fdstore *k, const char *name, int fd);
/* Nothing of this name: fine. */
void broker_fdstore_drop(struct broker_fdstore *k, const char *name);

/* Takes over `fd`; closed if the name cannot be one of ours, or was found already. */
void broker_fdstore_found(struct broker_fdstore *k, const char *name, int fd);
/* The caller's from now on; -1: none was found. */
int broker_fdstore_take(struct broker_fdstore *k, const char *name);
/* Closes and forgets what was found and nobody took; how many they were. */
size_t broker_fdstore_sweep(struct broker_fdstore *k);

enum broker_fdstore_side { BROKER_FDSTORE, BROKER_FOUND };
typedef void (*broker_fdstore_one)(void *ctx, const char *name, int fd);
/* `one` may take or drop the one it is told about. */
void broker_fdstore_each(
    struct broker_fdstore *k, enum broker_fdstore_side side, broker_fdstore_one one, void *ctx);

/* Somebody else who holds copies (systemd): told about each put and each drop from now on, and of
 * what is kept already. */
struct broker_fdstore_sink {
	void (*put)(void *ctx, const char *name, int fd);
	void (*drop)(void *ctx, const char *name);
	void *ctx;
};
void broker_fdstore_mirror(struct broker_fdstore *k, const struct broker_fdstore_sink *to);
