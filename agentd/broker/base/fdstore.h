/* fdstore.h - descriptors that must outlive this process, by name.
 *
 * *Kept*: a module of this broker made or adopted it and still owns the fd; the list gives it to
 * the next broker (re-execution, hand-over, systemd's FDSTORE).  *Found*: came from an earlier
 * broker and belongs to this list until its maker takes it.  A taker must check that it is what its
 * name says, then put it; it drops and closes an unwanted one.  Names are `<uid>.<kind>` or
 * `<kind>` (security-rules.md 7): no ':', no control character.
 */
#pragma once
#include <stddef.h>

enum { BROKER_FDSTORE_NAME = 128 }; /* with its NUL; FDSTORE would allow 255 */

struct broker_fdstore;

struct broker_fdstore *broker_fdstore_new(void);
void broker_fdstore_free(struct broker_fdstore **k); /* closes found ones that nobody took */

/* Lists `fd`, which stays the caller's and must be dropped before it is closed.  A previous one of
 * this name is dropped. */
void broker_fdstore_put(struct broker_fdstore *k, const char *name, int fd);
/* Nothing of this name: fine. */
void broker_fdstore_drop(struct broker_fdstore *k, const char *name);

/* Takes over `fd`; closed if the name cannot be one of ours, or was found already. */
void broker_fdstore_found(struct broker_fdstore *k, const char *name, int fd);
/* The caller's from now on; -1: none was found. */
int broker_fdstore_take(struct broker_fdstore *k, const char *name);
/* Closes and forgets the found ones that nobody took; returns their number. */
size_t broker_fdstore_sweep(struct broker_fdstore *k);

enum broker_fdstore_side { BROKER_FDSTORE, BROKER_FOUND };
typedef void (*broker_fdstore_one)(void *ctx, const char *name, int fd);
/* `one` may take or drop the one it is told about. */
void broker_fdstore_each(
    struct broker_fdstore *k, enum broker_fdstore_side side, broker_fdstore_one one, void *ctx);

/* Another holder of copies (systemd).  It is told of each put and each drop from now on, and of all
 * that is kept already. */
struct broker_fdstore_sink {
	void (*put)(void *ctx, const char *name, int fd);
	void (*drop)(void *ctx, const char *name);
	void *ctx;
};
void broker_fdstore_mirror(struct broker_fdstore *k, const struct broker_fdstore_sink *to);
