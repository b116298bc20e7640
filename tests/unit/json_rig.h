/* json_rig.h - JSON that a test can write without backslashes. */
#pragma once
#include <jansson.h>

json_t *rig_json(const char *text); /* with ' for "; the caller's */
