/* manifest_dir.h - pods of a machine without Kubernetes: a directory of <uid>.yaml files.
 *
 * Followed live: a file that appears adds a pod, one that changes changes it, one that goes removes
 * it two seconds later, unless the file is back by then: an editor's rename is no removal.  A bad
 * manifest is refused with file, line and reason; its previous pod, and all others, are not
 * touched.  Keys: uid name namespace service_account identity env{} labels{} annotations{}
 * proxy_uid proxy_gid redirect{}.  The uid must be the file's name.
 */
#pragma once
#include <jansson.h>

struct err;
struct loop;
struct manifest_dir;
struct pod_spec;
struct pod_registry;
struct link;

struct manifest_dir *manifest_dir_new(struct loop *l, struct link *p, struct pod_registry *pods);
/* Its pods stay in the registry, which has to go before the next event. */
void manifest_dir_free(struct manifest_dir **m);
json_t *manifest_dir_refused(const struct manifest_dir *m); /* [{file, why}] */

/* The parser alone (fuzzed).  On success `out` owns its json: manifest_clear(). */
int manifest_parse(
    struct pod_spec *out, const char *file, const char *text, size_t len, struct err *e);
void manifest_clear(struct pod_spec *spec);
