/* caps.c - the bounding set first, while SETPCAP is there; then what the process has.
 *
 * uid 0 gets everything back at an exec, up to the bounding set: without it the second is for show.
 */
#include "caps.h"
#include "common/err.h"
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int broker_caps_bound(uint64_t keep, struct err *e)
{
	int has;

	for (int cap = 0; (has = prctl(PR_CAPBSET_READ, cap, 0, 0, 0)) >= 0; cap++)
		if (has && !(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0))
			return err_sys(e, "capability bounding set");
	return 0;
}

/* The inheritable set would survive even a change of uid; nothing of ours uses it. */
int broker_caps_set(uint64_t keep, struct err *e)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct have[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, have))
		return err_sys(e, "capget");
	for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		have[i].permitted &= (uint32_t)(keep >> (32 * i));
		have[i].effective = have[i].permitted;
		have[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &header, have))
		return err_sys(e, "capset");
	return 0;
}
