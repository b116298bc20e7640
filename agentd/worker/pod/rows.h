/* rows.h - the table of services that every pod gets, in the order of dependency.
 *
 * A new service is a file that defines its row, `pod_NAME_service`, and a line here, below
 * everything it uses.
 */
#pragma once
#include "pod_services.h"

#define POD_ROWS(row)                                                                              \
	row(directory)     /* asked for before anything else is asked of the broker */             \
	    row(redirect)  /* offers: may the pod start without its rules? */                      \
	    row(bootstrap) /* is not written while it may not */                                   \
	    row(token)     /* offers the token: it opens ADS and admits to a certificate */        \
	    row(server)  /* offers limits and a server for calls; its calls end before it does */  \
	    row(ads)     /* offers the stream: names and trust anchors come by it */               \
	    row(dns)     /* takes the names, */                                                    \
	    row(cert)    /* and the anchors, in this order; offers the roots */                    \
	    row(sds)     /* shows certificate and roots to Envoy */                                \
	    row(sockets) /* lets Envoy in, when all of this is there */

#define POD_ROW_DECLARE(name) extern const struct pod_service pod_##name##_service;
POD_ROWS(POD_ROW_DECLARE)

extern const struct pod_service *const pod_rows[]; /* the last one is NULL */
