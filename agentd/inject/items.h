/* items.h - the objects in a stream of JSON, one at a time: those of a List's `items`, as
 * `kubectl get -o json` prints it, or the objects that stand one after the other.
 *
 * However long the stream is, one object is held, of at most ITEMS_OBJECT_MAX bytes.  Brackets and
 * texts are followed here; a whole object is read by jansson, which refuses what is no JSON.  What
 * a List says beside its items is passed over.
 */
#pragma once
#include <jansson.h>
#include <stddef.h>

struct err;
struct items;

enum { ITEMS_OBJECT_MAX = 4 << 20 }; /* Kubernetes stores 1.5 MiB */

/* Called for each object, which is borrowed; -1 stops, with the error that it filled. */
typedef int items_cb(json_t *object, struct err *e, void *ctx);

struct items *items_new(items_cb *cb, void *ctx);
void items_free(struct items **s);
/* The next bytes; -1: refused, and the error names the object by its number, from 1 on. */
int items_feed(struct items *s, const char *bytes, size_t n, struct err *e);
/* No more will come; -1: it ends inside of an object, or there was none. */
int items_end(struct items *s, struct err *e);
