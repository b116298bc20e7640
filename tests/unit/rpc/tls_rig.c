/* tls_rig.c - grpc core's server, and a timer that looks for its events. */
#include "tls_rig.h"
#include "common/mem.h"
#include <grpc/grpc_security.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static char dir[] = "/tmp/tls_rig.XXXXXX";

void tls_rig_folder(void)
{
	assert_non_null(mkdtemp(dir));
}

int tls_rig_remove_folder(void)
{
	auto_free char *command = mem_printf("rm -rf %s", dir);

	return system(command);
}

void tls_rig_run(const char *command)
{
	auto_free char *line = mem_printf("cd %s && exec 2>log && %s", dir, command);

	assert_int_equal(system(line), 0);
}

char *tls_rig_path(const char *name)
{
	return mem_printf("%s/%s", dir, name);
}

char *tls_rig_read(const char *name)
{
	auto_free char *path = tls_rig_path(name);
	char *text = mem_zalloc(16 << 10);
	FILE *f = fopen(path, "re");

	assert_non_null(f);
	assert_true(fread(text, 1, (16 << 10) - 1, f) > 100);
	fclose(f);
	return text;
}

void tls_rig_listen(struct tls_rig *r, const char *cert_pem, const char *key_pem)
{
	grpc_ssl_pem_key_cert_pair pair = {.private_key = key_pem, .cert_chain = cert_pem};
	grpc_server_credentials *creds = grpc_ssl_server_credentials_create_ex(
	    NULL, &pair, 1, GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE, NULL);

	*r = (struct tls_rig){.cq = grpc_completion_queue_create_for_next(NULL)};
	r->grpc = grpc_server_create(NULL, NULL);
	grpc_server_register_completion_queue(r->grpc, r->cq, NULL);
	r->port = grpc_server_add_http2_port(r->grpc, "127.0.0.1:0", creds);
	assert_true(r->port > 0);
	grpc_server_credentials_release(creds);
	grpc_server_start(r->grpc);
}

/* What there is within `until`; false: that was the last. */
static bool serve(struct tls_rig *r, gpr_timespec until)
{
	for (;;) {
		grpc_event ev = grpc_completion_queue_next(r->cq, until, NULL);

		if (ev.type != GRPC_OP_COMPLETE)
			return ev.type != GRPC_QUEUE_SHUTDOWN;
		if (ev.tag == &r->port) /* shut down: its requests came back before */
			grpc_completion_queue_shutdown(r->cq);
		else
			r->on_event(r->ctx, &ev);
	}
}

static void on_timer(void *ctx)
{
	struct tls_rig *r = ctx;

	loop_timer_in(r->loop, &r->timer, 1, on_timer, r);
	serve(r, gpr_time_0(GPR_CLOCK_MONOTONIC));
}

void tls_rig_serve(
    struct tls_rig *r, struct loop *l, void (*on_event)(void *, const grpc_event *), void *ctx)
{
	r->loop = l;
	r->on_event = on_event;
	r->ctx = ctx;
	on_timer(r);
}

void tls_rig_stop(struct tls_rig *r)
{
	loop_timer_stop(&r->timer);
	grpc_server_shutdown_and_notify(r->grpc, r->cq, &r->port);
	grpc_server_cancel_all_calls(r->grpc);
	serve(r, gpr_inf_future(GPR_CLOCK_MONOTONIC));
}

void tls_rig_free(struct tls_rig *r)
{
	grpc_server_destroy(r->grpc);
	grpc_completion_queue_destroy(r->cq);
}
