/* token_rig.h - a service account's token as the kubelet makes it. */
#pragma once
#include <stdint.h>

/* Issued at 1000, to the account of uid "first".  uid NULL: as istioctl does, of no pod.  The
 * signature is istiod's business.  The caller frees it.
 */
char *rig_token(const char *uid, const char *ns, const char *sa, int64_t expires);
