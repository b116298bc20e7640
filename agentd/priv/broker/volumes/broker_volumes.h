/* broker_volumes.h - the list of all CSI volumes the kubelet has, told one by one.
 *
 * Each when the worker has room for a packet; meanwhile no other request should be taken, so that
 * answers come in order (as with broker_state_list()).
 */
#pragma once
#include "broker/base/options.h"
#include <dirent.h>

/* Embed it zeroed, with `options`. */
struct broker_volumes {
	const struct broker_options *options;
	uint32_t id; /* of the request; 0: no list is under way */
	struct uuid pod;
	DIR *pods, *volumes; /* of `pod` */
};

int broker_volumes_list(
    struct broker_volumes *v, const struct priv_request *r, struct broker_why *w);
bool broker_volumes_listing(const struct broker_volumes *v);
/* The next PRIV_VOLUME with its `fd` (the caller's), or the PRIV_REPLY that ends the list. */
void broker_volumes_next(struct broker_volumes *v, struct priv_packet *p, int *fd);
void broker_volumes_end(struct broker_volumes *v); /* nobody is there to be told */
