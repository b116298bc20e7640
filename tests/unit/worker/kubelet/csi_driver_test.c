/* csi_driver_test.c - each method's answer, and calls that are none.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/link.c tests/fake/link_volume.c tests/unit/worker/kubelet/csi_rig.c
 * LINK: tests/unit/worker/metrics_rig.c tests/unit/worker/token_rig.c
 */
#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/version.h"
#include "csi/v1/csi.pb-c.h"
#include "csi_rig.h"
#include "pluginregistration/api.pb-c.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "tests/unit/worker/metrics_rig.h"
#include "worker/kubelet/csi_driver.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define REGISTRATION "/pluginregistration.Registration/"

static struct loop *loop;
static struct rpc *rpc;
static struct link *to_broker;
static struct pod_registry *pods;
static struct csi_volumes *volumes;
static struct csi_driver *driver;

static int registrations, refusals;

static void on_registered(void *ctx, bool yes)
{
	(void)ctx;
	*(yes ? &registrations : &refusals) += 1;
}

static int setup(void **state)
{
	static const struct pod_observer nobody;

	(void)state;
	loop = fake_loop();
	rpc = rpc_new(loop);
	to_broker = fake_link();
	pods = pod_registry_new(&nobody, NULL);
	volumes = csi_volumes_new(&(struct csi_volumes_options){loop, to_broker, pods, 0});
	driver = csi_driver_new(
	    loop, rpc, &(struct csi_driver_rig){volumes, "node-1", on_registered, NULL});
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	csi_driver_free(&driver);
	csi_driver_free(&driver);
	csi_volumes_free(&volumes);
	pod_registry_free(&pods);
	link_free(&to_broker);
	rpc_free(&rpc);
	metrics_clear();
	fake_loop_advance(loop, 0);
	assert_int_equal(fake_loop_live(loop), 0);
	fake_loop_end(&loop);
	return 0;
}

static struct rpc_stream *call(const char *method, const void *bytes, size_t size)
{
	struct rpc_stream *s = fake_rpc_call(csi_driver_rpc(driver), method);

	fake_rpc_push(s, bytes, size);
	fake_rpc_half_close(s);
	fake_loop_advance(loop, 0);
	return s;
}

/* The one message of a call that is fine. */
static const uint8_t *answer_of(const char *method, size_t *size)
{
	struct rpc_stream *s = call(method, "", 0);

	assert_true(fake_rpc_ended(s));
	assert_int_equal(fake_rpc_status(s), RPC_OK);
	assert_int_equal(fake_rpc_sent(s), 1);
	return fake_rpc_sent_bytes(s, 0, size);
}

static void test_registration(void **state)
{
	size_t size;
	const uint8_t *bytes = answer_of(REGISTRATION "GetInfo", &size);
	Pluginregistration__PluginInfo *i =
	    pluginregistration__plugin_info__unpack(NULL, size, bytes);

	(void)state;
	assert_non_null(i);
	assert_string_equal(i->type, "CSIPlugin");
	assert_string_equal(i->name, "agentd.node.mesh");
	assert_string_equal(i->endpoint, "");
	assert_int_equal(i->n_supported_versions, 1);
	assert_string_equal(i->supported_versions[0], "1.0.0");
	pluginregistration__plugin_info__free_unpacked(i, NULL);
}

static void test_notified(void **state)
{
	Pluginregistration__RegistrationStatus status =
	    PLUGINREGISTRATION__REGISTRATION_STATUS__INIT;
	uint8_t bytes[64];

	(void)state;
	status.error = (char *)"another driver has this name";
	call(REGISTRATION "NotifyRegistrationStatus", bytes,
	    pluginregistration__registration_status__pack(&status, bytes));
	assert_metric("agentd_csi_alarm{alarm=\"registration\"} 1\n");
	assert_int_equal(refusals, 1);
	assert_int_equal(registrations, 0);
	status.plugin_registered = true;
	status.error = (char *)"";
	assert_int_equal(fake_rpc_status(call(REGISTRATION "NotifyRegistrationStatus", bytes,
			     pluginregistration__registration_status__pack(&status, bytes))),
	    RPC_OK);
	assert_metric("agentd_csi_alarm{alarm=\"registration\"} 0\n");
	assert_int_equal(registrations, 1);
}

