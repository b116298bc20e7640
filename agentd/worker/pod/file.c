/* file.c - asked for -> written; refused -> told, asked for again. */
#include "file.h"
#include "common/log.h"
#include "common/mem.h"
#include "worker/link/link.h"
#include "worker/pods/pod.h"
#include <string.h>

LOG_SCOPE("pod");

static void ask(void *ctx);

/* ERR_UNAVAILABLE: who starts the pod waits for the next try. */
static void refused(struct pod_file *f, const struct err *e)
{
	struct err why = *e;

	why.code = ERR_UNAVAILABLE;
	err_wrap(&why, "%s cannot be written (tried again until it can)", f->name);
	if (strcmp(f->why.msg, why.msg) != 0)
		log_error(f->context->pod->spec.label, "%s", why.msg);
	f->why = why;
	back_off_start(f->context->shared->loop, &f->again, ask, f);
}

static void on_written(void *ctx, const struct err *e)
{
	struct pod_file *f = ctx;

	if (e) {
		refused(f, e);
	} else {
		if (f->why.code)
			log_info(f->context->pod->spec.label, "%s is written now", f->name);
		f->why = (struct err){.code = 0};
		f->written = true;
		back_off_succeeded(&f->again);
	}
	pod_tell_progress(f->context);
}

static void ask(void *ctx)
{
	struct pod_file *f = ctx;
	const struct pod_context *c = f->context;
	struct link_written w = {.file = f->file};
	auto_free char *text = f->content(f->ctx, &w.size);

	w.data = text;
	link_write(c->shared->link, &f->writing, &c->pod->spec.uid, &w, on_written, f);
}

void pod_file_write(struct pod_file *f)
{
	f->asked = true;
	link_call_cancel(&f->writing); /* the broker writes in order: this one comes last */
	back_off_stop(&f->again);
	ask(f);
}

void pod_file_lost(struct pod_file *f)
{
	if (f->asked)
		pod_file_write(f);
}

void pod_file_stop(struct pod_file *f)
{
	link_call_cancel(&f->writing);
	back_off_stop(&f->again);
}

enum pod_progress pod_file_progress(const struct pod_file *f, const struct err **why)
{
	if (f->why.code) {
		*why = &f->why;
		return f->written ? POD_DEGRADED : POD_HELD;
	}
	return f->asked && !f->written ? POD_BEGINS : POD_FINE;
}
