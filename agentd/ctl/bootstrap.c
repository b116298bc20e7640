/* bootstrap.c - agentctl bootstrap POD
 *
 * The file in the pod's directory is what its Envoy reads when it starts, so that is what is
 * printed; agentd says whose directory it is, or nobody needs to where a uid is given.
 */
#include "commands.h"
#include "common/err.h"
#include "common/mem.h"
#include "one_pod.h"
#include "show.h"

static char *find_uid(const struct ctl *c, const char *name, int *status)
{
	json_t *pod = ctl_one_pod(c, name, status);
	char *uid = pod ? mem_strdup(ctl_string(pod, "uid")) : NULL;

	json_decref(pod);
	return uid;
}

static int bootstrap(const struct ctl *c)
{
	const char *word = c->words[0];
	int status = CTL_OK;
	struct err e;
	auto_free char *uid = ctl_is_uid(word) ? mem_strdup(word) : find_uid(c, word, &status);
	json_t *document = uid ? ctl_bootstrap_of(c, uid, &e) : NULL;

	if (!uid)
		return status;
	if (!document) {
		fprintf(stderr, "agentctl: %s\n", e.msg);
		return CTL_PROBLEM;
	}
	ctl_print_answer(c, document);
	json_decref(document);
	return CTL_OK;
}

const struct ctl_command ctl_bootstrap = {
    .noun = "bootstrap",
    .args = "POD",
    .help = "what the pod's Envoy is started with (ns/name or uid); no secret is in it",
    .least = 1,
    .most = 1,
    .run = bootstrap,
};
