/* config_dump.c - agentctl config-dump POD: the configuration that the pod's Envoy has. */
#include "commands.h"
#include "common/mem.h"
#include "envoy_admin.h"
#include "show.h"

static int config_dump(const struct ctl *c)
{
	int status = CTL_OK;
	size_t len;
	auto_free char *dump = ctl_envoy_admin(c, "/config_dump", &len, &status);

	if (dump)
		ctl_print_text(c, dump, len);
	return status;
}

const struct ctl_command ctl_config_dump = {
    .noun = "config-dump",
    .args = "POD",
    .help = "what the pod's Envoy has, from its admin port; it shows no key",
    .least = 1,
    .most = 1,
    .run = config_dump,
};
