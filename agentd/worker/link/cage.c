/* cage.c - checks, then files, then calls; what is missing is said once.
 *
 * The order is that of process-split.md 1.4.  Files come first: opening them for their rules is not
 * among the calls.
 */
#include "cage.h"
#include "cage_calls.h"
#include "cage_files.h"
#include "common/err.h"
#include "common/log.h"
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

LOG_SCOPE("cage");

#ifndef __has_feature /* clang's */
#define __has_feature(x) 0
#endif

enum { ABI_PORTS = 4 };

static struct cage_state state;

void cage_hide_memory(void)
{
	const struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	/* A core handler that is a pipe does not look at the limit, but at this. */
#if !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer)
	prctl(PR_SET_DUMPABLE, 0);
#endif
}

/* The broker's part.  Without it the rest would be a show: a capability undoes it. */
static int check_privileges(struct err *e)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (syscall(SYS_capget, &header, caps))
		return err_sys(e, "capget");
	for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
		if (caps[i].effective | caps[i].permitted | caps[i].inheritable)
			return err_set(e, EPERM, "the worker was started with capabilities");
	if (geteuid() == 0 || getuid() == 0 || getgroups(0, NULL) != 0)
		return err_set(e, EPERM, "the worker was started as root, or with root's groups");
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		return err_set(e, EPERM, "the worker was started without no_new_privs");
	return 0;
}

static void say_what_is_missing(void)
{
	const char *calls = state.seccomp ? "" : "seccomp filters (CONFIG_SECCOMP_FILTER)";
	const char *files = state.landlock >= ABI_PORTS ? ""
			    : state.landlock            ? "Landlock's ports (Linux 6.7)"
					     : "Landlock (CONFIG_SECURITY_LANDLOCK, lsm=)";

	if (*calls || *files)
		log_warn(NULL, "the worker's cage is incomplete, the kernel lacks: %s%s%s", calls,
		    *calls && *files ? ", " : "", files);
}

int cage_enter(const uint16_t *tcp_ports, size_t nports, struct err *e)
{
	if (check_privileges(e))
		return -1;
	state.landlock = cage_files_lock(tcp_ports, nports, e);
	if (state.landlock < 0)
		return -1;
	state.seccomp = !cage_calls_lock(e);
	if (!state.seccomp && e->code != ERR_UNAVAILABLE)
		return -1;
	state.entered = true;
	say_what_is_missing();
	return 0;
}

void cage_stay_out(void)
{
	log_warn(NULL, "--no-privsep: the worker is NOT confined: it runs as root without a cage; "
		       "for debugging only");
}

struct cage_state cage_state(void)
{
	return state;
}

const char *cage_describe(void)
{
	static char text[64];

	if (!state.entered)
		return "none";
	snprintf(text, sizeof(text), state.landlock ? "%s, landlock %d" : "%s, no landlock",
	    state.seccomp ? "seccomp" : "no seccomp", state.landlock);
	return text;
}
