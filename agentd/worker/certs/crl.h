/* crl.h - the revocation list of one control plane, as the node's administrator put it into a file.
 *
 * The broker follows the file (--crl-file), so that Envoy learns no path of the node.  A list is
 * tried with our own certificates, as an Envoy tries a peer's (crypto/revocation.h): when the file
 * or a certificate changes, and when a list begins or ends.  Until there is a certificate it waits;
 * no Envoy has anything to use it for.
 *   all pass                          it comes into force.
 *   some pass, or did until it ended  it comes into force unless a better one is: a restart must
 *                                     not make revoked certificates good again.
 *   none passes                       it does not come into force: it could refuse all peers only.
 * What is in force stays until a list comes that is as good, or the file is gone.  A file that
 * cannot be read changes nothing.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct cert;
struct cert_cache;
struct crl;
struct link;
struct loop;
struct revocation;

typedef void (*crl_changed)(void *ctx); /* crl_in_force() is another one */

/* All outlive the list. */
struct crl_options {
	struct loop *loop;
	struct link *link;
	unsigned plane;
	const char *name; /* of the control plane, for the log */
	const struct cert_cache *certs;
};
struct crl *crl_new(const struct crl_options *o, crl_changed changed, void *ctx);
void crl_free(struct crl **c);
struct revocation *crl_in_force(const struct crl *c); /* borrowed; NULL: none */
/* There is a new certificate; NULL: one is gone.  NULL `c`: nothing is to be done. */
void crl_try_again(struct crl *c, const struct cert *added);

/* When the list in force ends for our certificates, Unix s; 0: never, or there is none. */
int64_t crl_ends(const struct crl *c);
/* Why Envoys refuse peers under the list in force; NULL: they do not. */
const char *crl_why_refused(const struct crl *c);
/* The file's list is not in force, or Envoys refuse peers under the one that is. */
bool crl_has_problem(const struct crl *c);
/* present: one is in force; ends; why_not: the problem; warning: it ends soon */
json_t *crl_dump(const struct crl *c);
