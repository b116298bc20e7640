/* istiod_rig.c - a mesh with two connections; streams open as fast as anybody asks, but three a
 * pod. */
#include "istiod_rig.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct istiod_rig rig;

void istiod_rig_begin(void)
{
	rig.loop = fake_loop();
	rig.rpc = rpc_new(rig.loop);
	rig.link = fake_link();
	rig.plane = (struct istiod_options){.name = "istiod",
	    .address = "istiod.test:15012",
	    .root = "/var/run/root.pem",
	    .server_name = "istiod.istio-system.svc",
	    .trust_domain = "",
	    .cluster_id = "Kubernetes",
	    .mesh_id = "mesh",
	    .connections = 2,
	    .opens_per_second = 1000,
	    .opens_burst = 1000,
	    .pod_opens_per_second = 1,
	    .pod_opens_burst = 3};
}

void istiod_rig_end(void)
{
	istiod_free(&rig.istiod);
	istiod_free(&rig.istiod); /* NULL is fine */
	assert_int_equal(fake_link_live(rig.link), 0);
	for (unsigned i = 0; i < fake_rpc_channels(rig.rpc); i++)
		assert_true(fake_rpc_channel_freed(fake_rpc_channel(rig.rpc, i)));
	rpc_free(&rig.rpc);
	link_free(&rig.link);
	fake_loop_advance(rig.loop, 0); /* the fake's own pump */
	assert_int_equal(fake_loop_live(rig.loop), 0);
	fake_loop_end(&rig.loop);
}
