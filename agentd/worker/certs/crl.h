/* crl.h - the revocation list of one control plane, as the node's administrator put it into a file.
 *
 * The broker follows the file (--crl-file), so that Envoy learns no path of the node.  A file that
 * is not a list, or that the broker refuses, changes nothing: the last good list stays in force.  A
 * broken file must not make revoked certificates good again.  A removed file removes the list.
 */
#pragma once
#include <jansson.h>

struct crl;
struct link;

/* `pem` is the list in force, NULL: none; valid until the next call of it or crl_free(). */
typedef void (*crl_changed)(void *ctx, const char *pem);

/* `name` of the control plane, for the log; outlives the list.  `changed` runs when it changes. */
struct crl *crl_new(
    struct link *p, unsigned plane, const char *name, crl_changed changed, void *ctx);
void crl_free(struct crl **c);
const char *crl_pem(const struct crl *c);
json_t *crl_dump(const struct crl *c); /* present, why_not: why the file is not in force */
