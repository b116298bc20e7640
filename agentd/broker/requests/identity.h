/* identity.h - keys and certificates of machines, as files that outlive a reboot.
 *
 * <identity-dir>/<uid>.pem, of root, 0600: a key and its chain in one file, so that one never is
 * there without the other.  The broker does not read it.  The worker writes one for a pod of a
 * manifest only, of 64 KiB at most, and not many at once: each waits for the disk.  A file stays
 * when the manifest goes; it is root's to remove.
 */
#pragma once
#include "broker/base/options.h"
#include <time.h>

enum { REQUESTS_IDENTITY_NAME = UUID_TEXT_SIZE + sizeof(".pem") };

/* What was written in this second; embed it zeroed. */
struct requests_identity {
	time_t second;
	unsigned written;
};

void requests_identity_name(const struct uuid *pod, char out[REQUESTS_IDENTITY_NAME]);
/* All of `memfd` is in place and on disk, or -1 and what was there still is.  EAGAIN: later. */
int requests_identity_put(struct requests_identity *r, const struct broker_options *o,
    const struct uuid *pod, int memfd, struct err *e);
