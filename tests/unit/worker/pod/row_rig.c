/* row_rig.c - see row_rig.h. */
#include "row_rig.h"
#include "common/err.h"
#include "common/mem.h"

void *row_start(const struct pod_service *row, struct pod_context *c)
{
	struct pod_context **its = mem_zalloc(row->size);
	struct err e;

	*its = c;
	if (row->start(its, &e))
		abort();
	return its;
}

void row_stop(const struct pod_service *row, void **its)
{
	void *s = take(*its);

	if (!s)
		return;
	row->stop(s);
	free(s);
}

json_t *row_show(const struct pod_service *row, void *its, const char *name)
{
	json_t *o = json_object();

	row->show(its, o, name);
	return o;
}
