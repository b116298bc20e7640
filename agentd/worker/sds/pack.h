/* pack.h - a pod's secrets, and discovery responses with some of them.
 *
 * A version identifies its content, also for the next agentd: the serial number of the leaf, a hash
 * of roots and revocation list, what was seen of files.
 *
 * A response holds the private key.  The copies that are made here on the way are wiped.
 */
#pragma once
#include "names.h"
#include "worker/ads/discovery.h"
#include "worker/crypto/cert.h"
#include <stddef.h>
#include <stdint.h>

enum { SDS_VERSION_SIZE = sizeof(((struct x509_leaf *)NULL)->serial) };

/* All borrowed.  Call sds_pack_hash() after each change. */
struct sds_material {
	const struct cert *cert; /* NULL: none (yet) */
	const char *roots;       /* NULL: the certificate's own */
	const char *crl;         /* NULL: none */
	char root_version[SDS_VERSION_SIZE];
};
void sds_pack_hash(struct sds_material *m);
/* The version of the secret with that name; "": there is none (yet), or it has expired. */
const char *sds_pack_version(const struct sds_material *m, const struct sds_name *n, int64_t now_s);

/* One secret of a response; borrowed. */
struct sds_item {
	const struct sds_name *name;
	const char *version; /* not "" */
	const struct sds_material *material;
};
struct sds_response {
	enum discovery_flavour flavour;
	const char *nonce;
	const struct sds_item *items;
	size_t n;
};

struct sds_packed {
	size_t len;
	uint8_t *bytes;
};
/* Free it with sds_pack_wipe(). */
struct sds_packed sds_pack(const struct sds_response *r);
void sds_pack_wipe(struct sds_packed *p);