static void test_identity(void **state)
{
	size_t size;
	const uint8_t *bytes = answer_of("/csi.v1.Identity/GetPluginInfo", &size);
	Csi__V1__GetPluginInfoResponse *i =
	    csi__v1__get_plugin_info_response__unpack(NULL, size, bytes);

	(void)state;
	assert_string_equal(i->name, "agentd.node.mesh");
	assert_string_equal(i->vendor_version, version_text);
	csi__v1__get_plugin_info_response__free_unpacked(i, NULL);
	answer_of("/csi.v1.Identity/GetPluginCapabilities", &size);
	assert_int_equal(size, 0);
	answer_of("/csi.v1.Identity/Probe", &size);
	assert_int_equal(size, 0);
}

static void test_node(void **state)
{
	size_t size;
	const uint8_t *bytes = answer_of("/csi.v1.Node/NodeGetInfo", &size);
	Csi__V1__NodeGetInfoResponse *i =
	    csi__v1__node_get_info_response__unpack(NULL, size, bytes);

	(void)state;
	assert_string_equal(i->node_id, "node-1");
	csi__v1__node_get_info_response__free_unpacked(i, NULL);
	answer_of("/csi.v1.Node/NodeGetCapabilities", &size);
	assert_int_equal(size, 0);
}

static void test_others(void **state)
{
	static const char *const methods[] = {"/csi.v1.Controller/CreateVolume",
	    "/csi.v1.Node/NodeStageVolume", "/csi.v1.Node/NodeGetInfo2", "/csi.v1.Node/", "",
	    "/pluginregistration.v1.Registration/GetInfo"};

	(void)state;
	for (unsigned i = 0; i < sizeof(methods) / sizeof(*methods); i++)
		assert_int_equal(fake_rpc_status(call(methods[i], "", 0)), RPC_UNIMPLEMENTED);
}

static void test_no_request(void **state)
{
	static const char *const methods[] = {
	    "/csi.v1.Node/NodePublishVolume", "/csi.v1.Node/NodeUnpublishVolume"};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(fake_rpc_status(call(methods[i], "", 0)), RPC_INVALID_ARGUMENT);
		assert_int_equal(
		    fake_rpc_status(call(methods[i], "\x0a\xff", 2)), RPC_INVALID_ARGUMENT);
	}
}

/* A call that says nothing, one that goes, one that says too much. */
static void test_strange_calls(void **state)
{
	struct rpc_stream *silent = fake_rpc_call(csi_driver_rpc(driver), "/csi.v1.Identity/Probe");
	struct rpc_stream *gone = fake_rpc_call(csi_driver_rpc(driver), "/csi.v1.Identity/Probe");
	struct rpc_stream *waits = fake_rpc_call(csi_driver_rpc(driver), "/csi.v1.Identity/Probe");

	(void)state;
	fake_rpc_half_close(silent);
	fake_loop_advance(loop, 0);
	assert_int_equal(fake_rpc_status(silent), RPC_INVALID_ARGUMENT);
	fake_rpc_end(gone, RPC_CANCELLED, "");
	fake_loop_advance(loop, 0);
	fake_rpc_push(waits, "", 0);
	fake_rpc_push(waits, "", 0);
	fake_loop_advance(loop, 0);
	assert_int_equal(fake_rpc_sent(waits), 1);
	assert_int_equal(fake_rpc_live(rpc), 0);
	fake_rpc_call(csi_driver_rpc(driver), "/csi.v1.Identity/Probe"); /* at its end */
	fake_loop_advance(loop, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_registration),
	    TEST(test_notified),
	    TEST(test_identity),
	    TEST(test_node),
	    TEST(test_others),
	    TEST(test_no_request),
	    TEST(test_strange_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
