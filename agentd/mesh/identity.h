/* identity.h - who a pod is: trust domain, namespace, service account.
 *
 * Strict: spiffe://TD/ns/NS/sa/SA with TD [a-z0-9.-_]{1,255}, NS and SA as Kubernetes names them
 * (DNS label; DNS subdomain).  Nothing is decoded, folded or trimmed; two identities are equal when
 * their bytes are.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct err;

enum { IDENTITY_URI_SIZE = 600 };

struct identity {
	char trust_domain[256], ns[64], sa[254];
};

int identity_set(
    struct identity *id, const char *trust_domain, const char *ns, const char *sa, struct err *e);
int identity_parse(struct identity *id, const char *uri, size_t len, struct err *e);
char *identity_uri(const struct identity *id, char out[IDENTITY_URI_SIZE]);
bool identity_equal(const struct identity *a, const struct identity *b);
/* The rules for single parts, for other readers of hostile input. */
bool identity_valid_ns(const char *ns);
bool identity_valid_sa(const char *sa);
