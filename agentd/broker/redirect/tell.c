/* tell.c - who hears of a pod's steps. */
#include "traffic_internal.h"

void redirect_tell_worker(struct broker_pod *pod)
{
	const struct redirect_traffic_rig *rig = &pod->redirection.by->rig;

	rig->changed(rig->ctx);
	pod_check(pod);
}

void redirect_tell_directory(void *ctx, const char *path)
{
	struct redirect_traffic *t = ctx;

	broker_audit_directory(&t->audit, path);
}

void redirect_tell_audit(struct redirect_traffic *t, const struct uuid *uid)
{
	const struct redirect_targets at = {.directory = redirect_tell_directory, .ctx = t};

	redirect_audit_pod(t->redirect, uid, &at);
}
