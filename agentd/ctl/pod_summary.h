/* pod_summary.h - one pod on one screen; all that is known of it is the answer itself (-o yaml). */
#pragma once
#include <jansson.h>

/* An element of /pods' list, its strings printable. */
void ctl_pod_summary(const json_t *pod);
/* "2 unsupported, 1 ignored": what its environment asks for in vain; "-": nothing.  The caller's.
 */
char *ctl_pod_unused_keys(const json_t *pod);
