/* rows.h - the table of services that every pod gets, in the order of dependency.
 *
 * A new service is a file that defines its row, `pod_NAME_service`, and a line here, below
 * everything that it uses.
 *
 * In no row: what is read of a pod before it has services, and that a refused one is shut
 * (agent.c); what the node shows of all redirected pods together (pages/).
 */
#pragma once
#include "pod_services.h"

/* clang-format off */
#define POD_ROWS(row) \
	row(directory) /* asked for before anything else is asked of the broker */ \
	row(redirect)  /* offers: may the pod start without its rules? */ \
	row(bootstrap) /* is written when it may */ \
	row(token)     /* offers the token */ \
	row(identity)  /* offers the credential, which opens ADS and admits to a certificate */ \
	row(server)    /* offers limits and a server; ends after those that its calls go to */ \
	row(ads)       /* offers the stream, by which names and trust anchors come */ \
	row(registration) /* says how istiod takes a machine */ \
	row(health)    /* tells istiod how it is */ \
	row(dns)       /* subscribes to the names, */ \
	row(cert)      /* and then to the anchors; offers the roots */ \
	row(sds)       /* shows roots and certificate to Envoy */ \
	row(sockets)   /* lets Envoy in, when all of this is there */
/* clang-format on */

#define POD_ROW_DECLARE(name) extern const struct pod_service pod_##name##_service;
POD_ROWS(POD_ROW_DECLARE)

extern const struct pod_service *const pod_rows[]; /* the last one is NULL */
