/* work_rig.h - the work of one injection, by the smallest values there can be. */
#pragma once
#include "common/err.h"
#include "inject/workload.h"

extern struct inject_work work; /* INJECT_ADD; nothing said yet */
extern struct err e;

int work_rig_setup(void **state);
int work_rig_teardown(void **state);

#define TEST(name) cmocka_unit_test_setup_teardown(name, work_rig_setup, work_rig_teardown)
