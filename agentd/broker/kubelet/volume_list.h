/* volume_list.h - the list of all CSI volumes the kubelet has, told one by one.
 *
 * Each when the worker has room for a packet; meanwhile no other request should be taken, so that
 * answers come in order (as with broker_state_list()).
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/options.h"
#include "common/err.h"
#include <dirent.h>

/* Embed it zeroed, with `options`. */
struct volume_list {
	const struct broker_options *options;
	uint32_t id; /* of the request; 0: no list is under way */
	struct uuid pod;
	DIR *pods, *volumes; /* of `pod` */
};

int volume_list_list(struct volume_list *v, const struct link_request *r, struct err *e);
bool volume_list_listing(const struct volume_list *v);
/* The next LINK_VOLUME with its `fd` (the caller's), or the LINK_REPLY that ends the list. */
void volume_list_next(struct volume_list *v, struct link_packet *p, int *fd);
void volume_list_end(struct volume_list *v); /* nobody is there to be told */
