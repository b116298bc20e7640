/* identity.c - is it a manifest's pod, small, and not one of many? -> written durably. */
#include "identity.h"
#include "broker/base/durable.h"
#include "broker/base/file.h"
#include "broker/kubelet/pod_source.h"
#include "common/err.h"
#include <errno.h>
#include <sys/stat.h>

enum { SIZE_MAX_KIB = 64, A_SECOND_MAX = 4 };

void requests_identity_name(const struct uuid *pod, char out[REQUESTS_IDENTITY_NAME])
{
	char uid[UUID_TEXT_SIZE];

	uuid_format(pod, uid);
	snprintf(out, REQUESTS_IDENTITY_NAME, "%s.pem", uid);
}

/* The broker waits for the disk each time (security-rules.md G5). */
static int take_turn(struct requests_identity *r, struct err *e)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec != r->second)
		*r = (struct requests_identity){.second = now.tv_sec};
	if (r->written == A_SECOND_MAX)
		return err_set(
		    e, EAGAIN, "%d certificates were written in this second", A_SECOND_MAX);
	r->written++;
	return 0;
}

int requests_identity_put(struct requests_identity *r, const struct broker_options *o,
    const struct uuid *pod, int memfd, struct err *e)
{
	char name[REQUESTS_IDENTITY_NAME];
	struct stat st;

	if (!pod_source_is_manifest(o, pod))
		return err_set(e, EPERM, "the pod has no manifest");
	if (broker_file_check_memfd(memfd, e))
		return -1;
	if (fstat(memfd, &st) || st.st_size == 0 || st.st_size > SIZE_MAX_KIB << 10)
		return err_set(e, EFBIG, "it is empty, or larger than %d KiB", SIZE_MAX_KIB);
	if (take_turn(r, e))
		return -1;
	requests_identity_name(pod, name);
	return broker_durable_write(
	    &(struct broker_place){.dir = o->identity_dir, .name = name}, memfd, e);
}
