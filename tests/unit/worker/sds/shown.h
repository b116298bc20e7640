/* shown.h - a response with secrets as text: " name=chain+key", " name=root-crl", delta "@version".
 */
#pragma once
#include "worker/ads/discovery.h"

struct shown {
	char text[4096];
	char nonce[64];
	char version[64]; /* of all (state of the world); system_version_info */
};
/* Fails the test if it is no such response.  Valid until the next call. */
const struct shown *shown_response(const void *bytes, size_t len, enum discovery_flavour f);
