/* work_rig.c - a hub, a tag, and a list of what was said. */
#include "work_rig.h"
#include "inject/config.h"

struct inject_work work;
struct err e;
static struct inject_config *config;

int work_rig_setup(void **state)
{
	json_t *values = json_loads("{\"global\":{\"hub\":\"h\",\"tag\":\"1.2.3\"}}", 0, NULL);

	(void)state;
	e = (struct err){0};
	config = inject_config_new(values, NULL, NULL, &e);
	json_decref(values);
	work = (struct inject_work){config, INJECT_ADD, json_array()};
	return 0;
}

int work_rig_teardown(void **state)
{
	(void)state;
	json_decref(work.said);
	inject_config_free(&config);
	return 0;
}
